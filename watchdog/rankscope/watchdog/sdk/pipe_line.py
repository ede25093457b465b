"""Writes one event line into the agent's named pipe, and says why where it cannot.

Nothing is kept between two calls but the knowledge that the pipe is stuck: a script sends few events, and a
descriptor that stays open would have to survive forks and users who close what is not theirs.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Final

from rankscope.watchdog.sdk.edge import is_ours
from rankscope.watchdog.timers.descriptor import is_locked, wait_for_room, write_line

PATIENCE: Final = 0.5
"""Seconds that a call waits for a full pipe; our server empties one in 20-50 ms (``timers.client``)."""
FULL: Final = "the agent does not read its pipe, which is full"
NO_PIPE: Final = "the agent has no pipe for messages"
_RETRY: Final = 0.01


class EventPipe:
    """The way of this process's events to the agent. One call at a time; raises nothing of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stuck = False

    def send(self, line: bytes, *, patience: float = PATIENCE) -> str:
        """Write ``line`` (at most PIPE_BUF bytes) whole.

        Args:
            line: what to write.
            patience: seconds to wait for a full pipe at most; none where it was full the last time.

        Returns:
            Why it could not be written, ``""`` when it is in the pipe.
        """
        if not self._path:
            return NO_PIPE
        try:
            # Non-blocking: without a reader the opening would wait for ever.
            fd = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            try:
                return self._write(fd, line, patience) if _is_our_servers(fd) else NO_PIPE
            finally:
                os.close(fd)
        except OSError as error:
            if not is_ours(error):
                raise
            return f"the agent's pipe cannot be written to ({error.strerror})"

    def _write(self, fd: int, line: bytes, patience: float) -> str:
        """Try until the patience is over; a pipe that was full the last time gets none."""
        deadline = time.monotonic() + (0.0 if self._stuck else patience)
        while True:
            try:
                write_line(fd, line)
            except BlockingIOError as error:
                left = deadline - time.monotonic()
                if not is_ours(error):
                    raise
                if left <= 0:
                    self._stuck = True
                    return FULL
                if wait_for_room(fd, left) is None:
                    time.sleep(min(left, _RETRY))
            else:
                self._stuck = False
                return ""


def _is_our_servers(fd: int) -> bool:
    """Whether our timers' server reads the pipe; torch's loses other requests over a line that is not its."""
    return stat.S_ISFIFO(os.fstat(fd).st_mode) and is_locked(fd)
