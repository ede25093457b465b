"""Stops the processes of a running job by SIGSTOP for a while, as a batch system does, and continues them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

from tests.jobs import Job, until

from rankscope.diag import proc

_PATIENCE = 60.0


def pause_everything(job: Job, *, after: str, seconds: float) -> None:
    """Stop the agent and all that descends from it once the job has printed ``after``."""
    _wait_for_line(job, after)
    _pause([job.pid, *proc.descendants(job.pid)], seconds)


def pause_workers(job: Job, *, after: str, seconds: float) -> None:
    """The same for the workers alone."""
    _wait_for_line(job, after)
    _pause([worker.pid for worker in job.agent().workers], seconds)


def _wait_for_line(job: Job, text: str) -> None:
    until(lambda: text in job.stdout, f"the job to print {text!r}", seconds=_PATIENCE)


def _pause(pids: Iterable[int], seconds: float) -> None:
    stopped: list[int] = []
    try:
        stopped.extend(pid for pid in pids if _signal(pid, signal.SIGSTOP))
        time.sleep(seconds)
    finally:
        for pid in stopped:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False
