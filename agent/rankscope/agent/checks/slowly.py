"""A look that may block for ever, taken again and again in a thread of its own; whoever asks never waits."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")
LATE_AFTER: Final = 10.0


class Slowly(Generic[T]):
    """Owner of one thread.

    Args:
        look: what may block.
        interval: seconds between two looks.
        name: of the thread.
    """

    def __init__(self, look: Callable[[], T], interval: float, *, name: str) -> None:
        self._look = look
        self._interval = interval
        self._stopping = threading.Event()
        self._found: list[T] = []
        self._since: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def latest(self) -> T | None:
        """What was found last, ``None`` before the first."""
        found = self._found
        return found[-1] if found else None

    def late(self, now: float) -> float | None:
        """For how many seconds the present look has been blocked, ``None`` while that is nothing unusual."""
        since = self._since
        return now - since if since is not None and now - since > LATE_AFTER else None

    def close(self, timeout: float) -> None:
        """End the thread; one that is blocked is left, and ends with its look or with the process."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._since = time.monotonic()
            try:
                self._found = [self._look()]
            except Exception:  # the thread's edge
                logger.exception("rankscope could not take a look; training is untouched")
            self._since = None
            self._stopping.wait(self._interval)
