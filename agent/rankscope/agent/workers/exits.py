"""Sees workers end, in the order in which they end, without reaping them.

``pidfd_open`` works for every start method, and its readiness is the order of failures; torch's own
``ProcessFailure.timestamp`` has a resolution of one second without an error file (RECIPES.md).
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable

from rankscope.agent.workers.model import WorkerRef


class ExitWatch:
    """Owns one pidfd a worker; used by one thread. ``poll`` also wakes for ``wake_fd``."""

    def __init__(self, wake_fd: int) -> None:
        self._poller = select.poll()
        self._poller.register(wake_fd, select.POLLIN)
        self._workers: dict[int, WorkerRef] = {}
        self.times: dict[int, float] = {}
        self.codes: dict[int, int] = {}

    def watch(self, workers: Iterable[WorkerRef]) -> None:
        """Replace the watched workers; those already gone count as ended now."""
        self.close()
        self.times, self.codes = {}, {}
        for worker in workers:
            try:
                fd = os.pidfd_open(worker.pid)
            except OSError:
                self._ended(worker)
                continue
            self._workers[fd] = worker
            self._poller.register(fd, select.POLLIN)

    def poll(self, timeout: float) -> tuple[int, ...]:
        """Wait for ends or a wake-up, at most ``timeout`` seconds; the ranks that ended."""
        ended: list[int] = []
        for fd, _event in self._poller.poll(max(0.0, timeout) * 1000):
            worker = self._workers.pop(fd, None)
            if worker is None:
                continue
            self._poller.unregister(fd)
            os.close(fd)
            self._ended(worker)
            ended.append(worker.rank)
        return tuple(ended)

    def _ended(self, worker: WorkerRef) -> None:
        # New dictionaries: other threads read the old ones meanwhile.
        self.times = {**self.times, worker.rank: time.monotonic()}
        code = exit_code(worker.pid)
        if code is not None:
            self.codes = {**self.codes, worker.rank: code}

    def close(self) -> None:
        """Close all pidfds."""
        for fd in self._workers:
            self._poller.unregister(fd)
            os.close(fd)
        self._workers.clear()


def exit_code(pid: int) -> int | None:
    """The exit code of a child that has ended and was not reaped yet; it stays to be reaped.

    Returns:
        As Python has it (negative for a signal), ``None`` when it runs, was reaped, or is no child of ours.
    """
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return None
    if found is None or found.si_pid != pid:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
