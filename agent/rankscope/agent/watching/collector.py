"""The collector thread: evidence is taken here, one job after the other, so that the watch's ticks go on.

It does not know what a job does. A job that waits for itself to be interrupted (samples over seconds) makes
room for an urgent one, such as the evidence of a worker that is raising and waits two seconds at most.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)
_GLANCE: Final = 0.1
"""Seconds between two glances at a second event, while one is waited for."""


class Collector:
    """Owner of the thread ``rankscope-collect``."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._urgent = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-collect", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread after the job in hand, or give up on a job that does not end in ``timeout`` s."""
        self._urgent.set()
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def put(self, job: Callable[[], None], *, urgent: bool = False) -> None:
        """Do ``job`` after those that were put before; an urgent one cuts a waiting job short."""
        self._jobs.put(job)
        if urgent:
            self._urgent.set()

    def pause(self, seconds: float, give_way: threading.Event | None = None) -> bool:
        """Wait inside a job; answers whether the job should end with what it has.

        Args:
            seconds: to wait.
            give_way: what cuts the job short too, beside an urgent one.
        """
        if give_way is None:
            return self._urgent.wait(seconds)
        until = time.monotonic() + seconds
        while not give_way.is_set():
            left = until - time.monotonic()
            if self._urgent.wait(max(0.0, min(left, _GLANCE))):
                return True
            if left <= _GLANCE:
                return False
        return True

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._jobs.empty():
                self._urgent.clear()
            try:
                job()
            except Exception:  # the edge of one job of the thread
                logger.exception("rankscope could not take evidence; training is untouched")
