"""The standard streams of a command: what is said reaches its reader, or the exit status tells.

Any of them may be closed, broken or full. It must not know what is said.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Final, TextIO

from rankscope.diag.errors import StoreError

_STREAMS: Final = range(3)


def fill_closed() -> None:
    """Put /dev/null where the caller closed a stream: the next file opened would take its place."""
    for fd in _STREAMS:
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def answer(write: Callable[[TextIO], None]) -> None:
    """Let ``write`` write to stdout; a reader that has gone is no error, nobody who asked is none either.

    Raises:
        StoreError: it cannot be written (a full disk).
    """
    if sys.stdout is None:
        return
    try:
        write(sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon()
    except OSError as error:
        _abandon()
        raise StoreError(f"the answer cannot be written: {error.strerror or error}") from error


def tell(text: str) -> None:
    """Write lines to stderr, if that is possible."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def _abandon() -> None:
    """Whatever is still to be written goes nowhere: Python would complain about it at its end."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.dup2(null, sys.stdout.fileno())
        finally:
            os.close(null)
    sys.stdout = None  # as Python has it when there is none
