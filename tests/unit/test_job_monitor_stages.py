"""Open stages, from several threads, tasks and generators, against what the words promise."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import sys
import types
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.watchdog.job_monitor import hang_detect
from rankscope.watchdog.sdk.published import PUBLISHED
from rankscope.watchdog.sdk.scopes import OpenStage, Scopes

Limit = tuple[float | None, str]


def limit() -> float | None:
    return PUBLISHED._scopes.limit()[0]


def lines() -> list[int]:
    """Which lines of execution the open stages belong to, numbered in the order in which they appear."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(stage.line, len(numbers)) for stage in PUBLISHED._scopes.open()]


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    assert limit() is None
    yield
    assert PUBLISHED._scopes.open() == []


@pytest.fixture(scope="module")
def threads() -> Iterator[list[ThreadPoolExecutor]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(3)]


class Model:
    """What the documentation says, as plainly as it can be written down."""

    def __init__(self) -> None:
        self.open: list[tuple[int, float, int]] = []

    def limit(self) -> float | None:
        innermost = {line: seconds for line, seconds, _number in self.open}
        if not innermost:
            return None
        return -1 if -1 in innermost.values() else max(innermost.values())


LIMITS = st.sampled_from([-1.0, 0.5, 5.0, 60.0, 1800.0])
OPERATIONS = st.lists(
    st.tuples(st.just("enter"), st.integers(0, 2), LIMITS)
    | st.tuples(st.just("leave"), st.integers(0, 2), st.integers(0, 20)),
    max_size=40,
)


@settings(max_examples=200)
@given(OPERATIONS)
def test_stages_of_several_threads_in_any_order_follow_the_model(
    threads: list[ThreadPoolExecutor], operations: list[tuple[str, int, float]]
) -> None:
    model, entered = Model(), dict[int, hang_detect]()
    for number, (what, thread, value) in enumerate(operations):
        if what == "enter":
            entered[number] = stage = hang_detect(value)
            threads[thread].submit(stage.__enter__).result()
            model.open.append((thread, value, number))
        elif model.open:
            _line, _seconds, leaving = model.open.pop(int(value) % len(model.open))
            # In any thread: a stage may end elsewhere than it began.
            threads[thread].submit(entered.pop(leaving).__exit__, None, None, None).result()
        assert limit() == model.limit()
    for stage in entered.values():
        stage.__exit__(None, None, None)
    assert limit() is None


@given(OPERATIONS)
def test_the_pure_core_follows_the_model(operations: list[tuple[str, int, float]]) -> None:
    scopes, model, entered, lines = Scopes(), Model(), dict[int, OpenStage](), [object() for _ in range(3)]
    for number, (what, line, value) in enumerate(operations):
        if what == "enter":
            entered[number] = OpenStage(value, str(number), lines[line])
            scopes.enter(entered[number])
            model.open.append((line, value, number))
        elif model.open:
            scopes.leave(entered[model.open.pop(int(value) % len(model.open))[2]])
        found, name = scopes.limit()
        assert found == model.limit()
        assert found is None or entered[int(name)].seconds == found


def test_leaving_restores_the_outer_limit_also_by_an_exception() -> None:
    with hang_detect(60):
        with suppress(KeyError), hang_detect(-1):
            assert limit() == -1
            with hang_detect(5):
                assert limit() == 5
                raise KeyError
        assert limit() == 60
    assert limit() is None


def test_one_object_may_be_entered_within_itself_and_by_other_threads(
    threads: list[ThreadPoolExecutor],
) -> None:
    stage = hang_detect(7)
    with stage, stage:
        threads[0].submit(stage.__enter__).result()
        assert lines() == [0, 0, 1]
        stage.__exit__(None, None, None)
        assert lines() == [0, 1]  # its own entry went, not the other thread's, which is younger
        threads[0].submit(stage.__exit__, None, None, None).result()
        assert lines() == [0]
        stage.__enter__()
    stage.__exit__(None, None, None)  # once too often: nothing is open, nothing happens


def test_a_thread_that_is_gone_and_one_with_its_number_are_two() -> None:
    left_open, other = hang_detect(300), hang_detect(5)
    with ThreadPoolExecutor(1) as first:
        first.submit(left_open.__enter__).result()
    with ThreadPoolExecutor(1) as second:  # gets the ident of the first, as a rule
        second.submit(other.__enter__).result()
        assert limit() == 300
        second.submit(other.__exit__, None, None, None).result()
    left_open.__exit__(None, None, None)


def test_a_decorated_function_is_in_its_stage_and_keeps_its_face() -> None:
    @hang_detect(30)
    def evaluate(value: int, *, twice: bool = False) -> tuple[int, Limit]:
        """Doc."""
        return value * (1 + twice), PUBLISHED._scopes.limit()

    assert evaluate(4, twice=True) == (8, (30, evaluate.__qualname__))
    assert (evaluate.__name__, evaluate.__doc__) == ("evaluate", "Doc.")

    @hang_detect(30, name="saving")
    def fails() -> None:
        assert PUBLISHED._scopes.limit() == (30, "saving")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()


