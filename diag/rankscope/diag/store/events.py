"""``events.jsonl``: what happened, one CloudEvents object a line, append only, one writer.

Within a node events are in the order of their lines, and ``sequence`` says whether one is missing; their wall
clock may be set back, so durations come from ``clock`` (``seconds_between``).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import msgspec

from rankscope.diag.store.files import make_folders, read_regular

SPEC_VERSION: Final = "1.0"
TYPE_PREFIX: Final = "rankscope."
TOLD_ELSEWHERE: Final = "told_elsewhere"
"""In the data of an event of the whole job whose notices another node's agent sends."""
_SEQUENCE_DIGITS: Final = 10
_LONGEST_SEQUENCE: Final = 15
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_CANNOT_FLUSH: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EROFS})
"""What ``fdatasync`` says on file systems that have none; the line is written all the same."""


class Event(msgspec.Struct, frozen=True):
    """One event; field names are CloudEvents', two of them extensions of it.

    Attributes:
        type: ``rankscope.`` + one of the names in INTERFACES.md.
        source: node that saw it.
        subject: what it is about (an incident id, ``rank 3``), ``None`` for the job.
        sequence: number of the event on its node (CloudEvents' extension of that name: a string that sorts),
            ``""`` in files of versions before it.
        clock: boot and seconds of the node's monotonic clock, ``3f9c12ab:8123.456``, ``""`` when not known.
    """

    id: str
    source: str
    type: str
    time: str
    data: dict[str, object] = {}
    subject: str | None = None
    specversion: str = SPEC_VERSION
    sequence: str = ""
    clock: str = ""

    @property
    def name(self) -> str:
        """Its type without the prefix."""
        return self.type.removeprefix(TYPE_PREFIX)

    @property
    def number(self) -> int:
        """Its sequence as a number, 0 when it has none."""
        text = self.sequence
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_SEQUENCE else 0


_DECODER: Final = msgspec.json.Decoder(Event)


class LogContent(msgspec.Struct, frozen=True):
    """What an event log holds, and what it does not.

    Attributes:
        events: oldest first, each once.
        unreadable: numbers of the lines that are no event.
        missing: sequence numbers that no line has, first and last of each gap.
        doubts: what else of the log is not in here, a sentence each.
    """

    events: tuple[Event, ...] = ()
    unreadable: tuple[int, ...] = ()
    missing: tuple[tuple[int, int], ...] = ()
    doubts: tuple[str, ...] = ()


def iso_time(unix_seconds: float) -> str:
    """ISO 8601 in UTC with milliseconds: ``2026-11-29T16:40:00.123Z``."""
    moment = datetime.fromtimestamp(unix_seconds, tz=timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix_time(text: str) -> float | None:
    """What ``iso_time`` wrote, ``None`` for any other text."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def sequence_text(number: int) -> str:
    """A sequence number as an event has it."""
    return f"{number:0{_SEQUENCE_DIGITS}d}"


@functools.cache
def boot_name() -> str:
    """Eight characters that are the same for all processes of one boot of this host."""
    try:
        return _BOOT_ID.read_text()[:8]
    except OSError:
        return f"p{os.getpid():07d}"  # of this process at least


def clock_text(boot: str, monotonic: float) -> str:
    """A time of the monotonic clock (``time.monotonic()``) as an event has it."""
    return f"{boot}:{monotonic:.3f}"


def clock_seconds(event: Event) -> tuple[str, float] | None:
    """The boot and the seconds of an event's ``clock``, ``None`` when it has none."""
    boot, _, seconds = event.clock.partition(":")
    try:
        value = float(seconds)
    except ValueError:
        return None
    return (boot, value) if boot and 0 <= value < float("inf") else None


def seconds_between(earlier: Event, later: Event) -> float:
    """Seconds from one event of a node to a later one, at least 0.

    By the monotonic clock; by the wall clock when the host was started anew between them.
    """
    began, ended = clock_seconds(earlier), clock_seconds(later)
    if began is not None and ended is not None and began[0] == ended[0]:
        return max(0.0, round(ended[1] - began[1], 3))
    first, last = unix_time(earlier.time), unix_time(later.time)
    return max(0.0, round(last - first, 3)) if first is not None and last is not None else 0.0


class EventLog:
    """The one writer of a node's ``events.jsonl``: a line that cannot be written whole is taken back."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending.

        Raises:
            OSError: the folder cannot be written.
        """
        make_folders(path.parent)
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._fd).st_size
        # A kill tears the last line: what comes next begins a new one.
        self._torn = bool(size) and os.pread(self._fd, 1, size - 1) != b"\n"

    def is_in_place(self) -> bool:
        """Whether what is written can be found: the file was neither removed nor moved away.

        Raises:
            OSError: nobody can tell; the share is gone.
        """
        try:
            there = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        mine = os.fstat(self._fd)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def append(self, event: Event, *, flush: bool = False) -> None:
        """Write one event.

        Args:
            event: the event.
            flush: return when it is on disk, and not only with the kernel.

        Raises:
            OSError: the disk is full or gone; nothing of the event stays in the file, unless it could not be
                flushed or taken back.
        """
        line = b"\n" * self._torn + msgspec.json.encode(event) + b"\n"
        size = os.fstat(self._fd).st_size
        done = 0
        try:
            while done < len(line):
                done += os.write(self._fd, line[done:])
        except OSError:
            self._take_back(size, done)
            raise
        self._torn = False
        if flush:
            self._flush()

    def _take_back(self, size: int, written: int) -> None:
        if not written:
            return
        self._torn = True
        with contextlib.suppress(OSError):
            if os.fstat(self._fd).st_size == size + written:  # nobody else has written behind it
                os.ftruncate(self._fd, size)
                self._torn = bool(size) and os.pread(self._fd, 1, size - 1) != b"\n"

    def _flush(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            if error.errno not in _CANNOT_FLUSH:
                raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def read_events(path: Path) -> tuple[tuple[Event, ...], int]:
    """All events of a file, oldest first, each once, and how many lines could not be read.

    Raises:
        OSError: the file exists but cannot be read.
    """
    content = read_log(path)
    return content.events, len(content.unreadable)


def read_log(path: Path) -> LogContent:
    """A node's event log; a file that does not exist is an empty one.

    Raises:
        OSError: the file exists but cannot be read.
    """
    try:
        data = read_regular(path)
    except FileNotFoundError:
        return LogContent()
    return parse_log(data)


def parse_log(data: bytes) -> LogContent:
    """The content of an event log. An event that was written twice, for want of an answer, counts once.

    Numbers begin with 1; after lines of versions that had none, with the next.
    """
    try:
        events, unreadable = _DECODER.decode_lines(data), list[int]()
    except (msgspec.DecodeError, UnicodeDecodeError):
        events, unreadable = _readable(data)
    if len({event.id for event in events}) < len(events):
        once: dict[tuple[str, str, str], Event] = {}
        for event in events:
            once.setdefault((event.id, event.type, event.time), event)
        events = list(once.values())
    numbers = [event.number for event in events]
    return LogContent(tuple(events), tuple(unreadable), _gaps(numbers.count(0), filter(None, numbers)))


def _readable(data: bytes) -> tuple[list[Event], list[int]]:
    """The events of a log with lines that are none, and the numbers of these lines."""
    events: list[Event] = []
    unreadable: list[int] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            events.append(_DECODER.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            unreadable.append(number)
    return events, unreadable


def _gaps(before: int, numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    ordered = sorted({before, *numbers})
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return ()
    return tuple(
        (before + 1, after - 1) for before, after in itertools.pairwise(ordered) if after > before + 1
    )
