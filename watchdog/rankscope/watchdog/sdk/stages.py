"""``hang_detect``: a limit of its own for a block, a function, a coroutine or a generator.

It knows what each kind of function needs so that the stage covers its work, and nothing of how the limit
reaches the agent (``published``).
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TypeGuard, TypeVar, cast

from rankscope.watchdog.sdk.config import seconds_or_off
from rankscope.watchdog.sdk.execution import current_line
from rankscope.watchdog.sdk.published import PUBLISHED
from rankscope.watchdog.sdk.scopes import OpenStage
from rankscope.watchdog.sdk.untraced import untraced

Function = TypeVar("Function", bound=Callable[..., object])
_Entered = tuple[OpenStage, "_Entered | None"]
"""What one line has entered through one object: the last, and what it had entered before."""


class hang_detect:  # noqa: N801 - AIMaster's name, used as a function
    """A limit for a stage of the training, in place of the rank's and the job's own limits.

    As a context manager (``with jm.hang_detect(1800):``) or decorator (``@jm.hang_detect(1800)``); one
    object may be used many times, by many threads, also within itself. While the stage lasts, silence is a
    hang after ``seconds``; leaving it, also by an exception, restores what held around it.

    In one thread or asyncio task the innermost stage counts, of several the largest limit, and off wins. A
    decorated coroutine is in its stage from its first step to its end; a decorated generator only while its
    own code runs, not while the caller works on what it has yielded.
    """

    @untraced
    def __init__(self, seconds: float, *, name: str = "") -> None:
        """Check the limit.

        Args:
            seconds: the limit; -1 switches detection off for the stage.
            name: what the stage is called in records; by default the function's name or ``file:line``.

        Raises:
            TypeError: ``seconds`` is no number, ``name`` no string.
            ValueError: it is neither positive and finite nor -1.
        """
        self._open: dict[object, _Entered] = {}
        self._seconds = seconds_or_off(seconds, "hang_detect")
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - the user's argument
            raise TypeError(f"name={name!r}: a string expected")
        self._given_name = name
        self._name = name or _caller()

    @untraced
    def __enter__(self) -> hang_detect:  # noqa: PYI034 - Self is of Python 3.11
        """Enter the stage."""
        line = current_line()
        stage = OpenStage(self._seconds, self._name, line)
        try:
            self._open[line] = (stage, self._open.get(line))
            PUBLISHED.enter(stage)
        except BaseException:
            # Raised by a signal handler: the block is not entered, so it will not be left.
            self._drop(stage)
            raise
        return self

    @untraced
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        """Leave the stage: the one that this thread or task has entered last, if it has entered any."""
        entered = self._open.get(current_line())
        if entered is None:
            # Another line's, which is rare: the youngest line that is inside.
            entered = next(reversed(list(self._open.values())), None)
        if entered is not None:
            self._drop(entered[0])

    def _drop(self, stage: OpenStage) -> None:
        PUBLISHED.leave(stage)
        entered = self._open.get(stage.line)
        while entered is not None and entered[0].ended:
            entered = entered[1]
        if entered is None:
            self._open.pop(stage.line, None)
        else:
            self._open[stage.line] = entered

    def __call__(self, function: Function) -> Function:
        """Decorate a function, coroutine function, generator function or asynchronous generator function.

        Raises:
            TypeError: ``function`` cannot be called, or is a class.
        """
        import inspect  # what torch imports anyway; a script without torch may do without

        if isinstance(function, type) or not callable(function):
            # A class would become a function, which is no class to anybody who asks or inherits.
            raise TypeError(f"hang_detect decorates functions, not {function!r}")
        name = self._given_name or str(getattr(function, "__qualname__", type(function).__qualname__))
        stage = functools.partial(hang_detect, self._seconds, name=name)
        if inspect.isasyncgenfunction(function):
            wrapped = _async_generator(function, stage)
        elif _is_old_coroutine(function, inspect.CO_ITERABLE_COROUTINE):
            wrapped = _old_coroutine(function, stage)
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


def _is_old_coroutine(
    function: Callable[..., object], flag: int
) -> TypeGuard[Callable[..., Generator[object, object, object]]]:
    """Whether ``types.coroutine`` made it: inspect sees the generator alone, which cannot be awaited."""
    inner: object = function
    while isinstance(inner, functools.partial):
        inner = cast("functools.partial[object]", inner).func
    return bool(getattr(getattr(inner, "__code__", None), "co_flags", 0) & flag)


def _old_coroutine(
    function: Callable[..., Generator[object, object, object]], stage: Stage
) -> Callable[..., object]:
    @types.coroutine
    def in_stage(*args: object, **kwargs: object) -> Generator[object, object, object]:
        with stage():
            return (yield from function(*args, **kwargs))

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
        resume: Callable[[], Coroutine[object, object, object]] = functools.partial(_first, generator)
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


def _first(generator: AsyncGenerator[object, object]) -> Coroutine[object, object, object]:
    """Begin a generator that no loop is to know: at its end it would close this one and ours at once."""
    hooks = sys.get_asyncgen_hooks()
    try:
        sys.set_asyncgen_hooks(None, None)
        return generator.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)


def _caller() -> str:
    """``file:line`` of whoever makes a ``hang_detect``."""
    frame = sys._getframe(2)  # noqa: SLF001 - inspect.stack() reads source files, milliseconds a call
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
