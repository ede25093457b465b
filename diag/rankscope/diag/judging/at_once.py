"""Looks at several jobs at the same time: each look takes seconds, mostly of waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rankscope.diag.discover.found import FoundJob

_Answer = TypeVar("_Answer")


def at_once(
    jobs: Sequence[FoundJob], task: Callable[[FoundJob, threading.Event], _Answer]
) -> Sequence[_Answer]:
    """The task's answer for each job, in their order.

    Args:
        jobs: at least one.
        task: is given a job, and an event that is set when the user has given up (Ctrl-C).
    """
    stop = threading.Event()
    if len(jobs) == 1:
        return [task(jobs[0], stop)]
    with ThreadPoolExecutor(max_workers=len(jobs)) as pool:
        try:
            return list(pool.map(lambda job: task(job, stop), jobs))
        except BaseException:  # Ctrl-C above all: whatever it was, it is raised again
            stop.set()
            raise
