"""Lets the worker dump its stacks on a signal, for those who may not trace it.

``faulthandler`` answers also while the GIL is held in C. The signal is one that nobody else had taken, what
the process does with it after us is watched, and once anything is not as we left it (the user registered
the signal, or closed our descriptor) the readiness is withdrawn: nobody sends a signal then. It interrupts
C calls of the main thread with EINTR, so it stays the last resort. How it is sent is not known here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import sys
import threading
import weakref
from types import ModuleType
from typing import Final

from rankscope.watchdog.answers import DUMP_SIGNAL, Answer, answer_file, stacks_file, write_answer
from rankscope.watchdog.probe.signal_masks import SIGACTION_BYTES

_HIGH: Final = 900
"""Where the descriptor is moved to: user code that closes ranges of descriptors rarely gets there."""
_ROOM: Final = 24
_MOST_REPAIRS: Final = 3


class _File:
    """What faulthandler writes to. It holds the only reference: its end tells that somebody replaced it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def flush(self) -> None:
        """Nothing is buffered."""


class Faults:
    """The signal's handler, its file and the word that both are in order. Never raises.

    Args:
        folder: the private folder; without one nothing is done.
        start_ticks: start time of this process.
    """

    def __init__(self, folder: str, *, start_ticks: int) -> None:
        self._folder = folder
        self._pid = os.getpid()
        self._start_ticks = start_ticks
        self._thread_id = 0
        self._fd = -1
        self._identity = (0, 0)
        self._handler = b""
        self._repairs = 0
        self._file: weakref.ref[_File] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the signal would be answered now, as far as is known."""
        return self._fd >= 0 and self._file is not None and self._file() is not None

    def register(self) -> None:
        """Take the signal if it is free; only in the main thread."""
        # No folder, an interpreter without faulthandler, a file system that is full: no answer, no harm.
        with contextlib.suppress(Exception):
            if self._folder and signal.getsignal(DUMP_SIGNAL) is signal.SIG_DFL:
                # What faulthandler puts back at the interpreter's end: a late signal must not kill.
                signal.signal(DUMP_SIGNAL, signal.SIG_IGN)
                self._take()

    def learn(self, _ctypes: ModuleType) -> None:
        """Note the handler's address, once somebody has imported ``ctypes`` and could change it in C."""
        if self.is_ready and not self._handler:
            self._handler = _handler_of(DUMP_SIGNAL)

    def look(self) -> None:
        """See whether all is as it was left; for the probe's thread, microseconds.

        The thread may be asked where the main thread cannot be, unless that one has blocked the signal.
        """
        if self._fd < 0 or os.getpid() != self._pid:
            return
        _block_as_main_does()
        if not self.is_ready or not self._is_handled():
            self.withdraw()
        elif not self._is_file():
            self._repair()
        elif not self._thread_id:
            self._thread_id = threading.get_native_id()
            with contextlib.suppress(OSError):
                self._tell()

    def withdraw(self) -> None:
        """Say that the signal is not answered any more."""
        if self._fd < 0 or os.getpid() != self._pid:
            return
        if self._is_file():
            os.close(self._fd)
        self._fd = -1
        for path in (answer_file(self._folder, self._pid), stacks_file(self._folder, self._pid)):
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - pathlib would be one more import

    def silence(self) -> None:
        """Forget it in a forked child, which answers into its parent's file."""
        self._fd = -1

    def _take(self) -> None:
        import faulthandler

        fd = _open_high(stacks_file(self._folder, self._pid))
        found = os.fstat(fd)
        file = _File(fd)
        self._fd, self._identity = fd, (found.st_dev, found.st_ino)
        self._file = weakref.ref(file)
        faulthandler.register(DUMP_SIGNAL, file=file, all_threads=True, chain=False)
        self._handler = _handler_of(DUMP_SIGNAL)
        self._tell()

    def _tell(self) -> None:
        ident = threading.main_thread().ident or 0
        answer = Answer(self._start_ticks, self._fd, ident, self._thread_id)
        path = answer_file(self._folder, self._pid)
        fd = os.open(path + "~", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, write_answer(answer).encode())
        finally:
            os.close(fd)
        os.replace(path + "~", path)  # noqa: PTH105 - pathlib would be one more import

    def _is_handled(self) -> bool:
        """Whether the handler still is faulthandler's: a library may have set its own."""
        if signal.getsignal(DUMP_SIGNAL) is not signal.SIG_IGN:
            return False
        return not self._handler or _handler_of(DUMP_SIGNAL) == self._handler

    def _is_file(self) -> bool:
        """Whether the descriptor still is our file: it may have been closed, and its number given again."""
        try:
            found = os.fstat(self._fd)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def _repair(self) -> None:
        """A descriptor was closed under us: take another one, a few times."""
        self._repairs += 1
        if self._repairs > _MOST_REPAIRS:
            self.withdraw()
            return
        with contextlib.suppress(OSError):
            os.unlink(answer_file(self._folder, self._pid))  # noqa: PTH108
        self._fd = -1
        with contextlib.suppress(Exception):
            self._take()


def _open_high(path: str) -> int:
    """Open the file for appending, on a descriptor out of the way."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        least = _HIGH if most == resource.RLIM_INFINITY else max(3, min(_HIGH, most - _ROOM))
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
    finally:
        os.close(fd)


def _block_as_main_does() -> None:
    """A script that blocks the signal waits for it itself: the calling thread must not take it instead."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/status", "rb") as file:  # noqa: PTH123 - the main thread's
            blocked = int(file.read().partition(b"\nSigBlk:")[2].split(None, 1)[0], 16)
        is_blocked = blocked >> (DUMP_SIGNAL - 1) & 1
        signal.pthread_sigmask(signal.SIG_BLOCK if is_blocked else signal.SIG_UNBLOCK, {DUMP_SIGNAL})


def _handler_of(number: int) -> bytes:
    """Address of a signal's handler; empty while ``ctypes`` is not loaded, which costs milliseconds."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is None:
        return b""
    try:
        buffer = ctypes.create_string_buffer(SIGACTION_BYTES)
        ctypes.CDLL(None).sigaction(number, None, buffer)
    except (AttributeError, OSError):
        return b""
    raw: bytes = buffer.raw
    return raw[:8]
