"""A forked child that leads a group of its own and dies with its parent; and a command that becomes one.

Only for a process with one thread. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
from collections.abc import Callable
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
NOT_STARTED: Final = frozenset({_NOT_FOUND, _NOT_EXECUTABLE})
"""Exit codes of a command that is not there or cannot be executed, as shells have them."""
_CRASHED: Final = 70
ENVIRONMENT: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")
"""All that a command gets of the agent's environment."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


def name_process(name: str) -> None:
    """Set the name that ``ps`` shows, 15 bytes."""
    _libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def start(act: Callable[[int], None], *, also_close: socket.socket) -> tuple[int, int]:
    """Fork a child that calls ``act`` with a descriptor to write to.

    Args:
        act: what the child does; it ends with it.
        also_close: the parent's alone.

    Returns:
        Its pid, which is its group's too, and where to read what it writes.

    Raises:
        OSError: no process or pipe is to be had.
    """
    parent = os.getpid()
    output, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:
        os.close(output)
        os.close(writer)
        raise
    if pid == 0:
        try:
            os.setsid()
            _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() == parent:
                also_close.close()
                os.close(output)
                act(writer)
                os._exit(0)
        finally:
            os._exit(_CRASHED)
    os.close(writer)
    return pid, output


def command(words: list[str], body: bytes, *, cwd: str) -> Callable[[int], None]:
    """For ``start``: become the program ``words[0]``, with ``body`` to read and both outputs to the pipe.

    Args:
        words: an absolute path and arguments.
        body: its standard input, a file in memory: nobody has to feed it.
        cwd: where it runs, ``/`` when that is gone.
    """

    def act(output: int) -> None:
        with os.fdopen(os.memfd_create("notice"), "r+b", closefd=False) as file:
            file.write(body)
            file.flush()
            file.seek(0)
            os.dup2(file.fileno(), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        try:
            os.chdir(cwd)
        except OSError:
            os.chdir("/")
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        try:
            os.execve(words[0], words, environment)  # noqa: S606 - no shell is wanted
        except OSError as error:
            os.write(2, f"{error.strerror}\n".encode())
            os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)

    return act


def has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped, so its number stays its own."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill(pid: int) -> None:
    """SIGKILL to a child that is not reaped, and to its group."""
    for end in (os.killpg, os.kill):  # it may not lead its group yet
        with contextlib.suppress(OSError):
            end(pid, signal.SIGKILL)
