"""One process context a worker: workers that are functions, and what both kinds leave behind."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.async_factory import FORKS, contexts, ends_of, handlers_of_before, shell
from tests.jobs import until
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.numa.binding import AffinityMode, NumaOptions

from rankscope.agent.async_mode.contexts import Contexts
from rankscope.agent.async_mode.numa import BoundFunction
from rankscope.agent.async_mode.worker import FunctionWorker
from rankscope.agent.logs.process import LogCapture
from rankscope.agent.logs.specs import CapturedLogsSpecs
from rankscope.agent.workers.process_context import leads_groups
from rankscope.watchdog import environment
from rankscope.watchdog.probe.entry import redirect


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    with handlers_of_before():
        yield


@pytest.fixture
def specs(tmp_path: Path) -> DefaultLogsSpecs:
    return DefaultLogsSpecs(log_dir=str(tmp_path / "logs"), redirects=Std.ALL)


def descriptors() -> set[str]:
    gc.collect()
    return {entry.name for entry in Path("/proc/self/fd").iterdir() if os.path.lexists(entry)}


def more_than_the_rank(number: int) -> int:
    return number + int(os.environ["RANK"])


def fail_the_first_time(_unused: int) -> str:
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("the first time")
    return "well"


def end_without_a_value(_unused: int) -> None:
    os._exit(0)


def test_a_spawned_function_returns_its_value(specs: DefaultLogsSpecs) -> None:
    started = contexts(specs, more_than_the_rank, [(2,)])
    try:
        ends = ends_of(started)
        assert {rank: (end.code, end.value) for rank, end in ends.items()} == {0: (0, 2)}
        assert not leads_groups(started)
    finally:
        started.close()


@FORKS
def test_a_function_that_raised_is_started_again(
    specs: DefaultLogsSpecs, caplog: pytest.LogCaptureFixture
) -> None:
    started = contexts(specs, fail_the_first_time, [(0,)], start_method="fork")
    try:
        ends = ends_of(started)
        failure = started.failure(0, ends[0])
        assert failure.exitcode == 1
        assert "ValueError: the first time" in str(failure.message)
        assert "ValueError: the first time" in caplog.text
        started.release(0)
        started.start_again(0, started.env(0), restarts=1)
        assert {rank: (end.code, end.value) for rank, end in ends_of(started).items()} == {0: (0, "well")}
        started.release(0)
    finally:
        started.close()


@FORKS
def test_a_function_that_ends_its_process_with_0_is_done(specs: DefaultLogsSpecs) -> None:
    # torch waits for its value for ever.
    started = contexts(specs, end_without_a_value, [(0,)], start_method="fork")
    try:
        assert (ends_of(started)[0].code, started.poll()) == (0, {})
    finally:
        started.close()


@FORKS
@pytest.mark.parametrize("kind", [shell, contexts], ids=["commands", "functions"])
def test_many_starts_leave_no_descriptor_thread_or_zombie(
    kind: Callable[..., Contexts], tmp_path: Path
) -> None:
    specs = DefaultLogsSpecs(log_dir=str(tmp_path / "logs"), tee=Std.ALL)
    if kind is shell:
        started = shell(specs, "exit 1")
    else:
        started = contexts(specs, fail_the_first_time, [(0,)], start_method="fork")
    descriptors_then, threads_then = 0, 0
    for count in range(1, 6):
        ends_of(started)
        started.release(0)
        if count > 1:
            assert (len(descriptors()), threading.active_count()) == (descriptors_then, threads_then)
        descriptors_then, threads_then = len(descriptors()), threading.active_count()
        started.start_again(0, {**started.env(0), "TORCHELASTIC_RESTART_COUNT": "0"}, restarts=count)
    started.close()
    with pytest.raises(ChildProcessError):
        # No child is left to wait for but the helpers of multiprocessing.
        os.waitpid(started.pids()[0], os.WNOHANG)


@FORKS
def test_captured_output_of_a_function_goes_through_new_pipes_at_every_start(tmp_path: Path) -> None:
    events: list[str] = []
    capture = LogCapture(tmp_path / "fifos", events.append, one_console=False)
    assert capture.start()
    specs = CapturedLogsSpecs(capture, tmp_path / "logs", function_entrypoint=True, local_ranks_filter={7})
    started = contexts(specs, say_the_restart_count, [(0,)], start_method="fork")
    try:
        ends_of(started)
        started.release(0)
        started.start_again(0, started.env(0), restarts=1)
        assert ends_of(started)[0].code == 0
        started.release(0)
    finally:
        started.close()
        capture.finish(10.0)
    for count in ("0", "1"):
        assert (tmp_path / "logs" / f"attempt_{count}" / "0" / "stdout.log").read_text() == f"start {count}\n"
    assert events == []


def say_the_restart_count(_unused: int) -> None:
    assert redirect(environment.STDOUT, fd=1)
    count = os.environ["TORCHELASTIC_RESTART_COUNT"]
    os.write(1, f"start {count}\n".encode())
    assert count != "0"


def test_a_bound_function_travels_to_its_process_and_returns_what_it_returns() -> None:
    options = NumaOptions(affinity_mode=AffinityMode.NODE, should_fall_back_if_binding_fails=True)
    bound = pickle.loads(pickle.dumps(BoundFunction(divided, options, gpu=1)))
    assert bound.__qualname__ == "divided"
    # Without GPUs torch binds nothing, and goes on as it was told.
    assert bound(6, by=2) == 3


def divided(number: int, *, by: int) -> int:
    return number // by


@FORKS
def test_a_function_killed_while_it_hands_over_its_value_holds_nobody_up(specs: DefaultLogsSpecs) -> None:
    started = contexts(specs, a_value_of_bytes, [(16 << 20,)], start_method="fork")
    try:
        (worker,) = started._workers.values()
        assert isinstance(worker, FunctionWorker)
        until(lambda: not worker._queue.empty(), "the first bytes of the value")
        os.kill(worker.pid, signal.SIGKILL)
        until(lambda: worker.process.exitcode is not None, "its end")
        assert {rank: (end.code, end.value) for rank, end in ends_of(started).items()} == {
            0: (-signal.SIGKILL, None)
        }
        started.release(0)
    finally:
        started.close()


def a_value_of_bytes(size: int) -> bytes:
    return bytes(size)
