"""The processes of a trial's job: which of them is a rank, and that none of them outlives it.

A job is known by its run id in the environment, however its processes were started: workers are in sessions
of their own, and what a worker leaves behind belongs to init.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress

from tests.jobs import Job, until

from rankscope.diag import proc

_PATIENCE = 60.0


def pid_of(job: Job, rank: int, *, seconds: float = _PATIENCE) -> int:
    """The worker with that rank, waited for; under ``diag run`` and under torchrun alike."""
    until(lambda: rank in pids_of(job), f"rank {rank} to be started", seconds=seconds)
    return pids_of(job)[rank]


def pids_of(job: Job) -> dict[int, int]:
    """The workers by rank: the launcher's children that have one."""
    found: dict[int, int] = {}
    for pid in proc.children(job.pid):
        environ = proc.environ(pid) or {}
        if environ.get("TORCHELASTIC_RUN_ID") == job.run_id and environ.get("RANK", "").isdecimal():
            found[int(environ["RANK"])] = pid
    return found


@contextmanager
def nobody_left(job: Job) -> Generator[None]:
    """End a started job with all its processes, whatever became of them; when it returns, they are gone.

    Raises:
        AssertionError: one of them could not be ended in time: what comes next would be measured beside it.
    """
    try:
        yield
    finally:
        below = {pid: proc.start_ticks(pid) for pid in proc.descendants(job.pid)}
        job.end()
        left = {pid: born for pid, born in below.items() if _runs(pid, born)}
        for pid in proc.process_table():  # what has another parent by now
            if (proc.environ(pid) or {}).get("TORCHELASTIC_RUN_ID") == job.run_id:
                left[pid] = proc.start_ticks(pid)
        for pid in left:
            _kill(pid)
        until(
            lambda: not any(_runs(pid, born) for pid, born in left.items()),
            f"processes {sorted(left)} of {job.run_id} to end",
            seconds=_PATIENCE,
        )


def _runs(pid: int, born: int | None) -> bool:
    """Whether it is still there; one that has ended and that nobody has asked after is not."""
    facts = proc.read_facts(pid, now=0.0)
    return facts is not None and facts.start_ticks == born and facts.state not in ("Z", "X")


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
