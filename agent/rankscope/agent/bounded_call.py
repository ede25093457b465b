"""Calls that may never come back, made in a thread of their own that is left behind past a limit.

torch's main thread blocks without a deadline of ours where nodes meet, and a file on a lost share never
answers: whoever calls waits for so long, hears signals, and goes on without it. It must not know what is done
about a call that took too long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_PAUSE: Final = 0.05
"""Seconds between two looks for a signal: a wait on a lock is not interrupted by all of them."""


class TookTooLongError(Exception):
    """A call was left behind."""


class _Call(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._call = call
        self._result: list[T] = []
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        try:
            self._result.append(self._call())
        except BaseException as error:  # noqa: BLE001 - raised again where the call is waited for
            self._error = error

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result[0]


def within(seconds: float, call: Callable[[], T], *, name: str) -> T:
    """Make a call that may take ``seconds``; past that its thread is left behind.

    Args:
        seconds: how long it may take.
        call: what is called.
        name: of its thread.

    Returns:
        What the call returns.

    Raises:
        TookTooLongError: it took longer; what it does after that is nobody's business any more.
        BaseException: what the call raises.
    """
    deadline = time.monotonic() + seconds
    made = _Call(call, name)
    made.thread.start()
    while made.thread.is_alive():
        left = deadline - time.monotonic()
        if left <= 0:
            raise TookTooLongError(f"{name} took longer than {seconds:g} s")
        made.thread.join(min(_PAUSE, left))
    return made.outcome()