def test_a_block_is_called_by_its_place() -> None:
    with hang_detect(30):
        name = PUBLISHED._scopes.limit()[1]
    assert name.startswith("test_job_monitor_stages.py:")


def test_a_generator_is_in_its_stage_only_while_its_own_code_runs() -> None:
    @hang_detect(30)
    def batches() -> Generator[float | None, str, str]:
        said = ""
        try:
            while said != "enough":
                said = yield limit()
        except ValueError:
            yield limit()
        finally:
            seen.append(limit())
        return "the end"

    seen: list[float | None] = []
    running = batches()
    assert (next(running), limit()) == (30, None)
    assert (running.send("more"), limit()) == (30, None)
    with pytest.raises(StopIteration, match="the end"):
        running.send("enough")
    thrown = batches()
    next(thrown)
    assert (thrown.throw(ValueError), limit()) == (30, None)
    thrown.close()
    dropped = batches()
    next(dropped)
    del dropped
    gc.collect()
    assert seen == [30, 30, 30]
    assert list(zip(batches(), range(2), strict=False)) == [(30, 0), (30, 1)]


def test_a_block_inside_a_generator_that_is_dropped_is_left() -> None:
    def batches() -> Generator[float | None]:
        with hang_detect(30):
            yield limit()

    dropped = batches()
    assert (next(dropped), limit()) == (30, 30)
    del dropped
    gc.collect()
    assert limit() is None


def test_a_coroutine_is_in_its_stage_until_its_end_and_tasks_count_one_by_one() -> None:
    @hang_detect(100)
    async def long(until: asyncio.Event) -> float | None:
        await until.wait()
        return limit()

    async def short(until: asyncio.Event) -> float | None:
        with hang_detect(5):
            await until.wait()
            return limit()

    async def both() -> None:
        first, second = asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(long(first)), asyncio.create_task(short(second))]
        await asyncio.sleep(0)  # both run up to where they wait
        # The short one was entered later, in the same thread: it is not inside the long one.
        assert limit() == 100
        with hang_detect(-1):
            assert limit() == -1
        first.set()
        assert await tasks[0] == 100
        assert limit() == 5
        second.set()
        assert await tasks[1] == 5

    asyncio.run(both())


def test_a_cancelled_task_leaves_its_stage() -> None:
    async def waits() -> None:
        with hang_detect(5):
            await asyncio.Event().wait()

    async def cancel() -> None:
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        assert limit() == 5
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert limit() is None

    asyncio.run(cancel())


def test_an_asynchronous_generator_is_in_its_stage_only_while_its_own_code_runs() -> None:
    @hang_detect(30)
    async def batches() -> AsyncGenerator[float | None, str]:
        try:
            said = yield limit()
            while said != "enough":
                await asyncio.sleep(0)
                said = yield limit()
        except ValueError:
            yield limit()
        finally:
            seen.append(limit())

    seen: list[float | None] = []

    async def run() -> None:
        running = batches()
        assert (await running.__anext__(), limit()) == (30, None)
        assert (await running.asend("more"), limit()) == (30, None)
        with pytest.raises(StopAsyncIteration):
            await running.asend("enough")
        thrown = batches()
        await thrown.__anext__()
        assert (await thrown.athrow(ValueError), limit()) == (30, None)
        await thrown.aclose()

    asyncio.run(run())
    assert seen == [30, 30]


@pytest.mark.parametrize("started", [0, 1, 2])
def test_an_asynchronous_generator_that_is_open_when_the_loop_ends_is_closed_once(started: int) -> None:
    @hang_detect(30)
    async def batches() -> AsyncGenerator[float | None]:
        try:
            while True:
                yield limit()
        finally:
            await asyncio.sleep(0)
            seen.append(limit())

    seen: list[float | None] = []
    kept: list[AsyncGenerator[float | None]] = []
    complaints: list[object] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        kept.append(batches())
        for _ in range(started):
            assert await kept[0].__anext__() == 30

    asyncio.run(run())
    assert complaints == []
    assert seen == [30] * (started > 0)
    assert sys.get_asyncgen_hooks() == (None, None)


def test_a_coroutine_of_the_old_kind_can_be_awaited_and_is_in_its_stage_while_it_waits() -> None:
    @types.coroutine
    def old(until: asyncio.Event) -> Generator[Any, None, float | None]:
        yield from until.wait().__await__()
        return limit()

    decorated: Callable[[asyncio.Event], Any] = hang_detect(30)(functools.partial(old))

    async def run() -> None:
        until = asyncio.Event()

        async def waits() -> float | None:
            found: float | None = await decorated(until)
            return found

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        assert limit() == 30
        until.set()
        assert await task == 30

    asyncio.run(run())


def test_a_stage_that_one_task_began_and_another_ended_is_gone() -> None:
    stage = hang_detect(30)

    async def run() -> None:
        await asyncio.create_task(asyncio.to_thread(stage.__enter__))
        assert limit() == 30
        await asyncio.create_task(_leave(stage))

    asyncio.run(run())
    assert limit() is None


