"""Signals as bytes of a pipe, so that a loop meets them where it waits, and nowhere else."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
_TAKEN: Final = (*sorted(ENDING), signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


class Wakeful:
    """What wakes the loop: signals, and threads that have something.

    Attributes:
        fd: is readable then.
    """

    def __init__(self, fd: int, writer: int) -> None:
        self.fd = fd
        self._writer = writer

    def wake(self) -> None:
        """Wake the loop; from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._writer, b"\0")

    def signals(self) -> tuple[signal.Signals, ...]:
        """The signals that have come since the last call, in order."""
        found = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.fd, 512):
                found += chunk
        return tuple(signal.Signals(number) for number in found if number)


@contextmanager
def signals_as_bytes() -> Generator[Wakeful]:
    """Within the block signals wake the loop and do nothing else; those that are ignored stay ignored."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = {
        number: signal.signal(number, _noted)
        for number in _TAKEN
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    old = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield Wakeful(reader, writer)
    finally:
        signal.set_wakeup_fd(old)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def stop_here() -> None:
    """Stop as Ctrl-Z wants it; returns when the process is continued."""
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.kill(os.getpid(), signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, handler)


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The byte in the pipe says it."""
