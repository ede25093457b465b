"""Lets the worker dump its stacks on a signal, for those who may not trace it.

``faulthandler`` answers also while the GIL is held in C. The signal is one that nobody else had taken, what
the process does with it after us is watched, and once anything is not as we left it (the user registered
the signal, or closed our descriptor) the readiness is withdrawn: nobody sends a signal then. It interrupts
C calls of the main thread with EINTR, so it stays the last resort. How it is sent is not known here.

The probe's thread opens nothing: a script that closes ranges of descriptors meanwhile, as daemons do when
they start, and opens its own would find one of them closed with ours.
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
_STATUS: Final = "/proc/self/status"
_STATUS_BYTES: Final = 4096


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
        self._status = -1
        self._status_identity = (0, 0)
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
                self._watch_mask()
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
        if not self.is_ready or not self._is_handled():
            self.withdraw()
        elif not self._is_file() or not self._block_as_main_does():
            self._repair()

    def looked_after_by(self, thread_id: int) -> None:
        """Say that the signal is answered, and which thread may be asked too; before the script runs.

        Args:
            thread_id: the kernel's id of the probe's thread.
        """
        self._thread_id = thread_id
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._tell()

    def withdraw(self) -> None:
        """Say that the signal is not answered any more."""
        if self._fd < 0 or os.getpid() != self._pid:
            return
        _close_own(self._fd, self._identity)
        _close_own(self._status, self._status_identity)
        self._fd = self._status = -1
        for path in (answer_file(self._folder, self._pid), stacks_file(self._folder, self._pid)):
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - pathlib would be one more import

    def silence(self) -> None:
        """Forget it in a forked child, which answers into its parent's file."""
        _close_own(self._status, self._status_identity)
        self._fd = self._status = -1

    def _take(self) -> None:
        import faulthandler

        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        fd = _open_high(stacks_file(self._folder, self._pid), flags)
        file = _File(fd)
        self._fd, self._identity = fd, _identity(fd)
        self._file = weakref.ref(file)
        faulthandler.register(DUMP_SIGNAL, file=file, all_threads=True, chain=False)
        self._handler = _handler_of(DUMP_SIGNAL)

    def _tell(self) -> None:
        ident = threading.main_thread().ident or 0
        answer = Answer(self._start_ticks, self._fd, ident, self._thread_id)
        path = answer_file(self._folder, self._pid)
        fd = os.open(path + "~", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        identity = _identity(fd)
        try:
            os.write(fd, write_answer(answer).encode())
        finally:
            _close_own(fd, identity)
        os.replace(path + "~", path)  # noqa: PTH105 - pathlib would be one more import

    def _is_handled(self) -> bool:
        """Whether the handler still is faulthandler's: a library may have set its own."""
        if signal.getsignal(DUMP_SIGNAL) is not signal.SIG_IGN:
            return False
        return not self._handler or _handler_of(DUMP_SIGNAL) == self._handler

    def _is_file(self) -> bool:
        """Whether the descriptor still is our file: it may have been closed, and its number given again."""
        return _is_own(self._fd, self._identity)

    def _watch_mask(self) -> None:
        self._status = -1
        self._status = _open_high(_STATUS, os.O_RDONLY)
        self._status_identity = _identity(self._status)

    def _block_as_main_does(self) -> bool:
        """Block the signal if the script has: it waits for it itself, the calling thread must not take it.

        Returns:
            Whether the main thread's mask could be read.
        """
        if not _is_own(self._status, self._status_identity):
            return False
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = os.pread(self._status, _STATUS_BYTES, 0)
            blocked = int(status.partition(b"\nSigBlk:")[2].split(None, 1)[0], 16)
            is_blocked = blocked >> (DUMP_SIGNAL - 1) & 1
            signal.pthread_sigmask(signal.SIG_BLOCK if is_blocked else signal.SIG_UNBLOCK, {DUMP_SIGNAL})
        return True

    def _repair(self) -> None:
        """A descriptor was closed under us: take another one, a few times."""
        self._repairs += 1
        if self._repairs > _MOST_REPAIRS:
            self.withdraw()
            return
        with contextlib.suppress(Exception):
            if not _is_own(self._status, self._status_identity):
                self._watch_mask()
            if not self._is_file():
                self._fd = -1
                with contextlib.suppress(OSError):
                    os.unlink(answer_file(self._folder, self._pid))  # noqa: PTH108
                self._take()
                self._tell()


def _open_high(path: str, flags: int) -> int:
    """Open a file on a descriptor out of the way."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    identity = _identity(fd)
    try:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        least = _HIGH if most == resource.RLIM_INFINITY else max(3, min(_HIGH, most - _ROOM))
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
    finally:
        _close_own(fd, identity)


def _identity(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _is_own(fd: int, identity: tuple[int, int]) -> bool:
    try:
        return fd >= 0 and _identity(fd) == identity
    except OSError:
        return False


def _close_own(fd: int, identity: tuple[int, int]) -> None:
    """Close a descriptor unless its number is somebody else's by now."""
    if _is_own(fd, identity):
        with contextlib.suppress(OSError):
            os.close(fd)


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