async def _leave(stage: hang_detect) -> None:
    stage.__exit__(None, None, None)


Nested = Callable[[Scopes], list[OpenStage]]


def nothing(_scopes: Scopes) -> list[OpenStage]:
    return []


def asks(scopes: Scopes) -> list[OpenStage]:
    scopes.limit()
    return []


def enters(scopes: Scopes) -> list[OpenStage]:
    left, stays = OpenStage(99, "left", LINES[0]), OpenStage(30, "stays", LINES[0])
    scopes.enter(left)
    scopes.enter(stays)
    scopes.limit()
    scopes.leave(left)
    scopes.limit()
    return [stays]


def loses(scopes: Scopes) -> list[OpenStage]:
    scopes.enter(OpenStage(99, "lost", LINES[1]))
    return []


def leaves_the_outer_one(scopes: Scopes) -> list[OpenStage]:
    for stage in scopes.open():
        if stage.name == "outer":
            scopes.leave(stage)
    return []


LINES = (object(), object())


def interrupted(at: int, call: Callable[[], object], handler: Callable[[], None]) -> bool:
    """Call ``call`` and run ``handler`` before its bytecode number ``at`` in scopes.py, if it has so many."""
    seen = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.endswith("scopes.py"):
            return None
        frame.f_trace_opcodes = True
        seen += event == "opcode"
        if event == "opcode" and seen == at:
            sys.settrace(None)
            handler()
            return None
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(ZeroDivisionError):
            call()
    finally:
        sys.settrace(before)
    return seen >= at


class Open:
    """Two lines with stages, one of them inside another; all of them have been looked at."""

    def __init__(self) -> None:
        self.scopes = Scopes()
        self.outer = OpenStage(60, "outer", LINES[0])
        self.inner = OpenStage(5, "inner", LINES[0])
        self.new = OpenStage(40, "new", LINES[1])
        self.stages = [self.outer, self.inner, OpenStage(20, "other", LINES[1])]
        for stage in self.stages:
            self.scopes.enter(stage)
            self.scopes.limit()

    def enter(self) -> None:
        self.stages.append(self.new)
        try:
            self.scopes.enter(self.new)
        except ZeroDivisionError:
            self.scopes.leave(self.new)  # as ``PUBLISHED.enter`` does

    def leave(self) -> None:
        try:
            self.scopes.leave(self.inner)
        except ZeroDivisionError:
            self.scopes.leave(self.inner)  # its object is still inside, and leaves again or goes

    def limit(self) -> None:
        self.scopes.limit()

    def make_stale(self) -> None:
        for _ in range(200):
            passing = OpenStage(1, "passing", LINES[1])
            self.scopes.enter(passing)
            self.scopes.leave(passing)

    def check(self) -> None:
        still = [stage for stage in self.stages if not stage.ended]
        assert self.scopes.limit()[0] == max({stage.line: stage.seconds for stage in still}.values())
        assert set(self.scopes.open()) == set(still)


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("nested", [nothing, asks, enters, loses, leaves_the_outer_one])
@pytest.mark.parametrize("operation", ["enter", "leave", "limit", "limit of many"])
def test_an_interruption_at_any_point_leaves_what_is_true(
    operation: str, nested: Nested, *, raises: bool
) -> None:
    """A finalizer or signal handler that works with stages, and may raise, while its own thread does."""

    def handler() -> None:
        here.stages.extend(nested(here.scopes))
        if raises:
            raise ZeroDivisionError

    for at in itertools.count(1):
        here = Open()
        if operation == "limit of many":
            here.make_stale()
        call = {"enter": here.enter, "leave": here.leave}.get(operation, here.limit)
        if not interrupted(at, call, handler):
            assert at > 20
            return
        here.check()


def test_many_stages_at_once_cost_what_each_costs_alone() -> None:
    """Counted in steps of the interpreter: time is the machine's."""

    def steps(count: int) -> int:
        counted = 0

        def trace(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal counted
            counted += 1
            return trace if "sdk" in frame.f_code.co_filename else None

        shared, release = hang_detect(60), asyncio.Event()

        async def waits() -> None:
            with shared, hang_detect(5):
                await release.wait()

        async def run() -> None:
            tasks = [asyncio.create_task(waits()) for _ in range(count)]
            await asyncio.sleep(0)
            assert limit() == 5
            release.set()
            await asyncio.gather(*tasks)

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            asyncio.run(run())
        finally:
            sys.settrace(before)
        return counted

    few, many = steps(50), steps(400)
    assert many < 8 * 1.5 * few


def test_a_stage_whose_block_went_without_leaving_it_is_over() -> None:
    """A signal handler that raises at the very beginning of ``__exit__`` does that to a block."""
    stage = hang_detect(5)
    stage.__enter__()
    assert limit() == 5
    del stage
    assert limit() is None
