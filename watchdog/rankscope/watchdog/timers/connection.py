"""The writing end of the timers' pipe in a worker: opened late, kept where that is safe, never in the way.

It knows lines only as bytes, and the server only by the lock that ours holds on its pipe.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import select
import signal as signals
import stat
import time
from collections.abc import Callable
from typing import Final

# Above what user code closes in ranges: a closed and reused number would put our lines into a user's file.
_FIRST_DESCRIPTOR: Final = 900
_RETRY: Final = 0.01
_logger = logging.getLogger(__name__)


class PipeConnection:
    """This process's way to the server at a path. Its owner holds a lock around all calls but ``write_line``.

    Attributes:
        kept: number of the descriptor that is kept open, -1 before our server was first met. Once taken
            it stays ours, also while no server is there: another thread that is about to write to it
            never meets a number that has become somebody's file.
        is_ours: whether our server reads at the other end.
        is_new: whether the server at the other end has not heard all that was written before, or was to be.
    """

    def __init__(self, path: str) -> None:
        self.kept = -1
        self.is_ours = False
        self.is_new = False
        self._missed = False
        self._path = path
        self._descriptor = -1
        self._pipe: tuple[int, int] | None = None
        self._absence_said = False

    @property
    def is_open(self) -> bool:
        """Whether there is something to write to."""
        return self._descriptor >= 0

    def open(self) -> bool:
        """Open the pipe and learn whether our server reads it; false when nobody does, logged once."""
        try:
            opened = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            return self._say_absent(error.strerror)
        status = os.fstat(opened)
        if not stat.S_ISFIFO(status.st_mode):
            os.close(opened)
            return self._say_absent("not a named pipe")
        self.is_ours = _is_locked(opened)
        pipe = (status.st_dev, status.st_ino)
        self.is_new = self._missed or self._pipe not in (None, pipe)
        self._pipe, self._missed = pipe, False
        self._descriptor = self._keep(opened) if self.is_ours else opened
        return True

    def write(self, line: bytes) -> None:
        """Write one line.

        Raises:
            BlockingIOError: the pipe is full.
            OSError: the server is gone; ``lose`` is due.
        """
        write_line(self._descriptor, line)

    def lose(self, error: OSError) -> None:
        """Take note that a write failed with ``error``."""
        if self.is_ours and error.errno == errno.EBADF:
            # Somebody closed it over our head: the number is no longer ours.
            self.kept = -1
        self.leave()
        self._descriptor = -1
        self._missed = True
        self.is_ours = False

    def leave(self) -> None:
        """Close the pipe if its server is torch's: it does not look at its timers while a writer stays."""
        if not self.is_ours and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def wait_for_room(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the pipe to take lines again; whether it does. Needs no lock."""
        if not self.is_ours:
            time.sleep(min(seconds, _RETRY))
            return False
        poll = select.poll()
        poll.register(self.kept, select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Close everything."""
        self.leave()
        kept, self.kept, self._descriptor, self.is_ours = self.kept, -1, -1, False
        if kept >= 0:
            with contextlib.suppress(OSError):
                os.close(kept)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.kept >= 0:
            try:  # noqa: SIM105 - no module's globals are left when the interpreter ends
                close(self.kept)
            except OSError:
                pass

    def _keep(self, opened: int) -> int:
        if self.kept >= 0:
            os.dup2(opened, self.kept, inheritable=False)
        else:
            try:
                self.kept = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
            except OSError:
                self.kept = opened
                return opened
        os.close(opened)
        return self.kept

    def _say_absent(self, reason: str | None) -> bool:
        self._missed = True
        if not self._absence_said:
            self._absence_said = True
            _logger.warning("timers have no effect: no server reads %s (%s); said once", self._path, reason)
        return False


def write_line(descriptor: int, line: bytes) -> None:
    """Write at most PIPE_BUF bytes, all or nothing; without a reader it raises, whatever SIGPIPE does."""
    if signals.getsignal(signals.SIGPIPE) is not signals.SIG_DFL:
        os.write(descriptor, line)
        return
    # The program has given up Python's own protection: a server that ended must not end the worker.
    before = signals.pthread_sigmask(signals.SIG_BLOCK, {signals.SIGPIPE})
    try:
        os.write(descriptor, line)
    except BrokenPipeError:
        if signals.SIGPIPE not in before:
            signals.sigtimedwait({signals.SIGPIPE}, 0)
        raise
    finally:
        signals.pthread_sigmask(signals.SIG_SETMASK, before)


def _is_locked(descriptor: int) -> bool:
    """Whether the pipe bears our server's lock (``pipe.py``, ``_open_pipe``)."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False
