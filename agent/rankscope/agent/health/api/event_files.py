"""The events of all nodes of a job as one log, read on from where the last reading ended.

Its order is the one in which this process read them: by time for what was there at first, then as it comes,
so that nothing is ever put before an event that somebody has seen. Only where each event lies is kept, and
of each log what the summaries of the job are made of (``kept_events``).
"""

from __future__ import annotations

import heapq
import itertools
import operator
import os
import secrets
import time
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Final

from rankscope.agent.health.api.node_log import Entry, LogReplacedError, NodeLog
from rankscope.diag.store.events import LogContent
from rankscope.diag.store.job import JobFolder
from rankscope.diag.unhurried import without_collector

_TURN_SECONDS: Final = 2.0
"""Other questions wait meanwhile, those for the ranks too."""


def in_order(logs: Sequence[Sequence[Entry]]) -> list[Entry]:
    """The entries of all logs by time; those of one log in their order, also where its clock was set back."""
    timed = [
        list(zip(itertools.accumulate((entry.at for entry in log), max), log, strict=True)) for log in logs
    ]
    return [entry for _at, entry in heapq.merge(*timed, key=operator.itemgetter(0))]


class JobEvents:
    """The log of a job.

    Attributes:
        generation: another one whenever the order began anew.
        entries: in order.
    """

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._begin()

    def _begin(self) -> None:
        self.generation = secrets.token_hex(4)
        self.entries: list[Entry] = []
        self._places: dict[str, int] = {}
        self._logs: dict[Path, NodeLog] = {}

    def read_on(self, *, seconds: float = _TURN_SECONDS) -> bool:
        """Take in what the nodes have written since the last call.

        Args:
            seconds: that it may take; the next call goes on where this one ended.

        Returns:
            Whether all of it was taken in.
        """
        until = time.monotonic() + seconds
        with without_collector():
            try:
                self._take(self._new(until))
            except LogReplacedError:
                self._begin()
                try:
                    self._take(self._new(until))
                except LogReplacedError:  # again, in this moment: the next call reads it
                    self._begin()
                    return False
        return not any(log.has_more for log in self._logs.values())

    @property
    def state(self) -> Hashable:
        """Another one as soon as ``content`` of a log may be another one."""
        return self.generation, *((path, log.state) for path, log in self._logs.items())

    @property
    def skipped(self) -> int:
        """How many lines of all logs are no event."""
        return sum(log.skipped for log in self._logs.values())

    @property
    def progress(self) -> tuple[int, int]:
        """How much of all logs is read, and how much there is, in bytes."""
        logs = self._logs.values()
        return sum(log.read_bytes for log in logs), sum(log.size_bytes for log in logs)

    def content(self, path: Path) -> LogContent:
        """What the summaries are made of, of one node's log.

        Raises:
            OSError: it could not be read, and never has been.
        """
        log = self._logs.get(path)
        return log.content() if log is not None else LogContent()

    def _new(self, until: float) -> list[Entry]:
        for path in sorted(self._folder.path.glob("nodes/*/events.jsonl")):
            self._logs.setdefault(path, NodeLog(path, self._places))
        return in_order([log.read_on(until) for log in self._logs.values()])

    def _take(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._places[entry.id] = len(self.entries)
            self.entries.append(entry)

    def place_after(self, event_id: str) -> int | None:
        """The place behind an event, ``None`` when there is none of that id."""
        place = self._places.get(event_id)
        return None if place is None else place + 1

    def place_since(self, seconds: float) -> int:
        """The place of the first event at or after a unix time."""
        return next((at for at, entry in enumerate(self.entries) if entry.at >= seconds), len(self.entries))

    def lines(self, first: int, count: int) -> list[tuple[Entry, str]]:
        """Events with their stored lines; those whose file is gone are left out."""
        found: list[tuple[Entry, str]] = []
        files: dict[Path, int] = {}
        try:
            for entry in self.entries[first : first + count]:
                if entry.path not in files:
                    files[entry.path] = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                line = os.pread(files[entry.path], entry.size, entry.offset)
                found.append((entry, line.decode("utf-8", "replace")))
        except OSError:
            pass  # it was removed meanwhile: the next reading begins anew
        finally:
            for fd in files.values():
                os.close(fd)
        return found
