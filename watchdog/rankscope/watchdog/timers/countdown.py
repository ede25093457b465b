"""``configure`` and ``expires``: torch's way to put a time limit on a block of code, without torch.

It knows a client only by its two methods; torch's own clients fit as well as ours.
"""

from __future__ import annotations

import sys
import time
from contextlib import ContextDecorator
from types import TracebackType
from typing import Protocol

from rankscope.watchdog.timers.wire import OversizeRequestError, as_seconds


class TimerClient(Protocol):
    """What ``expires`` needs of a client."""

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Set the timer ``scope_id`` to expire at ``expiration_time`` (seconds since the epoch)."""

    def release(self, scope_id: str) -> None:
        """Give the timer up."""


class _Configured:
    client: TimerClient | None = None


class expires(ContextDecorator):  # noqa: N801 - torch's name, used as a function
    """Sets a timer around a block (``with expires(after=30):``) or a function (``@expires(after=30)``).

    When the block is not left within the time, the process is due for what its server does with such
    processes: torch's kills them, the agent of Rankscope takes it as a suspicion.
    """

    __slots__ = ("_after", "_client", "_scope")

    def __init__(self, after: float, scope: str | None = None, client: TimerClient | None = None) -> None:
        """Nothing is sent yet.

        Args:
            after: seconds from entering the block.
            scope: name of the timer; ``file#line`` of the caller where none is given (torch means that
                too, but names a line of contextlib, the same for every block of a process). A block
                that enters its own scope again moves the timer, and leaving the inner one ends it.
            client: client to use instead of the configured one.

        Raises:
            RuntimeError: no client given or configured.
        """
        chosen = client or _Configured.client
        if chosen is None:
            raise RuntimeError("no timer client: call configure(FileTimerClient(path)) before expires()")
        if scope is None:
            caller = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads source files, milliseconds a call
            scope = f"{caller.f_code.co_filename}#{caller.f_lineno}"
        self._after = after
        self._client = chosen
        self._scope = scope

    def __enter__(self) -> None:
        try:
            self._client.acquire(self._scope, time.time() + as_seconds(self._after))
        except (BrokenPipeError, OversizeRequestError):
            raise
        except BaseException:
            # A signal handler raised (an alarm): the block is never entered, so nobody would leave it.
            self._client.release(self._scope)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.release(self._scope)


def configure(timer_client: TimerClient) -> None:
    """Choose the client that ``expires`` uses where none is given."""
    _Configured.client = timer_client
