"""``events.jsonl``: what happened, one CloudEvents object a line, append only, one writer."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import msgspec

SPEC_VERSION: Final = "1.0"
TYPE_PREFIX: Final = "rankscope."


class Event(msgspec.Struct, frozen=True):
    """One event; field names are CloudEvents'.

    Attributes:
        type: ``rankscope.`` + one of the names in INTERFACES.md.
        source: node that saw it.
        subject: what it is about (an incident id, ``rank 3``), ``None`` for the job.
    """

    id: str
    source: str
    type: str
    time: str
    data: dict[str, object] = {}
    subject: str | None = None
    specversion: str = SPEC_VERSION


def iso_time(unix_seconds: float) -> str:
    """ISO 8601 in UTC with milliseconds: ``2026-11-29T16:40:00.123Z``."""
    moment = datetime.fromtimestamp(unix_seconds, tz=timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class EventLog:
    """The one writer of a node's ``events.jsonl``: one ``write`` a line, a kill tears only the last."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending.

        Raises:
            OSError: the folder cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")

    def append(self, event: Event) -> None:
        """Write one event.

        Raises:
            OSError: the disk is full or gone.
        """
        line = msgspec.json.encode(event) + b"\n"
        written = os.write(self._fd, line)
        if written != len(line):
            os.write(self._fd, b"\n")
            raise OSError(f"only {written} of {len(line)} bytes written")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def read_events(path: Path) -> tuple[tuple[Event, ...], int]:
    """All events of a file, oldest first, and how many lines could not be read.

    Raises:
        OSError: the file exists but cannot be read.
    """
    events: list[Event] = []
    unreadable = 0
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return (), 0
    decoder = msgspec.json.Decoder(Event)
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            events.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            unreadable += 1
    return tuple(events), unreadable
