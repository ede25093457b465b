"""One captured stream inside the drain: the bytes still in memory, and how far file and console have come.

Everything is counted in bytes since this drain began to read the stream. The file and the console each take
the bytes at their own pace; what neither needs any more leaves memory. No thread, no clock, no I/O here:
the drain's lock is held around every call.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may wait, and how long.

    Attributes:
        kept_bytes: a stream's newest bytes that stay in memory for a console that lags, file or no file.
        memory_bytes: most bytes of a stream that wait in memory for a file (then the pipe is left to fill,
            for ``stall`` seconds at most) or, when there is no file, for the console (then the oldest go).
        backlog_bytes: most bytes of a stream that a lagging console catches up with from the file.
        hold: seconds that the console waits for the rest of a line.
        stall: seconds without any progress of the files after which a full stream gives its file up.
        stuck: seconds after which a drain that leaves pipes unread is replaced.
        linger: seconds that a console without agent may take for the rest, once all workers have closed.
        console_idle: seconds without a byte taken after which, at the end, a console's rest is given up.
    """

    kept_bytes: int = MIB
    memory_bytes: int = 16 * MIB
    backlog_bytes: int = 256 * MIB
    hold: float = 0.05
    stall: float = 5.0
    stuck: float = 5.0
    linger: float = 5.0
    console_idle: float = 30.0

    def to_dict(self) -> dict[str, float]:
        """The limits as the drain's command line takes them."""
        return asdict(self)


class Stream:
    """Bytes of one stream and the places that file and console have reached.

    Attributes:
        slot: of the counters.
        fifo: path of the pipe, fd its reading end.
        file: where the bytes go; file_fd is -1 until it is open, origin its size at that time.
        file_failed: the file is given up; ``filed`` bytes are in it.
        filed: bytes of this drain in the file.
        has_console: whether the bytes are shown too.
        shown: bytes that the console is done with; below zero when the drain before left some unshown.
        tail_since: since when the console has held back an unfinished line, None when it does not.
        more: the last read did not empty the pipe, the rest of a line is about to come.
        resumed: a drain before this one has read the stream.
        ended: all writers have closed.
    """

    def __init__(self, *, slot: int, fifo: str, fd: int, file: str, has_console: bool, resumed: bool) -> None:
        self.slot = slot
        self.fifo = fifo
        self.fd = fd
        self.file = file
        self.file_fd = -1
        self.file_failed = False
        self.origin = 0
        self.filed = 0
        self.has_console = has_console
        self.resumed = resumed
        self.shown = 0
        self.tail_since: float | None = None
        self.more = False
        self.ended = False
        self.base = 0
        self._buffer = bytearray()

    @property
    def total(self) -> int:
        """Bytes read from the pipe."""
        return self.base + len(self._buffer)

    @property
    def unfiled_bytes(self) -> int:
        """Bytes that still have to go into the file."""
        return 0 if self.file_failed else self.total - self.filed

    @property
    def unshown_bytes(self) -> int:
        """Bytes that still have to go onto the console."""
        return self.total - self.shown if self.has_console else 0

    @property
    def unplaced(self) -> bool:
        """Whether it is not known yet where in the file the drain before stopped to show."""
        return self.resumed and self.file_fd < 0 and not self.file_failed

    @property
    def done(self) -> bool:
        """Whether nothing is left to do for this stream, now or later."""
        return self.ended and not self.unfiled_bytes and not self.unshown_bytes

    def append(self, data: bytes) -> None:
        """Take what was read from the pipe."""
        self._buffer += data

    def read(self, at: int, size: int) -> bytes:
        """Bytes in memory from ``at`` (not below ``base``), at most ``size``."""
        start = at - self.base
        with memoryview(self._buffer) as view:
            return bytes(view[start : start + size])

    def trim(self, limits: Limits) -> None:
        """Let go of what nobody needs, and of the oldest where the limit says so."""
        needed_by_console = self.shown if self.has_console else self.total
        if self.file_failed:
            floor = max(needed_by_console, self.total - limits.memory_bytes)
        else:
            floor = min(self.filed, max(needed_by_console, self.total - limits.kept_bytes))
        if floor > self.base:
            del self._buffer[: floor - self.base]
            self.base = floor
