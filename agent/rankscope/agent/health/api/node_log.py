"""One node's event log, read on from where the last reading ended: where events lie, what is kept of them.

A line that is too long to be an event is passed over, however long it is; a last line without its end is left
for the next reading. What several logs make together is not known here.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from rankscope.agent.health.api.kept_events import KeptEvents
from rankscope.diag.store.events import Event, LogContent, unix_time

_CHUNK: Final = 4 << 20
_LONGEST_LINE: Final = 8 << 20
_NOWHERE: Final = -1
_DECODER: Final = msgspec.json.Decoder(Event)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one event lies."""

    id: str
    name: str
    at: float
    path: Path
    offset: int
    size: int


class LogReplacedError(Exception):
    """A log is not the file any more that was read before."""


class NodeLog:
    """One node's ``events.jsonl``.

    Args:
        path: of the file.
        places: ids of all events of the job; those of new ones are put in, their places come later.

    Attributes:
        has_more: whether the last call ended before the log did.
        read_bytes: how far it is read.
        size_bytes: of the log.
    """

    def __init__(self, path: Path, places: dict[str, int]) -> None:
        self._path = path
        self._places = places
        self._identity: tuple[int, int] | None = None
        self._kept = KeptEvents()
        self._lines = 0
        self._is_skipping = False
        self._trouble: OSError | None = None
        self.has_more = False
        self.read_bytes = 0
        self.size_bytes = 0

    @property
    def state(self) -> Hashable:
        """Another one as soon as ``content`` may be another one."""
        return self.read_bytes, self.size_bytes, self._trouble and self._trouble.errno

    @property
    def skipped(self) -> int:
        """How many of its lines are no event."""
        return self._kept.skipped

    def content(self) -> LogContent:
        """What the summaries are made of.

        Raises:
            OSError: it could not be read, and never has been.
        """
        if self._trouble is not None and not self._lines:
            raise self._trouble
        has_tail = self.read_bytes < self.size_bytes or self._is_skipping
        content = self._kept.content(torn_line=self._lines + 1 if has_tail else None)
        if self._trouble is None:
            return content
        why = f"{self._trouble.strerror or self._trouble}; what came since it was last read is not known"
        return msgspec.structs.replace(content, doubts=(*content.doubts, why))

    def read_on(self, until: float) -> list[Entry]:
        """What came since the last call; a last line without its end is left for the next.

        Args:
            until: ``time.monotonic()`` at which it stops, with ``has_more`` set.

        Raises:
            LogReplacedError: see there.
        """
        self.has_more = False
        self._trouble = None
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            if self._identity is not None:
                raise LogReplacedError from None
            return []
        except OSError as error:
            self._trouble = error  # a share that is away: what comes later is read later
            return []
        entries: list[Entry] = []
        try:
            self._read_on(fd, until, entries)
        except OSError as error:
            self._trouble = error
        finally:
            os.close(fd)
        return entries

    def _read_on(self, fd: int, until: float, entries: list[Entry]) -> None:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        identity = (found.st_dev, found.st_ino)
        if self._identity not in (None, identity) or found.st_size < self.read_bytes:
            raise LogReplacedError
        self._identity = identity
        self.size_bytes = found.st_size
        while self.read_bytes < found.st_size:
            if time.monotonic() >= until:
                self.has_more = True
                break
            data = os.pread(fd, _CHUNK, self.read_bytes)
            if b"\n" not in data:
                data = os.pread(fd, _LONGEST_LINE, self.read_bytes)
            if not self._take(data, entries):
                break

    def _take(self, data: bytes, entries: list[Entry]) -> bool:
        """Take in a piece of the file; whether anything could be taken in."""
        end = data.rfind(b"\n") + 1
        if self._is_skipping or (not end and len(data) >= _LONGEST_LINE):
            return self._skip(data)
        if not end:
            return False
        entries += self._entries(data[:end], self.read_bytes)
        self.read_bytes += end
        return True

    def _skip(self, data: bytes) -> bool:
        """Pass over a line that is too long to be an event, or what there is of it."""
        end = data.find(b"\n") + 1
        self._is_skipping = not end
        if end:
            self._lines += 1
            self._kept.unreadable(self._lines, too_long=True)
        self.read_bytes += end or len(data)
        return bool(data)

    def _entries(self, data: bytes, offset: int) -> list[Entry]:
        entries: list[Entry] = []
        for line in data.split(b"\n")[:-1]:
            size = len(line)
            self._lines += 1
            event = self._event(line)
            if event is not None and event.id not in self._places:  # else it was written twice
                self._places[event.id] = _NOWHERE
                self._kept.take(event, size)
                at = unix_time(event.time) or 0.0
                entries.append(Entry(event.id, sys.intern(event.name), at, self._path, offset, size))
            offset += size + 1
        return entries

    def _event(self, line: bytes) -> Event | None:
        if not line.strip():
            return None
        try:
            return _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._kept.unreadable(self._lines)  # torn by a kill or a full disk
            return None
