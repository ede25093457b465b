"""The jobs of a host that are watched: found, followed over restarts, and let go when they end.

Owns the job watches. It waits and searches; it neither observes ranks nor judges.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from rankscope.agent.beside.job import JobWatch
from rankscope.agent.beside.search import Search
from rankscope.diag.discover import FoundJob

PERIOD: Final = 5.0
"""Seconds between two searches while nothing happens: one costs some milliseconds for each 100 processes."""
CLOSE_PERIOD: Final = 0.5
"""The same while ranks end or start."""
_LOOK: Final = 0.5


class HostWatch:
    """Watches until it is stopped, or until the jobs that were named have ended.

    Args:
        search: finds the jobs.
        make: makes a watch of one that was found.

    Attributes:
        watches: those under way.
    """

    def __init__(self, search: Search, make: Callable[[FoundJob], JobWatch]) -> None:
        self._search = search
        self._make = make
        self._stopped = threading.Event()
        self._hung = False
        self.watches: list[JobWatch] = []

    def stop(self) -> None:
        """End ``run`` soon (any thread, a signal handler)."""
        self._stopped.set()

    def run(self, jobs: tuple[FoundJob, ...]) -> bool:
        """Watch, beginning with the jobs that were found; returns whether a hang is or was left behind."""
        try:
            self._take(jobs, time.monotonic())
            self._follow()
        finally:
            for watch in self.watches:
                self._let_go(watch, ended=False)
            self.watches.clear()
        return self._hung

    def _follow(self) -> None:
        searched = time.monotonic()
        while not self._stopped.wait(_LOOK):
            now = time.monotonic()
            period = CLOSE_PERIOD if any(watch.wants_search(now) for watch in self.watches) else PERIOD
            if now - searched >= period:
                self._take(self._search.jobs(), now)
                searched = now
            if not self.watches and not self._search.may_come:
                return

    def _take(self, jobs: tuple[FoundJob, ...], now: float) -> None:
        new = list(jobs)
        for watch in list(self.watches):
            found = next((job for job in new if watch.is_same(job)), None)
            if found is not None:
                new.remove(found)
            elif watch.is_assumed and new:
                # What was watched as a rank has turned out to be the launcher of these.
                self.watches.remove(watch)
                self._let_go(watch, ended=False)
                continue
            watch.update(found, now)
            if watch.is_over(now):
                self.watches.remove(watch)
                self._let_go(watch, ended=True)
        for job in new:
            watch = self._make(job)
            watch.update(job, now)
            self.watches.append(watch)

    def _let_go(self, watch: JobWatch, *, ended: bool) -> None:
        self._hung = self._hung or watch.hangs
        watch.close(ended=ended)
