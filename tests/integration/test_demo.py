"""What ``diag demo`` says of what its job has left: a recorded job stands for the run of a minute."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from rankscope.agent.commands import demo

RECORDED: Final = Path(__file__).parents[2] / "notebooks" / "recorded" / "jobs" / "loader-hang"
COPY: Final = "import shutil, sys; print('step 1'); shutil.copytree(sys.argv[1], sys.argv[2]); sys.exit(75)"


@pytest.fixture(autouse=True)
def _job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path))

    def command(run_id: str, _work: Path, _options: object) -> list[str]:
        return [sys.executable, "-c", COPY, str(RECORDED), str(tmp_path / "jobs" / run_id)]

    monkeypatch.setattr(demo, "_command", command)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_with_json_standard_output_is_one_object_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--json"]) == 75
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert "step 1" in err
    assert told["exit_code"] == 75
    assert told["diagnosis"]["culprits"] == [2]
    assert told["decision"]["action"] == "restart"
    assert [one["result"] for one in told["restarts"]] == ["running"]
    assert Path(told["folder"]).name == told["job"]
    assert Path(told["report"]).parent == Path(told["incident"])
    assert "<html" in Path(told["report"]).read_text()


def test_a_person_reads_the_same_and_how_to_read_it_again(capfd: pytest.CaptureFixture[str]) -> None:
    assert demo.main([]) == 75
    out, err = capfd.readouterr()
    assert err == ""
    for said in ("step 1", "exit code 75", "decision: restart: ", "restart 1 at ", "report.html", "again: "):
        assert said in out
