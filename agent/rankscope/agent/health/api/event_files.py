"""The events of all nodes of a job as one log, read on from where the last reading ended.

Its order is the one in which this process read them: by time for what was there at first, then as it comes,
so that nothing is ever put before an event that somebody has seen. Only where each event lies is kept.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from rankscope.diag.store.events import Event, unix_time
from rankscope.diag.store.job import JobFolder

_CHUNK: Final = 4 << 20
_LONGEST_LINE: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one event lies."""

    id: str
    name: str
    at: float
    path: Path
    offset: int
    size: int


class _LogReplacedError(Exception):
    """A log is not the file any more that was read before."""


class _Log:
    """One node's ``events.jsonl``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self.has_more = False

    def read_on(self, until: float) -> list[Entry]:
        """What came since the last call; a last line without its end is left for the next.

        Args:
            until: ``time.monotonic()`` at which it stops, with ``has_more`` set.

        Raises:
            _LogReplacedError: see there.
        """
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            if self._identity is not None:
                raise _LogReplacedError from None
            return []
        except OSError:
            return []  # a share that is away: what comes later is read later
        try:
            return self._read_on(fd, until)
        except OSError:
            return []
        finally:
            os.close(fd)

    def _read_on(self, fd: int, until: float) -> list[Entry]:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return []
        identity = (found.st_dev, found.st_ino)
        if self._identity not in (None, identity) or found.st_size < self._offset:
            raise _LogReplacedError
        self._identity = identity
        entries: list[Entry] = []
        self.has_more = False
        while self._offset < found.st_size:
            if time.monotonic() >= until:
                self.has_more = True
                break
            data = os.pread(fd, _CHUNK, self._offset)
            end = data.rfind(b"\n") + 1
            if not end:
                data = os.pread(fd, _LONGEST_LINE, self._offset)
                end = data.rfind(b"\n") + 1
            if not end:
                break
            entries += self._entries(data[:end], self._offset)
            self._offset += end
        return entries

    def _entries(self, data: bytes, offset: int) -> list[Entry]:
        entries: list[Entry] = []
        for line in data.split(b"\n"):
            size = len(line)
            try:
                event = _DECODER.decode(line) if line.strip() else None
            except (msgspec.DecodeError, UnicodeDecodeError):
                event = None  # torn by a kill or a full disk
            if event is not None:
                at = unix_time(event.time) or 0.0
                entries.append(Entry(event.id, event.name, at, self._path, offset, size))
            offset += size + 1
        return entries


_DECODER: Final = msgspec.json.Decoder(Event)


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
        self._logs: dict[Path, _Log] = {}

    def read_on(self, *, seconds: float = 5.0) -> bool:
        """Take in what the nodes have written since the last call.

        Args:
            seconds: that it may take; the next call goes on where this one ended.

        Returns:
            Whether all of it was taken in.
        """
        until = time.monotonic() + seconds
        try:
            self._take(self._new(until))
        except _LogReplacedError:
            self._begin()
            try:
                self._take(self._new(until))
            except _LogReplacedError:  # again, in this moment: the next call reads it
                self._begin()
                return False
        return not any(log.has_more for log in self._logs.values())

    def _new(self, until: float) -> list[Entry]:
        for path in sorted(self._folder.path.glob("nodes/*/events.jsonl")):
            self._logs.setdefault(path, _Log(path))
        new = [entry for log in self._logs.values() for entry in log.read_on(until)]
        return sorted(new, key=lambda entry: entry.at)

    def _take(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.id not in self._places:  # written twice, for want of an answer
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
