"""Which jobs are watched and for how long: launchers, searches, and the loop over a host's jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import cast

import pytest
from tests.jobs import until

from rankscope.agent.beside.host import HostWatch
from rankscope.agent.beside.job import JobWatch
from rankscope.agent.beside.launchers import is_launcher, launchers_of, lives
from rankscope.agent.beside.search import Search
from rankscope.diag import proc
from rankscope.diag.discover import FoundJob, FoundRank


@pytest.mark.parametrize(
    ("command", "launches"),
    [
        ("python -m torch.distributed.run --nproc-per-node=2 train.py", True),
        ("/env/bin/python3.11 /env/bin/torchrun train.py", True),
        ("python -u -m torch.distributed.launch train.py", True),
        ("python /env/bin/accelerate launch train.py", True),
        ("/usr/bin/mpirun -n 4 python train.py", True),
        ("slurmstepd: [17.0]", True),
        ("python -m rankscope.agent train.py", True),
        ("python train.py --launcher torchrun", False),
        ("bash -c torchrun", False),
        ("python -m pytest", False),
        ("", False),
    ],
)
def test_a_launcher_is_known_by_its_command(command: str, *, launches: bool) -> None:
    assert is_launcher(tuple(command.split())) is launches


def test_the_launcher_is_the_nearest_ancestor_that_is_no_shell() -> None:
    script = "sleep 1000 & echo $!; wait"
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        below = int(shell.stdout.readline())
        try:
            (found,) = launchers_of([below], table=proc.process_table())
        finally:
            os.kill(below, 9)
        shell.wait(10)
    assert (found.pid, found.lives) == (os.getpid(), True)


def test_a_process_that_nobody_has_collected_does_not_live() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        ticks = proc.start_ticks(process.pid)
        assert ticks is not None
        assert lives(process.pid, ticks)
        process.kill()
        until(lambda: not lives(process.pid, ticks), "the end", seconds=10)
        process.wait(10)


class FakeSearch(Search):
    """Finds what the test says."""

    def __init__(self, *found: tuple[FoundJob, ...], is_open: bool) -> None:
        super().__init__(None if is_open else "a-job")
        self._found = list(found)
        self.done = False

    @property
    def may_come(self) -> bool:
        return self.is_open and not self.done

    def jobs(self) -> tuple[FoundJob, ...]:
        if len(self._found) > 1:
            return self._found.pop(0)
        self.done = True
        return self._found[0]


class FakeWatch:
    """A job's watch that is over when the job is not found."""

    def __init__(self, job: FoundJob, closed: list[tuple[str, bool]], *, hangs: bool) -> None:
        self.name, self.hangs, self._closed = job.job, hangs, closed
        self.is_assumed = job.assumed
        self._gone = False

    def is_same(self, job: FoundJob) -> bool:
        return job.job == self.name

    def update(self, job: FoundJob | None, _now: float) -> None:
        self._gone = job is None

    def wants_search(self, _now: float) -> bool:
        return True

    def is_over(self, _now: float) -> bool:
        return self._gone

    def close(self, *, ended: bool) -> None:
        self._closed.append((self.name, ended))


def a_job(name: str) -> FoundJob:
    return FoundJob(name, (FoundRank(0, 1, 1),), 1)


def watch(
    search: FakeSearch, first: tuple[FoundJob, ...], *, hangs: bool = False
) -> tuple[bool, list[tuple[str, bool]]]:
    closed: list[tuple[str, bool]] = []

    def make(job: FoundJob) -> JobWatch:
        return cast("JobWatch", FakeWatch(job, closed, hangs=hangs))

    return HostWatch(search, make).run(first), closed


def test_a_job_that_was_named_is_watched_until_it_ends() -> None:
    job = a_job("a")
    assert watch(FakeSearch((job,), (), is_open=False), (job,)) == (False, [("a", True)])


def test_jobs_that_come_later_are_watched_when_none_was_named() -> None:
    one, two = a_job("a"), a_job("b")
    _hung, closed = watch(FakeSearch((), (two,), (), is_open=True), (one,))
    assert closed == [("a", True), ("b", True)]


def test_a_hang_that_is_left_behind_is_told() -> None:
    hung, _closed = watch(FakeSearch((), is_open=False), (a_job("a"),), hangs=True)
    assert hung
