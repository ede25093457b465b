"""What is done with the descriptor of the agent's pipe: tell whose it is, write a line whole, wait for room.

Nothing here opens, keeps or closes one, or knows what a line says.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal as signals
import sys
from collections.abc import Callable
from typing import Final

# The same as ``signal.getsignal`` without its enumerations, which cost 0.3 us a call.
handler_of: Final[Callable[[int], object]] = getattr(
    sys.modules.get("_signal"), "getsignal", signals.getsignal
)
# Taken at import: libraries that patch the standard library (eventlet) remove it.
_poll = getattr(select, "poll", None)


def is_of_the_system(error: OSError) -> bool:
    """Whether an error comes from a system call, not from the program's signal handler (an alarm)."""
    return error.errno is not None and not isinstance(error, TimeoutError)


def refers_to(descriptor: int, expected: tuple[int, ...]) -> bool:
    """Whether a descriptor is still what it was: the same type and mode, inode, device."""
    if descriptor < 0:
        return False
    try:
        return os.fstat(descriptor)[:3] == expected
    except OSError:
        return False


def write_line(descriptor: int, line: bytes) -> None:
    """Write at most PIPE_BUF bytes, all or nothing; without a reader it raises, whatever SIGPIPE does."""
    if handler_of(signals.SIGPIPE) == signals.SIG_DFL:
        write_guarded(descriptor, line)
    else:
        os.write(descriptor, line)


def write_guarded(descriptor: int, line: bytes) -> None:
    """Write where SIGPIPE has its default effect: a server that ended must not end the worker."""
    before = signals.pthread_sigmask(signals.SIG_BLOCK, {signals.SIGPIPE})
    try:
        os.write(descriptor, line)
    except BrokenPipeError:
        if signals.SIGPIPE not in before:
            signals.sigtimedwait({signals.SIGPIPE}, 0)
        raise
    finally:
        signals.pthread_sigmask(signals.SIG_SETMASK, before)


def is_locked(descriptor: int) -> bool:
    """Whether the pipe bears our server's lock (``pipe.py``, ``_open_pipe``)."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if not is_of_the_system(error):
            raise
        return False
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def wait_for_room(descriptor: int, seconds: float) -> bool | None:
    """Wait until the pipe takes lines again; whether it does, ``None`` where one cannot wait."""
    if _poll is None:
        return None
    poll = _poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))
