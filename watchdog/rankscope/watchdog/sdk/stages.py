"""``hang_detect``: a limit of its own for a block, a function, a coroutine or a generator.

It knows what each kind of function needs so that the stage covers its work, and nothing of how the limit
reaches the agent (``published``).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from types import TracebackType
from typing import TypeVar, cast

from rankscope.watchdog.sdk.config import seconds_or_off
from rankscope.watchdog.sdk.execution import current_line
from rankscope.watchdog.sdk.published import PUBLISHED
from rankscope.watchdog.sdk.scopes import OpenStage

Function = TypeVar("Function", bound=Callable[..., object])


class hang_detect:  # noqa: N801 - AIMaster's name, used as a function
    """A limit for a stage of the training, in place of the rank's and the job's own limits.

    As a context manager (``with jm.hang_detect(1800):``) or decorator (``@jm.hang_detect(1800)``); one
    object may be used many times, by many threads, also within itself. While the stage lasts, silence is a
    hang after ``seconds``; leaving it, also by an exception, restores what held around it.

    In one thread or asyncio task the innermost stage counts, of several the largest limit, and off wins. A
    decorated coroutine is in its stage from its first step to its end; a decorated generator only while its
    own code runs, not while the caller works on what it has yielded.
    """

    def __init__(self, seconds: float, *, name: str = "") -> None:
        """Check the limit.

        Args:
            seconds: the limit; -1 switches detection off for the stage.
            name: what the stage is called in records; by default the function's name or ``file:line``.

        Raises:
            TypeError: ``seconds`` is no number, ``name`` no string.
            ValueError: it is neither positive and finite nor -1.
        """
        self._open: list[OpenStage] = []
        self._seconds = seconds_or_off(seconds, "hang_detect")
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - the user's argument
            raise TypeError(f"name={name!r}: a string expected")
        self._given_name = name
        self._name = name or _caller()

    def __enter__(self) -> hang_detect:  # noqa: PYI034 - Self is of Python 3.11
        """Enter the stage."""
        stage = OpenStage(self._seconds, self._name, current_line())
        try:
            self._open.append(stage)
            PUBLISHED.enter(stage)
        except BaseException:
            # Raised by a signal handler: the block is not entered, so it will not be left.
            self._drop(stage)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the stage: the one that this thread or task has entered last, if it has entered any."""
        line = current_line()
        entered = list(self._open)
        mine = [stage for stage in entered if stage.line is line] or entered
        if mine:
            self._drop(mine[-1])

    def _drop(self, stage: OpenStage) -> None:
        PUBLISHED.leave(stage)
        self._open = [each for each in self._open if not each.ended]

    def __call__(self, function: Function) -> Function:
        """Decorate a function, coroutine function, generator function or asynchronous generator function.

        Raises:
            TypeError: ``function`` cannot be called.
        """
        import inspect  # what torch imports anyway; a script without torch may do without

        if not callable(function):
            raise TypeError(f"hang_detect decorates functions, not {function!r}")
        name = self._given_name or str(getattr(function, "__qualname__", type(function).__qualname__))
        stage = functools.partial(hang_detect, self._seconds, name=name)
        if inspect.isasyncgenfunction(function):
            wrapped = _async_generator(function, stage)
        elif inspect.isgeneratorfunction(function):
            wrapped = _generator(function, stage)
        elif inspect.iscoroutinefunction(function):
            wrapped = _coroutine(function, stage)
        else:
            wrapped = _plain(function, stage)
        return cast("Function", functools.update_wrapper(wrapped, function))


Stage = Callable[[], hang_detect]


def _plain(function: Callable[..., object], stage: Stage) -> Callable[..., object]:
    def in_stage(*args: object, **kwargs: object) -> object:
        with stage():
            return function(*args, **kwargs)

    return in_stage


def _coroutine(
    function: Callable[..., Coroutine[object, object, object]], stage: Stage
) -> Callable[..., object]:
    async def in_stage(*args: object, **kwargs: object) -> object:
        with stage():
            return await function(*args, **kwargs)

    return in_stage


def _generator(
    function: Callable[..., Generator[object, object, object]], stage: Stage
) -> Callable[..., object]:
    def in_stage(*args: object, **kwargs: object) -> Generator[object, object, object]:
        generator = function(*args, **kwargs)
        resume = functools.partial(next, generator)
        while True:
            try:
                with stage():
                    value = resume()
            except StopIteration as end:
                return end.value
            try:
                sent = yield value
            except GeneratorExit:
                with stage():
                    generator.close()
                raise
            except BaseException as error:  # noqa: BLE001 - handed on to the generator, whose it is
                resume = functools.partial(generator.throw, error)
            else:
                resume = functools.partial(generator.send, sent)

    return in_stage


def _async_generator(
    function: Callable[..., AsyncGenerator[object, object]], stage: Stage
) -> Callable[..., object]:
    async def in_stage(*args: object, **kwargs: object) -> AsyncGenerator[object, object]:
        generator = function(*args, **kwargs)
        resume: Callable[[], Coroutine[object, object, object]] = generator.__anext__
        while True:
            try:
                with stage():
                    value = await resume()
            except StopAsyncIteration:
                return
            try:
                sent = yield value
            except GeneratorExit:
                with stage():
                    await generator.aclose()
                raise
            except BaseException as error:  # noqa: BLE001 - handed on to the generator, whose it is
                resume = functools.partial(generator.athrow, error)
            else:
                resume = functools.partial(generator.asend, sent)

    return in_stage


def _caller() -> str:
    """``file:line`` of whoever makes a ``hang_detect``."""
    frame = sys._getframe(2)  # noqa: SLF001 - inspect.stack() reads source files, milliseconds a call
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
