"""The collector thread: evidence is taken here, one job after the other, so that the watch's ticks go on.

It does not know what a job does. A job that waits for itself to be interrupted (samples over seconds) makes
room for an urgent one, such as the evidence of a worker that is raising and waits two seconds at most.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


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

    def pause(self, seconds: float) -> bool:
        """Wait inside a job; answers whether the job should end with what it has."""
        return self._urgent.wait(seconds)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._jobs.empty():
                self._urgent.clear()
            try:
                job()
            except Exception:
                logger.exception("rankscope could not take evidence; training is untouched")
