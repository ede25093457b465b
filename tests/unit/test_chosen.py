"""Which job a name means, for every verb: what runs goes before what is stored; no namesake is taken."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.capture_factory import waiting_process

from rankscope.diag import proc
from rankscope.diag.chosen import find_named, jobs_called
from rankscope.diag.discover import FoundJob, FoundRank
from rankscope.diag.errors import UsageError
from rankscope.diag.live import NO_PROCESS, absent_ranks, targets_of
from rankscope.diag.model import ExitFacts
from rankscope.diag.store.files import make_folders, write_json
from rankscope.diag.store.job import AgentFile, JobFile, JobFolder, WorkerFile, job_folder

NOW = "2026-11-29T16:40:00Z"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path))


@contextlib.contextmanager
def a_rank(run_id: str, **variables: str) -> Generator[int]:
    env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": run_id, **variables}
    with waiting_process(env=env) as process:
        yield process.pid


def leave_records(
    run_id: str, *, agent: int, workers: tuple[int, ...] = (), beside: bool = True
) -> JobFolder:
    """What a watch, or an agent, writes: who it is, and whom it saw."""
    folder = job_folder(run_id)
    make_folders(folder.node("host"))
    write_json(folder.job_file, JobFile(run_id, NOW, ("python",), ended=NOW, result="ended"))
    seen = tuple(WorkerFile(rank, rank, pid, proc.start_ticks(pid) or 0) for rank, pid in enumerate(workers))
    ticks = proc.start_ticks(agent) or 0
    file = AgentFile("host", agent, ticks, "ended", workers=seen, world_size=2, beside=beside)
    write_json(folder.node("host") / "agent.json", file)
    return folder


def found(name: str) -> list[int]:
    return [rank.pid for job in find_named(name).jobs for rank in job.ranks]


def test_a_running_job_is_found_although_a_watch_of_it_has_ended() -> None:
    with a_rank("chosen-a") as pid:
        leave_records("chosen-a", agent=4194304)
        assert found("chosen-a") == [pid]
        assert found("chosen-") == [pid]


def test_a_watch_that_sees_a_part_of_a_job_hides_no_rank() -> None:
    with a_rank("chosen-b") as first, a_rank("chosen-b", RANK="1", LOCAL_RANK="1") as second:
        leave_records("chosen-b", agent=os.getpid(), workers=(first,))
        assert found("chosen-b") == [first, second]


def test_processes_that_only_a_watch_knows_are_found_through_it() -> None:
    with waiting_process() as process:
        leave_records("chosen-c", agent=os.getpid(), workers=(process.pid,))
        assert found("chosen-c") == [process.pid]


def test_the_workers_of_an_agent_are_those_it_names() -> None:
    with a_rank("chosen-d"), waiting_process() as other:
        folder = leave_records("chosen-d", agent=os.getpid(), workers=(other.pid,), beside=False)
        (job,) = find_named(str(folder.path)).jobs
        assert ([rank.pid for rank in job.ranks], job.job_dir) == ([other.pid], str(folder.path))


def test_a_job_that_has_ended_is_not_another_that_begins_like_it() -> None:
    leave_records("chosen-e", agent=4194304)
    with a_rank("chosen-e2"):
        named = find_named("chosen-e")
        assert (named.jobs, named.folder is not None) == ((), True)
        with pytest.raises(UsageError, match="chosen-e has no workers on this host just now"):
            jobs_called("chosen-e")


def test_an_exact_name_goes_before_the_beginning_of_a_stored_one() -> None:
    leave_records("chosen-f2", agent=4194304)
    with a_rank("chosen-f") as pid:
        assert found("chosen-f") == [pid]


def test_a_name_that_nothing_has_is_told() -> None:
    with pytest.raises(UsageError, match="no such job: 'chosen-g'"):
        find_named("chosen-g")


def reasons(pid_of: int, run_id: str) -> list[str | None]:
    (job,) = find_named(run_id).jobs
    assert job.ranks[0].pid == pid_of
    return [rank.reason for rank in absent_ranks(job, 4, {0}, elsewhere="elsewhere")]


@pytest.mark.parametrize(
    ("size_here", "expected"),
    [
        ("4", [NO_PROCESS, NO_PROCESS, NO_PROCESS]),
        ("2", [NO_PROCESS, "elsewhere", "elsewhere"]),
        ("", ["elsewhere", "elsewhere", "elsewhere"]),
    ],
)
def test_a_rank_that_this_host_was_given_is_not_elsewhere(size_here: str, expected: list[str]) -> None:
    with a_rank("chosen-h", WORLD_SIZE="4", LOCAL_WORLD_SIZE=size_here) as pid:
        assert reasons(pid, "chosen-h") == expected


LAUNCHER = """
import subprocess, sys, time
command = [sys.executable, "-c", "import time; time.sleep(600)"]
ranks = [subprocess.Popen(command) for _ in range(int(sys.argv[1]))]
print(*(rank.pid for rank in ranks), flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def launched(count: int) -> Generator[list[int]]:
    """A launcher in Python and its processes."""
    command = [sys.executable, "-c", LAUNCHER, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        pids: list[int] = []
        try:
            assert process.stdout is not None
            pids = [int(word) for word in process.stdout.readline().split()]
            yield pids
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            process.kill()


def job_of(*pids: int, run_id: str | None = "chosen-i") -> FoundJob:
    ranks = tuple(FoundRank(rank, pid, proc.start_ticks(pid) or 0) for rank, pid in enumerate(pids))
    return FoundJob("chosen-i", ranks, 3, run_id=run_id, here=(range(2),))


def ends(job: FoundJob) -> list[ExitFacts | None]:
    seen = {rank.rank for rank in job.ranks}
    return [rank.exit for rank in absent_ranks(job, 3, seen, elsewhere="elsewhere")]


def test_a_rank_without_a_process_under_an_agent_that_goes_on_has_left_with_0() -> None:
    """torch's agent ends all ranks when one fails."""
    with launched(1) as (pid,):
        here, elsewhere = ends(job_of(pid))
        assert here is not None
        assert (here.code, elsewhere) == (0, None)
        assert ends(job_of(pid, run_id=None)) == [None, None]


def test_a_rank_that_was_not_asked_for_has_not_left() -> None:
    with launched(2) as pids:
        assert ends(job_of(pids[0])) == [None, None]


def test_a_rank_that_has_ended_since_it_was_found_has_left_with_0_under_an_agent_that_goes_on() -> None:
    """On a busy machine the looks come long after the ranks were found."""
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    with launched(1) as (pid,):
        first, second = (one.exit for one in targets_of(job_of(pid, gone.pid), "host"))
        assert second is not None
        assert (first, second.code) == (None, 0)
    with launched(2) as pids:
        assert targets_of(job_of(pids[0], gone.pid), "host")[1].exit == ExitFacts(code=None)
