"""The fault matrix' own command on a few cheap rows: what it prints and writes; it leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.deadline import DEADLINE
from tests.jobs import until

from rankscope.diag import proc
from rankscope.diag.store.incidents import incident_folders

ROOT: Final = Path(__file__).parents[2]
SMALL: Final = 6
"""A seed with which the row that is run in both modes has three ranks."""


@contextmanager
def _faults(*arguments: str) -> Generator[subprocess.Popen[str]]:
    """The command; everything it leaves behind is ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=150)
        for pid in _left_by(process.pid):
            os.kill(pid, signal.SIGKILL)


def _run(*arguments: str) -> tuple[int, str]:
    """Its exit status and what it printed."""
    with _faults(*arguments) as process:
        out, err = process.communicate(timeout=150)
        assert not _left_by(process.pid)
    return process.returncode, out + err


def _left_by(command: int) -> list[int]:
    """Processes of the command's jobs, in whatever session and under whatever parent."""
    jobs = (f"test-{command}-", f"plain-{command}-")
    return [
        pid
        for pid in proc.process_table()
        if (proc.environ(pid) or {}).get("TORCHELASTIC_RUN_ID", "").startswith(jobs)
    ]


def _found(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if line.split()[:1] == ["found"]]


def test_a_right_trial_is_printed_with_what_was_expected_and_found_and_its_records_are_kept(
    tmp_path: Path,
) -> None:
    code, printed = _run("--only=killed", "--fault-on=zero", "--seed=3", f"--keep={tmp_path}")
    assert code == 0, printed
    (expected,) = (line.split() for line in printed.splitlines() if "expected" in line)
    assert expected == ["killed", "run", "0/4", "expected", "Exited", "dead", "0", "any", "any"]
    (found,) = _found(printed)
    assert found[:5] == ["found", "Exited", "dead", "0", "-"]
    assert found[-1] == "ok"
    assert "seed 3" in printed
    (incidents,) = tmp_path.glob("killed-*/home/jobs/*/incidents")
    assert len(incident_folders(incidents)) == 1


def test_a_healthy_row_is_run_to_the_end_of_its_job_and_found_silent() -> None:
    code, printed = _run("--only=prints_always")
    assert code == 0, printed
    assert _found(printed) == [["found", "none", "-", "-", "-", "-", "-", "ok"]]


def test_faults_are_found_under_drawn_names_in_both_modes_and_the_table_is_written(tmp_path: Path) -> None:
    results = tmp_path / "results" / "faults.md"
    rows = ("--only=lock_held", "--fault-on=other", f"--seed={SMALL}")
    code, printed = _run(*rows, f"--results={results}")
    assert code == 0, printed
    assert [one[-1] for one in _found(printed)] == ["ok", "ok"]
    table = [line.split(" | ") for line in results.read_text().splitlines() if line.startswith("| lock_held")]
    assert [row[2] for row in table] == ["run", "beside"]
    for row in table:
        assert row[4].startswith("RankNonCommHang, lock, ")
        assert row[-1] == "ok |"


def test_a_command_that_is_ended_ends_its_jobs(tmp_path: Path) -> None:
    with _faults("--only=lock_held", "--mode=beside", "--fault-on=zero", f"--keep={tmp_path}") as process:
        until(lambda: len(_left_by(process.pid)) > 2, "the ranks of its job")
        process.terminate()
        process.communicate(timeout=DEADLINE)
        assert process.returncode == 128 + signal.SIGTERM
        assert not _left_by(process.pid)


def test_a_row_that_does_not_exist_is_a_usage_error() -> None:
    code, printed = _run("--only=no_such_row")
    assert code == 2
    assert "no_such_row" in printed
