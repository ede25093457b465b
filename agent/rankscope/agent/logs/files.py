"""The drain's thread that appends to the workers' files: a slow or hanging disk stops this thread only.

A file that cannot be opened or written is given up once and for all, and that is said once; its stream goes
on being read and shown. Knows nothing of pipes, consoles or the agent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from rankscope.agent.logs.counters import Counters
from rankscope.agent.logs.stream import Limits, Stream

_CHUNK_BYTES: Final = 256 * 1024


class FileWriter:
    """Appends each stream's bytes to its file, in order; owns the thread ``rankscope-files``.

    Attributes:
        operations: files opened and writes done so far, so that others can see that it moves.
    """

    def __init__(
        self, work: threading.Condition, counters: Counters, limits: Limits, say: Callable[[str], None]
    ) -> None:
        """Prepare the thread.

        Args:
            work: the drain's lock and its condition, notified when streams have grown.
            counters: where earlier drains left off.
            limits: how much may wait.
            say: gets one line for what a person should know.
        """
        self.operations = 0
        self._work = work
        self._counters = counters
        self._limits = limits
        self._say = say
        self._streams: list[Stream] = []
        self._current: Stream | None = None
        self._thread = threading.Thread(target=self._run, name="rankscope-files", daemon=True)

    def start(self) -> None:
        """Start the thread; it ends with the process."""
        self._thread.start()

    def add(self, stream: Stream) -> None:
        """Take on a stream; the lock is held."""
        self._streams.append(stream)

    def remove(self, stream: Stream) -> None:
        """Close the file of a stream that is done; the lock is held."""
        self._streams.remove(stream)
        if stream is not self._current:
            _close_file(stream)

    def give_up(self, stream: Stream, reason: str) -> None:
        """Stop writing the stream's file; the lock is held."""
        if not stream.file_failed:
            stream.file_failed = True
            stream.trim(self._limits)
            self._say(f"log file {stream.file} is no longer written: {reason}; the worker runs on")

    def _run(self) -> None:
        while True:
            with self._work:
                while (stream := self._next()) is None:
                    self._work.wait()
                data = stream.read(stream.filed, _CHUNK_BYTES)
                self._current = stream
            self._write(stream, data)
            with self._work:
                self._current = None
                if stream not in self._streams:
                    _close_file(stream)

    def _next(self) -> Stream | None:
        for position, stream in enumerate(self._streams):
            if stream.unfiled_bytes or stream.unplaced:
                # Every rank has its turn.
                self._streams.append(self._streams.pop(position))
                return stream
        return None

    def _write(self, stream: Stream, data: bytes) -> None:
        try:
            if stream.file_fd < 0:
                self._open(stream)
            written = os.write(stream.file_fd, data) if data else 0
        except OSError as error:
            with self._work:
                self.give_up(stream, error.strerror or str(error))
            return
        with self._work:
            self.operations += 1
            stream.filed += written
            stream.trim(self._limits)

    def _open(self, stream: Stream) -> None:
        # Readable too: a console that lags catches up from here.
        fd = os.open(stream.file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        size = os.fstat(fd).st_size
        with self._work:
            self.operations += 1
            stream.file_fd, stream.origin = fd, size
            if stream.resumed:
                stream.shown = min(0, self._counters.shown_to(stream.slot) - size)
                self._work.notify_all()
            else:
                self._counters.set_shown(stream.slot, size + stream.shown)


def _close_file(stream: Stream) -> None:
    if stream.file_fd >= 0:
        os.close(stream.file_fd)
        stream.file_fd = -1
