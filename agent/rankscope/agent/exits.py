"""Sees workers end, in the order in which they end, without reaping them.

``pidfd_open`` works for every start method, and its readiness is the order of failures; torch's own
``ProcessFailure.timestamp`` has a resolution of one second without an error file (RECIPES.md).
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable

from rankscope.agent.workers import WorkerRef


class ExitWatch:
    """Owns one pidfd a worker; used by one thread. ``poll`` also wakes for ``wake_fd``."""

    def __init__(self, wake_fd: int) -> None:
        self._poller = select.poll()
        self._poller.register(wake_fd, select.POLLIN)
        self._ranks: dict[int, int] = {}
        self.times: dict[int, float] = {}

    def watch(self, workers: Iterable[WorkerRef]) -> None:
        """Replace the watched workers; those already gone count as ended now."""
        self.close()
        self.times = {}
        for worker in workers:
            try:
                fd = os.pidfd_open(worker.pid)
            except OSError:
                self.times[worker.rank] = time.monotonic()
                continue
            self._ranks[fd] = worker.rank
            self._poller.register(fd, select.POLLIN)

    def poll(self, timeout: float) -> tuple[int, ...]:
        """Wait for ends or a wake-up, at most ``timeout`` seconds; the ranks that ended."""
        ended: list[int] = []
        for fd, _event in self._poller.poll(max(0.0, timeout) * 1000):
            rank = self._ranks.pop(fd, None)
            if rank is None:
                continue
            self._poller.unregister(fd)
            os.close(fd)
            self.times = {**self.times, rank: time.monotonic()}
            ended.append(rank)
        return tuple(ended)

    def close(self) -> None:
        """Close all pidfds."""
        for fd in self._ranks:
            self._poller.unregister(fd)
            os.close(fd)
        self._ranks.clear()
