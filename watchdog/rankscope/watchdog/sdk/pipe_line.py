"""Writes one event line into the agent's named pipe, and says why where it cannot.

Nothing is kept between two calls but the knowledge that the pipe is stuck: a script sends few events, and a
descriptor that stays open would have to survive forks and users who close what is not theirs.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import stat
import time
from typing import Final

from rankscope.watchdog.sdk.edge import is_ours

PATIENCE: Final = 0.5
"""Seconds that a call waits for a full pipe; our server empties one in 20-50 ms (``timers.client``)."""
NO_PIPE: Final = "the agent has no pipe for messages"
_RETRY: Final = 0.01
# Taken at import: libraries that patch the standard library remove it.
_poll = getattr(select, "poll", None)


class EventPipe:
    """The way of this process's events to the agent. One call at a time; raises nothing of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stuck = False

    def send(self, line: bytes) -> str:
        """Write ``line`` (at most PIPE_BUF bytes) whole.

        Returns:
            Why it could not be written, ``""`` when it is in the pipe.
        """
        if not self._path:
            return NO_PIPE
        try:
            # Non-blocking: without a reader the opening would wait for ever.
            fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            try:
                return self._write(fd, line) if _is_our_servers(fd) else NO_PIPE
            finally:
                os.close(fd)
        except OSError as error:
            if not is_ours(error):
                raise
            return f"the agent's pipe cannot be written to ({error.strerror})"

    def _write(self, fd: int, line: bytes) -> str:
        """Try until the patience is over; a pipe that was full the last time gets none."""
        deadline = time.monotonic() + (0.0 if self._stuck else PATIENCE)
        while True:
            try:
                _write_whole(fd, line)
            except BlockingIOError as error:
                left = deadline - time.monotonic()
                if not is_ours(error):
                    raise
                if left <= 0:
                    self._stuck = True
                    return "the agent does not read its pipe, which is full"
                _wait_for_room(fd, left)
            else:
                self._stuck = False
                return ""


def _is_our_servers(fd: int) -> bool:
    """Whether our timers' server reads the pipe: it holds a lock on it (``timers.pipe``).

    torch's server loses other requests over a line that it does not know.
    """
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _write_whole(fd: int, line: bytes) -> None:
    """Write all or nothing; a pipe without a reader is an error, also where SIGPIPE would end the process."""
    if signal.getsignal(signal.SIGPIPE) is not signal.SIG_DFL:
        os.write(fd, line)
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    try:
        os.write(fd, line)
    except BrokenPipeError:
        if signal.SIGPIPE not in before:
            signal.sigtimedwait({signal.SIGPIPE}, 0)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_for_room(fd: int, seconds: float) -> None:
    if _poll is None:
        time.sleep(min(seconds, _RETRY))
        return
    poll = _poll()
    poll.register(fd, select.POLLOUT)
    poll.poll(seconds * 1000)
