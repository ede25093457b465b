"""The events of one agent on their way to ``events.jsonl``: numbered, in order, kept while there is no room.

An event counts as stored when ``write`` has come back. One that could not be written waits in memory, and
those after it wait behind it. Past a bound the least needed are given up; their numbers are missing in the
file, so that a reader sees it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from rankscope.diag.store.events import TYPE_PREFIX, Event, EventLog, read_log, sequence_text

LONGEST: Final = 1000
"""Events kept in memory: half a megabyte, and more than a job has in a day of ordinary trouble."""
_FLUSHED: Final = frozenset(
    TYPE_PREFIX + name
    for name in (
        "cycle.ended",
        "cycle.started",
        "cycle.training",
        "decision",
        "job.ended",
        "job.started",
        "restart",
        "restart.begun",
        "worker.failed",
    )
)
"""What counters are made of is on disk before anything is done about it."""
_FIRST_TO_GO: Final = frozenset(
    TYPE_PREFIX + name for name in ("cleared", "message", "settings.changed", "slow", "suspected")
)


class EventQueue:
    """Thread-safe; ``open``, ``write`` and ``close`` are for the one thread that touches the disk.

    Args:
        path: the event log.
        longest: events kept in memory.

    Attributes:
        earlier: what the log held when it was opened.
        on_removed: called when the log was removed while it was written to; what was in it is gone.
    """

    def __init__(self, path: Path, *, longest: int = LONGEST) -> None:
        self._path = path
        self._longest = longest
        self._lock = threading.Lock()
        self._waiting: deque[Event] = deque()
        self._next = 1
        self._log: EventLog | None = None
        self.earlier: tuple[Event, ...] = ()
        self.on_removed: Callable[[Path], None] = lambda _path: None

    @property
    def waiting(self) -> int:
        """How many events are not on disk."""
        return len(self._waiting)

    def unwritten(self) -> tuple[Event, ...]:
        """Those that are not on disk, oldest first."""
        with self._lock:
            return tuple(self._waiting)

    def open(self) -> None:
        """Open the log, and go on with its numbers.

        Raises:
            OSError: it cannot be read or written.
        """
        earlier = read_log(self._path).events
        self._log = EventLog(self._path)
        self.earlier = earlier
        numbers = [event.number for event in earlier]
        base = max(numbers, default=0) or len(earlier)
        with self._lock:
            self._next += base
            for _ in range(len(self._waiting)):
                event = self._waiting.popleft()
                self._waiting.append(_numbered(event, event.number + base))

    def put(self, event: Event) -> Event:
        """Take an event; returns it with its number."""
        with self._lock:
            event = _numbered(event, self._next)
            self._next += 1
            self._waiting.append(event)
            if len(self._waiting) > self._longest:
                self._give_one_up()
            return event

    def write(self) -> None:
        """Write all that wait, oldest first.

        Raises:
            OSError: one could not be written; it and those after it still wait.
        """
        if self._log is None:
            self.open()
        elif not self._log.is_in_place():
            # A line in a file that nobody can find is none. Numbers go on: a reader sees what is missing.
            removed, self._log = self._log, EventLog(self._path)
            removed.close()
            self.on_removed(self._path)
        while self._log is not None and (event := self._first()) is not None:
            self._log.append(event, flush=event.type in _FLUSHED)
            with self._lock:
                # While it was written, it may have been given up for want of room.
                if self._waiting and self._waiting[0] is event:
                    self._waiting.popleft()

    def _first(self) -> Event | None:
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def _give_one_up(self) -> None:
        for event in self._waiting:
            if event.type in _FIRST_TO_GO:
                self._waiting.remove(event)
                return
        self._waiting.popleft()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None


def _numbered(event: Event, number: int) -> Event:
    return msgspec.structs.replace(event, sequence=sequence_text(number))
