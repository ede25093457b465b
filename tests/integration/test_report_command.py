"""``diag report`` and the files of ``diag analyze``, of recorded jobs and of dumps: content and messages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.history_factory import a_job_file

from rankscope.diag.report.html import Page
from rankscope.diag.store.incidents import incident_folders
from rankscope.diag.store.job import JobFolder, job_folder

ROOT: Final = Path(__file__).parents[2]
RECORDED: Final = ROOT / "notebooks" / "recorded"
DUMPS: Final = ROOT / "tests" / "data" / "looks" / "subgroup"
MAIN: Final = "import sys; from rankscope.diag.main import main; sys.exit(main())"
EXIT_HANG: Final = 3


def diag(folder: Path, *words: str | Path, home: Path = RECORDED) -> subprocess.CompletedProcess[str]:
    """Run ``diag`` in a folder."""
    return subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, words)],
        cwd=folder,
        env={**os.environ, "RANKSCOPE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def document(html: str) -> Page:
    """The document that a report was drawn from."""
    data = html.split('<script type="application/json" id="report-data">')[1].split("</script>", maxsplit=1)[
        0
    ]
    return msgspec.json.decode(data.encode(), type=Page)


def test_a_report_is_of_the_last_incident_and_lies_in_the_current_folder(tmp_path: Path) -> None:
    done = diag(tmp_path, "report", "loader-hang")
    assert (done.returncode, done.stdout) == (0, "")
    told, written = done.stderr.splitlines()
    assert told.startswith("diag report: stored incident ")
    assert written == "report: report-loader-hang.html"
    assert [path.name for path in tmp_path.iterdir()] == ["report-loader-hang.html"]
    page = document((tmp_path / "report-loader-hang.html").read_text())
    assert page.head.culprits.ranks == "2"
    assert page.decided is not None
    assert page.decided.action == "restart"
    assert any(sentence.startswith("restart 1: running after") for sentence in page.decided.then)
    assert page.timeline is not None
    assert page.timeline.cycles
    assert None not in page.ranks.step


def test_its_numbers_are_those_that_json_says(tmp_path: Path) -> None:
    page = document(diag(tmp_path, "report", "loader-hang", "-o", "-").stdout)
    told = json.loads(diag(tmp_path, "analyze", "loader-hang", "--json").stdout)
    history = json.loads(diag(tmp_path, "history", "loader-hang", "--json").stdout)
    for name in (
        "verdict",
        "kind",
        "severity",
        "confidence",
        "summary",
        "rule",
        "world_size",
        "time",
        "incident",
    ):
        assert getattr(page.head, name) == told[name]
    assert page.sets[page.stacks.groups[0].ranks].ranks == told["stacks"][0]["ranks"]
    assert [one.fact for one in page.evidence] == [one["fact"] for one in told["evidence"]]
    assert [one.count for one in page.stacks.groups] == [one["count"] for one in told["stacks"]][:2]
    assert page.timeline is not None
    assert (page.timeline.wall, page.timeline.lost) == (history["wall"], history["lost"])
    assert [one.duration for one in page.timeline.cycles] == [one["duration"] for one in history["cycles"]]


def test_what_was_written_and_the_diagnosis_are_said_as_json(tmp_path: Path) -> None:
    done = diag(tmp_path, "report", "straggler", "--all", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(line["file"] for line in lines) == sorted(path.name for path in tmp_path.iterdir())
    for line in lines:
        incident = line["diagnosis"]["incident"]
        assert document((tmp_path / line["file"]).read_text()).head.incident == incident
        told = diag(tmp_path, "analyze", "straggler", "--incident", incident, "--json")
        assert line["diagnosis"] == json.loads(told.stdout)
    refused = diag(tmp_path, "report", "straggler", "--json", "-o", "-")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--json and -o -: one place cannot take both" in refused.stderr


def test_several_incidents_get_a_file_each(tmp_path: Path) -> None:
    stored = incident_folders(JobFolder(RECORDED / "jobs" / "straggler").incidents)
    assert len(stored) > 1
    assert diag(tmp_path, "report", "straggler", "--all", "-o", "r.html").returncode == 0
    names = [f"r-straggler-{one.id}.html" for one in stored]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    for one, name in zip(stored, names, strict=True):
        assert document((tmp_path / name).read_text()).head.incident == one.id
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    taken = tmp_path / f"report-straggler-{stored[0].id}.html"
    taken.write_text("mine")
    assert diag(tmp_path, "report", "straggler", "--all").returncode == 0
    assert taken.read_text() == "mine"
    assert taken.with_name(f"{taken.stem}-2.html").exists()
    assert len(list(tmp_path.iterdir())) == len(stored) + 1
    refused = diag(tmp_path, "report", "straggler", "--all", "-o", "-")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{len(stored)} jobs or incidents" in refused.stderr


def test_analyze_writes_all_files_beside_what_it_prints(tmp_path: Path) -> None:
    files = ("--html", "a.html", "--folded", "a.folded", "--speedscope", "a.json")
    done = diag(tmp_path, "analyze", "loader-hang", "--json", *files)
    assert done.returncode == EXIT_HANG
    assert json.loads(done.stdout)["culprits"] == [2]
    assert done.stderr.splitlines() == ["report: a.html", "folded stacks: a.folded", "speedscope: a.json"]
    assert document((tmp_path / "a.html").read_text()).head.job == "loader-hang"
    weights = json.loads((tmp_path / "a.json").read_text())["profiles"][0]["weights"]
    counts = [int(line.rpartition(" ")[2]) for line in (tmp_path / "a.folded").read_text().splitlines()]
    assert weights == counts
    assert sum(counts) == 4


def test_a_dash_is_standard_output_and_nothing_else_is_written_there(tmp_path: Path) -> None:
    done = diag(tmp_path, "analyze", "loader-hang", "--folded", "-")
    assert done.returncode == EXIT_HANG
    assert [line.rpartition(" ")[2] for line in done.stdout.splitlines()] == ["1", "3"]
    assert diag(tmp_path, "report", "loader-hang", "-o", "-").stdout.startswith("<!doctype html>")
    assert list(tmp_path.iterdir()) == []


def test_dumps_make_a_report_without_a_history(tmp_path: Path) -> None:
    assert diag(tmp_path, "report", DUMPS, "-o", "d.html").returncode == 0
    page = document((tmp_path / "d.html").read_text())
    assert page.head.culprits.ranks == "3"
    assert page.decided is None
    assert page.timeline is None
    assert page.tree


def test_an_incident_that_was_copied_elsewhere_makes_a_report(tmp_path: Path) -> None:
    stored = incident_folders(JobFolder(RECORDED / "jobs" / "loader-hang").incidents)[-1]
    copied = tmp_path / "kept"
    shutil.copytree(stored.path, copied)
    assert diag(tmp_path, "report", copied, "-o", "k.html").returncode == 0
    page = document((tmp_path / "k.html").read_text())
    assert page.decided is not None
    assert page.timeline is None
    assert diag(tmp_path, "report", stored.path, "-o", "s.html").returncode == 0
    assert document((tmp_path / "s.html").read_text()).timeline is not None


def test_a_damaged_snapshot_costs_the_steps_and_a_damaged_log_what_it_had(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(RECORDED / "jobs" / "loader-hang", home / "jobs" / "loader-hang")
    for path in home.rglob("snapshot-*.json.zst"):
        path.write_bytes(b"torn")
    for path in home.rglob("events.jsonl"):
        path.write_bytes(path.read_bytes()[:700])
    done = diag(tmp_path, "report", "loader-hang", "-o", "r.html", home=home)
    assert done.returncode == 0
    assert "steps are not shown" in done.stderr
    page = document((tmp_path / "r.html").read_text())
    assert page.head.culprits.ranks == "2"
    assert set(page.ranks.step) == {None}
    assert page.timeline is not None
    assert page.timeline.warnings


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report"], "which job?"),
        (["report", "no-such-job"], "no such job"),
        (["report", "loader-hang", "--incident", "nope"], "no incident 'nope'"),
        (["report", "loader-hang", "-o", "no/such/folder.html"], "there is no folder no/such"),
        (["report", "loader-hang", "-o", "."], "diag report: -o .: that is a folder"),
        (["report", "loader-hang", "-o", ""], "a name expected"),
        (["analyze", "loader-hang", "--json", "--speedscope", "-"], "one place cannot take both"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_status_2(tmp_path: Path, words: list[str], said: str) -> None:
    done = diag(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert said in line
    assert list(tmp_path.iterdir()) == []


def test_a_job_without_an_incident_has_no_report(tmp_path: Path) -> None:
    a_job_file(job_folder("well", tmp_path), ended=9.0, result="succeeded")
    done = diag(tmp_path, "report", "well", home=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "diag report: job well has ended (succeeded) and no incident of it is stored\n"


def test_a_full_disk_is_one_line_and_status_1(tmp_path: Path) -> None:
    done = diag(tmp_path, "report", "loader-hang", "-o", "/dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "diag report: /dev/full cannot be written: No space left on device"
