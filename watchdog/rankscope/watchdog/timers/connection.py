"""The writing end of the timers' pipe in a worker: opened late, kept where that is safe, never in the way.

It knows lines only as bytes, and the server only by the lock that ours holds on its pipe.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import signal as signals
import stat
import time
from collections.abc import Callable
from typing import Final

from rankscope.watchdog.timers.descriptor import (
    handler_of,
    is_locked,
    is_of_the_system,
    refers_to,
    wait_for_room,
    write_guarded,
    write_line,
)

# Above what user code closes in ranges, so that the descriptor is seldom lost.
_FIRST_DESCRIPTOR: Final = 900
_RETRY: Final = 0.01
_DEFAULT_SIZE: Final = 65_536
# What passes by itself, and says nothing about a server.
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
_NOT_OURS: Final = "the descriptor has become another file's"
_logger = logging.getLogger(__name__)


class PipeConnection:
    """This process's way to the server at a path. Its owner holds a lock around all calls but ``write_line``.

    Whatever is written to, duplicated over or closed is first seen to be what was put there: the program may
    have closed a descriptor over our head, and its number may be a file of the program's by now. (What
    another thread does between that look and the write cannot be seen.)

    Attributes:
        kept: number of the descriptor that is kept open, -1 before our server was first met. Once taken
            it stays ours, also while no server is there: another thread that is about to write to it
            never meets a number that has become somebody's file.
        is_ours: whether our server reads at the other end.
        is_new: whether the server at the other end has not heard all that was written before, or was to be.
        is_short: whether the last opening failed for want of descriptors or memory: nothing is known then of
            the server.
    """

    def __init__(self, path: str) -> None:
        self.kept = -1
        self.is_ours = False
        self.is_new = False
        self.is_short = False
        self._missed = False
        self._path = path
        self._descriptor = -1
        # Type and mode, inode, device: what the open descriptor refers to, and what the kept one does.
        self._opened: tuple[int, ...] = ()
        self._kept: tuple[int, ...] = ()
        self._kept_size = 0
        self._absence_said = False

    @property
    def is_open(self) -> bool:
        """Whether there is something to write to."""
        return self._descriptor >= 0

    def open(self) -> bool:
        """Open the pipe and learn whether our server reads it; false when nobody does, logged once."""
        self.is_short = False
        try:
            opened = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if not is_of_the_system(error):
                raise
            self.is_short = error.errno in _SHORTAGES
            return self._say_absent(error.strerror)
        pipe: tuple[int, ...] = ()
        try:
            pipe = os.fstat(opened)[:3]
            return self._take(opened, pipe)
        except BaseException:
            # Raised by a signal handler: one writer left behind would blind torch's server.
            if self._descriptor != opened and refers_to(opened, pipe):
                os.close(opened)
            raise

    def _take(self, opened: int, pipe: tuple[int, ...]) -> bool:
        if not stat.S_ISFIFO(pipe[0]):
            os.close(opened)
            return self._say_absent("not a named pipe")
        self.is_ours = is_locked(opened)
        self.is_new = self._missed or self._opened not in ((), pipe)
        self._opened, self._missed = pipe, False
        self._descriptor = self._keep(opened) if self.is_ours else opened
        return True

    def write(self, line: bytes) -> None:
        """Write one line.

        Raises:
            BlockingIOError: the pipe is full.
            OSError: the server is gone; ``lose`` is due.
        """
        if not refers_to(self._descriptor, self._opened):
            raise OSError(errno.EBADF, _NOT_OURS)
        write_line(self._descriptor, line)

    def write_kept(self, line: bytes) -> None:
        """Write one line to the descriptor that is kept. Needs no lock; raises as ``write`` does."""
        # In one piece: this is nearly all that a call costs. Only a pipe has a size, and few have that of
        # our server's; asking for it takes a third of the time that the inode takes.
        kept, size = self.kept, self._kept_size
        if kept < 0:
            raise OSError(errno.EBADF, _NOT_OURS)
        if fcntl.fcntl(kept, fcntl.F_GETPIPE_SZ) != size if size else os.fstat(kept)[:3] != self._kept:
            raise OSError(errno.EBADF, _NOT_OURS)
        if handler_of(signals.SIGPIPE) == signals.SIG_DFL:
            write_guarded(kept, line)
        else:
            os.write(kept, line)

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
            opened, self._descriptor = self._descriptor, -1
            if refers_to(opened, self._opened):
                os.close(opened)

    def wait_for_room(self, seconds: float, *, retry: float = _RETRY) -> bool:
        """Wait at most ``seconds`` for the pipe to take lines again; whether it does. Needs no lock.

        Only for our server's pipe can one wait; for another's, ``retry`` seconds pass.
        """
        kept = self.kept
        room = wait_for_room(kept, seconds) if self.is_ours and kept >= 0 else None
        if room is None:
            time.sleep(min(seconds, retry))
        return bool(room)

    def close(self) -> None:
        """Close everything."""
        self.leave()
        kept, self.kept, self._descriptor, self.is_ours = self.kept, -1, -1, False
        if refers_to(kept, self._kept):
            os.close(kept)

    def __del__(
        self,
        fstat: Callable[[int], os.stat_result] = os.fstat,
        close: Callable[[int], None] = os.close,
    ) -> None:
        if self.kept >= 0:
            try:  # no module's globals are left when the interpreter ends
                if fstat(self.kept)[:3] == self._kept:
                    close(self.kept)
            except OSError:
                pass

    def _keep(self, opened: int) -> int:
        try:
            if refers_to(self.kept, self._kept):
                os.dup2(opened, self.kept, inheritable=False)
            else:
                self.kept = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
        except OSError as error:
            # The limit of descriptors is low: the number that we have must do.
            if not is_of_the_system(error):
                raise
            self.kept = opened
        self._kept = self._opened
        size = fcntl.fcntl(opened, fcntl.F_GETPIPE_SZ)
        self._kept_size = size if size > _DEFAULT_SIZE else 0
        if self.kept != opened:
            os.close(opened)
        return self.kept

    def _say_absent(self, reason: str | None) -> bool:
        self._missed = True
        if not self._absence_said:
            self._absence_said = True
            what = "timers wait: cannot open" if self.is_short else "timers have no effect: no server reads"
            _logger.warning("%s %s (%s); said once", what, self._path, reason)
        return False
