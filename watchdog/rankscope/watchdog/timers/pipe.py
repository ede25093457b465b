"""The server's end of the named pipe: made whole, told apart from torch's by a lock, never at its end.

It knows lines only as bytes. The pipe appears under its name in one step, with a reader already there,
so a client finds either nothing or a pipe that can be written to.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
import weakref
from pathlib import Path
from typing import Final

from rankscope.watchdog.timers.wire import LineSplitter

_CAPACITY: Final = 1 << 20
"""Bytes asked for the pipe: what an unprivileged process may have by default (pipe(7), pipe-max-size)."""
_READ_BYTES: Final = 1 << 16
_pipes: weakref.WeakSet[TimerPipe] = weakref.WeakSet()


class TimerPipe:
    """The reading end of a named pipe, a writing end that keeps it open, and a way to wake the reader."""

    def __init__(self, path: str) -> None:
        """Make the pipe (mode 0600), in place of one that an earlier server left.

        Raises:
            FileExistsError: something that is no named pipe has that name.
            OSError: the folder is missing, is not writable or cannot hold a named pipe.
        """
        # The program may change its folder before the pipe is removed.
        self._path = Path(path).absolute()
        self._reader = self._writer = self._wake = -1
        self._splitter = LineSplitter()
        self._identity = (-1, -1)
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISFIFO(self._path.lstat().st_mode):
                raise FileExistsError(f"{path} exists and is no named pipe; timers need another path")
        try:
            self._identity = self._open_pipe()
        except BaseException:
            self.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._capacity = fcntl.fcntl(self._reader, fcntl.F_GETPIPE_SZ)
        _pipes.add(self)

    def _open_pipe(self) -> tuple[int, int]:
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        beside.unlink(missing_ok=True)
        os.mkfifo(beside, 0o600)
        try:
            beside.chmod(0o600)
            self._reader = os.open(beside, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._writer = os.open(beside, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            # Clients keep their descriptor open only where they see this lock. A file system without
            # locks, or a user over the limit on pipes, makes it slower, not wrong.
            with contextlib.suppress(OSError):
                fcntl.flock(self._reader, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._reader, fcntl.F_SETPIPE_SZ, _CAPACITY)
            beside.rename(self._path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        return _identity(os.fstat(self._reader))

    def wait(self, timeout: float | None) -> None:
        """Sleep until something can be read, ``wake`` is called or ``timeout`` seconds are over."""
        # Rounded up: a timer that is due in half a millisecond must not spin until then.
        self._poll.poll(None if timeout is None else int(timeout * 1000) + 1)

    def wake(self) -> None:
        """End the reader's ``wait``, now or the next one; nothing where it is closed already."""
        wake = self._wake
        if wake >= 0:
            with contextlib.suppress(OSError):
                os.eventfd_write(wake, 1)

    def read(self) -> list[bytes]:
        """The next whole lines; empty when the pipe is empty."""
        lines: list[bytes] = []
        while not lines:
            try:
                chunk = os.read(self._reader, _READ_BYTES)
            except BlockingIOError:
                break
            lines = self._splitter.feed(chunk)
        return lines

    @property
    def capacity(self) -> int:
        """Bytes the pipe holds: who has read as many has read all that was in it when he began."""
        return self._capacity

    @property
    def half_full(self) -> int:
        """Bytes from which the pipe may have been full: lines over half a page take a page each."""
        return self._capacity // 2

    def close(self) -> None:
        """Close all ends and take the pipe's name away, unless another server has put its own there."""
        with contextlib.suppress(OSError):
            if self._reader >= 0 and _identity(self._path.lstat()) == self._identity:
                self._path.unlink()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        descriptors = (self._reader, self._writer, self._wake)
        self._reader = self._writer = self._wake = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _close_in_child() -> None:
    """A forked worker that held the reading end would hide the server's death from every client."""
    for pipe in list(_pipes):
        pipe._close_descriptors()  # noqa: SLF001 - the module's own class


os.register_at_fork(after_in_child=_close_in_child)
