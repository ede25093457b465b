"""Starts the probe in workers that are functions, where the environment comes after the interpreter.

torch sets RANK only inside its own wrapper of the function, a forked worker has no interpreter start at all,
and its exceptions never reach ``sys.excepthook``. So the agent hands torch a ``ProbedEntrypoint`` instead
of the function. It knows of the agent only the names of environment variables.
"""

from __future__ import annotations

import functools
import gc
import os
import stat
import sys
from collections.abc import Callable

from rankscope.watchdog import environment
from rankscope.watchdog.probe import boot


class ProbedEntrypoint:
    """A picklable stand-in for a worker function: same name, same result, same exceptions."""

    def __init__(self, function: Callable[..., object]) -> None:
        """Wrap ``function``; a callable without a name gets that of its type."""
        self._function = function
        self._made_in = os.getpid()
        self.__name__ = self.__qualname__ = type(function).__name__
        functools.update_wrapper(self, function)

    def __getstate__(self) -> dict[str, object]:
        """What is pickled: a worker that gets it so was not forked from the agent."""
        return {**self.__dict__, "_made_in": None}

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Redirect, boot, run; an uncaught exception waits for the agent's word before it goes on.

        The function's end is stamped as a script's is: what its process does after that is not its work.
        """
        if self._made_in not in (None, os.getpid()):
            # The agent's garbage: the end of a store in it waits for threads that no fork has (SIGSEGV).
            gc.freeze()
        redirect(environment.STDOUT, fd=1)
        redirect(environment.STDERR, fd=2)
        boot.boot(os.environ)
        try:
            return self._function(*args, **kwargs)
        except BaseException as error:
            probe = boot.running()
            if probe is not None:
                probe.hold.report(error)
            raise
        finally:
            probe = boot.running()
            if probe is not None:
                probe.returned.stamp()


def redirect(variable: str, *, fd: int) -> bool:
    """Put the FIFO that the environment variable names onto ``fd``. Never raises, never blocks.

    Returns:
        Whether ``fd`` writes to the FIFO now; not when there is none or nobody reads it.
    """
    path = os.environ.get(variable)
    if not path:
        return False
    _flush()
    try:
        # Non-blocking only for the opening: without a reader it would wait for ever.
        fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not stat.S_ISFIFO(os.fstat(fifo).st_mode):
            return False
        os.set_blocking(fifo, True)
        os.dup2(fifo, fd)
    except OSError:
        return False
    finally:
        os.close(fifo)
    return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # None, a broken pipe, closed
            continue
