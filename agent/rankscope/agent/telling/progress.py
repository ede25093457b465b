"""What the workers of the present launch have got done, recorded as it grows. Any thread.

It must not know what follows from that, nor how it is read (``trained``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from rankscope.agent.observing.trained import Trained


class Record(Protocol):
    """Takes in that something has progressed (``Ledger.progressed``)."""

    def __call__(self, *, steps: int, step: int | None) -> None:
        """Record it."""
        ...


class Progress:
    """Follows one launch after the other.

    Args:
        read: tells what the present workers have got done.
        record: gets anything new of it, while they run.
    """

    def __init__(self, read: Callable[[], Trained], record: Record) -> None:
        self._read = read
        self._record = record
        self._lock = threading.Lock()
        self._known = Trained()
        self._has_stepped = False
        self._are_running = False

    @property
    def are_running(self) -> bool:
        """Whether workers run that nobody is about to stop."""
        return self._are_running

    def begin(self) -> None:
        """New workers run."""
        with self._lock:
            self._known, self._are_running = Trained(), True

    def end(self) -> None:
        """They are about to be stopped, or have ended: what they got done until now counts."""
        self.now()
        with self._lock:
            self._are_running = False

    def now(self) -> Trained:
        """What they have got done; anything new of it is recorded."""
        with self._lock:
            now = self._read()
            if now == self._known:
                return now
            self._known = now
            self._has_stepped = self._has_stepped or now.has_stepped
            is_news = now.has_moved and self._are_running
        if is_news:
            # Collectives are steps only in a job that makes no others: each launch begins with some.
            self._record(steps=now.steps if self._has_stepped else now.collectives, step=now.step)
        return now
