"""``rankscope.diag.analyze``: the answer of ``diag analyze --json``, for a program."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.tables_factory import quietly

from rankscope.diag import IncompleteRecords, RankscopeError, analyze
from rankscope.diag.commands.analyze import main
from rankscope.diag.errors import UsageError
from rankscope.diag.model import Diagnosis

ROOT = Path(__file__).parents[2]
STACKS = ROOT / "tests" / "data" / "stacks"
RECORDED = ROOT / "notebooks" / "recorded" / "jobs"
HUNG = RECORDED / "exit-hang"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path / "home"))


def as_printed(diagnosis: Diagnosis) -> Any:
    return json.loads(msgspec.json.encode(diagnosis))


def printed(*words: object, capsys: pytest.CaptureFixture[str]) -> Any:
    main([*map(str, words), "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["busy_loop", "dataloader_main_sleep"])
def test_dumps_are_judged_as_the_command_judges_them(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted((STACKS / name).glob("*.pyspy.json"))
    diagnosis = analyze(files)
    assert diagnosis.verdict != "Healthy"
    told, again = printed(*files, capsys=capsys), as_printed(diagnosis)
    told["time"] = again["time"] = ""  # of the look, and these dumps say none
    assert again == told


@pytest.mark.parametrize("name", ["exit-hang", "straggler"])
def test_a_recorded_job_is_told_as_the_command_tells_it(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = printed(RECORDED / name, capsys=capsys)
    assert as_printed(analyze(RECORDED / name)) == told
    assert as_printed(analyze(str(RECORDED / name), incident=told["incident"])) == told
    assert [as_printed(one) for one in analyze(RECORDED / name, several=True)] == [told]


def test_code_that_is_named_as_the_users_decides_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(IncompleteRecords, match="judged anew"):
        diagnosis = analyze(HUNG, user_code=["/opt/venv"])
    assert as_printed(diagnosis) == printed(HUNG, "--user-code", "/opt/venv", capsys=capsys)


def test_two_jobs_where_one_is_expected_are_an_error_that_names_the_way_out(tmp_path: Path) -> None:
    for name in ("exit-hang", "lock-hang"):
        for incident in (RECORDED / name / "incidents").iterdir():
            shutil.copytree(incident, tmp_path / incident.name)
    with quietly():
        both = analyze(tmp_path, several=True)
        assert len(both) == 2
        with pytest.raises(UsageError, match="2 jobs are meant") as caught:
            analyze(tmp_path)
    assert "several=True" in caught.value.hint


def test_what_cannot_be_read_is_one_warning(tmp_path: Path) -> None:
    shutil.copytree(STACKS / "busy_loop", tmp_path / "dumps")
    (tmp_path / "dumps" / "rank9.txt").write_text("no dump of anything\n")
    with pytest.warns(IncompleteRecords, match=r"rank9\.txt") as caught:
        analyze(tmp_path / "dumps")
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"job": "no-such-job"}, "no-such-job"),
        ({"job": HUNG, "incident": "no-such"}, "no incident"),
        ({"job": HUNG, "pids": [1]}, "not several"),
        ({"pids": [2**22 - 1]}, "no training process"),
        ({"job": []}, "empty list"),
        ({"job": HUNG, "timeout": 0.0}, "timeout=0.0"),
        ({"job": HUNG, "interval": float("nan")}, "interval=nan"),
        ({"job": HUNG, "catalogue": "/no/such.toml"}, "no/such.toml"),
    ],
)
def test_what_does_not_fit_is_an_error_of_ours(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(RankscopeError, match=said):
        analyze(**arguments)
