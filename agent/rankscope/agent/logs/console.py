"""The drain's thread that shows workers' output on one of the agent's own streams.

Bytes are passed on untouched and, within one stream, in order. Lines of several ranks are not torn where a
rest of a line arrives within ``hold`` seconds. A console that lags catches up from the log file; one that
lags too far misses the oldest bytes and says how many; one that is blocked blocks this thread only, and in
small writes, so that others can see whether it still takes anything. The descriptor is shared with the shell
and others, so its flags are never changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rankscope.agent.logs import fifos
from rankscope.agent.logs.counters import Counters
from rankscope.agent.logs.stream import Limits, Stream

_CHUNK_BYTES: Final = 64 * 1024
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_NEWLINE: Final = ord("\n")
_RETRY: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Piece:
    """What to show next: ``filed`` bytes of the file, then those from memory."""

    stream: Stream
    at: int
    filed: int
    data: bytes


class Console:
    """Shows the streams given to it on descriptor ``fd``; owns the thread ``rankscope-console-<fd>``.

    Attributes:
        streams: those it shows.
        taken_bytes: what the descriptor has taken so far.
        alive: False once the descriptor cannot be written any more.
    """

    def __init__(
        self,
        fd: int,
        work: threading.Condition,
        counters: Counters,
        limits: Limits,
        say: Callable[[str], None],
    ) -> None:
        """Prepare the thread.

        Args:
            fd: the descriptor, left open and with its flags as they are.
            work: the drain's lock and its condition, notified when streams have grown.
            counters: where to leave off for a next drain.
            limits: how much may wait, and how long.
            say: gets one line for what a person should know.

        Raises:
            OSError: the descriptor is closed.
        """
        self._work = work
        self.streams: list[Stream] = []
        self.taken_bytes = 0
        self.alive = True
        self._fd = fd
        self._counters = counters
        self._limits = limits
        self._say = say
        self._mode = os.fstat(fd).st_mode
        self._skipped: dict[Stream, int] = {}
        self._line_begins = True
        self._full_said = False
        self._thread = threading.Thread(target=self._run, name=f"rankscope-console-{fd}", daemon=True)

    def start(self) -> None:
        """Start the thread; it ends with the process, or with the console."""
        self._thread.start()

    def add(self, stream: Stream) -> None:
        """Take on a stream; the lock is held."""
        if self.alive:
            self.streams.append(stream)
        else:
            stream.has_console = False

    def remove(self, stream: Stream) -> None:
        """Forget a stream that is done; the lock is held."""
        if stream in self.streams:
            self.streams.remove(stream)
        self._skipped.pop(stream, None)

    def _run(self) -> None:
        try:
            while True:
                with self._work:
                    while (piece := self._next(time.monotonic())) is None:
                        self._work.wait(self._limits.hold if any(map(_held, self.streams)) else None)
                self._show(piece)
        except OSError as error:
            self._end(error.strerror or str(error))

    def _end(self, reason: str) -> None:
        with self._work:
            self.alive = False
            for stream in self.streams:
                stream.has_console = False
                stream.trim(self._limits)
            self.streams.clear()
        self._say(f"workers' output is no longer shown: {reason}; it goes on into the log files")

    def _next(self, now: float) -> _Piece | None:
        for position, stream in enumerate(self.streams):
            piece = None if stream.unplaced or not stream.unshown_bytes else self._piece(stream, now)
            if piece is not None:
                # Every rank has its turn.
                self.streams.append(self.streams.pop(position))
                return piece
        return None

    def _piece(self, stream: Stream, now: float) -> _Piece | None:
        backlog = self._limits.backlog_bytes
        if stream.unshown_bytes > backlog:
            # A quarter more than must be, so that not every piece of a flood is preceded by a note.
            self._skip(stream, stream.total - backlog * 3 // 4)
        in_file = min(stream.base, stream.filed) - stream.shown
        if in_file > 0 and stream.file_fd >= 0:
            # The line with which that ends may go on in memory.
            size = min(_CHUNK_BYTES, in_file)
            rest = stream.read(stream.base, _CHUNK_BYTES - size) if stream.base <= stream.filed else b""
            return _Piece(stream, stream.shown, size, rest)
        self._skip(stream, stream.base)
        data = stream.read(stream.shown, _CHUNK_BYTES)
        whole = _whole_lines(data)
        if whole:
            data = data[:whole]
        elif stream.shown + len(data) == stream.total and not self._may_break(stream, now):
            return None
        return _Piece(stream, stream.shown, 0, data)

    def _may_break(self, stream: Stream, now: float) -> bool:
        if stream.ended:
            return True
        if stream.more:
            return False
        if stream.tail_since is None:
            stream.tail_since = now
        return now - stream.tail_since >= self._limits.hold

    def _skip(self, stream: Stream, to: int) -> None:
        if to > stream.shown:
            self._skipped[stream] = self._skipped.get(stream, 0) + to - stream.shown
            stream.shown = to

    def _show(self, piece: _Piece) -> None:
        stream = piece.stream
        data = self._from_file(piece) if piece.filed else piece.data
        try:
            if stream in self._skipped:
                self._put(self._note(stream))
            self._put(data)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._wait_for_room(stream, piece.at + len(data), error)
            return
        with self._work:
            self._skipped.pop(stream, None)
            # Below `shown` there may be nothing to move: a file cut short by somebody was skipped.
            self._advance(stream, max(stream.shown, piece.at + len(data)))

    def _advance(self, stream: Stream, to: int) -> None:
        stream.shown = to
        stream.tail_since = None
        stream.trim(self._limits)
        if stream.file_fd >= 0:
            self._counters.set_shown(stream.slot, max(0, stream.origin + stream.shown))

    def _from_file(self, piece: _Piece) -> bytes:
        stream = piece.stream
        try:
            data = os.pread(stream.file_fd, piece.filed, stream.origin + piece.at)
        except OSError:
            data = b""
        if not data:
            with self._work:
                self._skip(stream, stream.base)
            return data
        if len(data) == piece.filed:
            data += piece.data
        return data[: _whole_lines(data) or None]

    def _wait_for_room(self, stream: Stream, to: int, error: OSError) -> None:
        if not self._full_said:
            self._full_said = True
            self._say(
                f"workers' output is not shown for now: {error.strerror}; it goes on into the log files"
            )
        with self._work:
            self._skip(stream, to)
            self._advance(stream, stream.shown)
            self._work.wait(_RETRY)

    def _note(self, stream: Stream) -> bytes:
        kept = (
            f"not kept, {stream.file} could not be written"
            if stream.file_failed
            else f"complete in {stream.file}"
        )
        start = "" if self._line_begins else "\n"
        text = f"{start}[rankscope: {self._skipped[stream]} bytes of output not shown, {kept}]\n"
        return text.encode("utf-8", "surrogateescape")

    def _put(self, data: bytes) -> None:
        view, at = memoryview(data), 0
        while at < len(data):
            try:
                written = os.write(self._fd, view[at : self._end_of_write(data, at)])
            except BlockingIOError:
                # Somebody else made the shared descriptor non-blocking.
                waiting = select.poll()
                waiting.register(self._fd, select.POLLOUT)
                waiting.poll()
                continue
            self.taken_bytes += written
            at += written
            self._line_begins = data[at - 1] == _NEWLINE

    def _end_of_write(self, data: bytes, at: int) -> int:
        end = at + self._room()
        if end >= len(data):
            return len(data)
        # Somebody else's output comes between two writes: not into the middle of a line.
        return data.rfind(b"\n", at, end) + 1 or end

    def _room(self) -> int:
        """Bytes that one write may have: a blocking one returns when all of them are taken."""
        if stat.S_ISREG(self._mode):
            return _CHUNK_BYTES
        if stat.S_ISFIFO(self._mode) and not fifos.waiting_bytes(self._fd):
            return min(_CHUNK_BYTES, fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ))
        return select.PIPE_BUF


def _whole_lines(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def _held(stream: Stream) -> bool:
    return stream.tail_since is not None
