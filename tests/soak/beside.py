"""A coroutine in a thread of its own, until it is told that it is over."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """A coroutine in a thread of its own, ended by setting its event.

    Args:
        name: of the thread.
        run: is given the event.
    """

    def __init__(self, name: str, run: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> None:
        self._run = run
        self._result: T | None = None
        self._error: BaseException | None = None
        self._ready = threading.Event()
        self._over: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name=name, daemon=True)
        self._thread.start()
        self._ready.wait()

    async def _main(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        try:
            self._result = await self._run(self._over)
        except Exception as error:  # noqa: BLE001 - the thread's edge; raised in ``end``
            self._error = error

    def end(self) -> T:
        """Have it end; what it says.

        Raises:
            Exception: whatever it raised.
        """
        assert self._loop is not None
        assert self._over is not None
        with contextlib.suppress(RuntimeError):  # over already
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result
