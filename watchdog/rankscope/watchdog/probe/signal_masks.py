"""Starts threads that take none of the user's signals.

A thread begins with the mask of its maker. A script that blocks a signal to wait for it (``sigwait``) must
find no thread of ours that takes it: the signal's default action would end the process.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator
from typing import Final

_FAULTS: Final = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGSYS,
        signal.SIGTRAP,
    }
)
"""Signals of a thread's own making, which it must not block."""
SIGACTION_BYTES: Final = 256
"""More than any libc's ``struct sigaction``; the handler's address is its first word."""


@contextlib.contextmanager
def all_blocked(*, but: int | None = None) -> Generator[None]:
    """Block every signal in the calling thread, faults and ``but`` excepted, while a thread is made."""
    spared = _FAULTS if but is None else _FAULTS | {but}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.valid_signals()) - spared)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
