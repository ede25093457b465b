"""What an observation says of a real worker: a tool's moment is no stop, a compiler is no loader worker."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Generator

import pytest
from tests.capture_factory import first_line, running, traced, wait_until, waiting_process

from rankscope.agent.observing.observer import Observer
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag import proc

WITH_A_CHILD = """
import multiprocessing, subprocess, sys, time
if __name__ == "__main__":
    if sys.argv[1] == "program":
        subprocess.Popen(["sleep", "1000"])
    else:
        multiprocessing.get_context(sys.argv[1]).Process(target=time.sleep, args=(1000,)).start()
    print("ready", flush=True)
    time.sleep(1000)
"""


@contextlib.contextmanager
def observed(process: subprocess.Popen[bytes]) -> Generator[Observer]:
    worker = WorkerRef(0, 0, process.pid, proc.start_ticks(process.pid) or 0)
    launch = Launch(workers=(worker,), restart_count=0, world_size=1, group_rank=0)
    observer = Observer(launch, None, timer_calls=dict, log_sizes=dict)
    try:
        yield observer
    finally:
        observer.close()


@pytest.mark.parametrize(("start", "counts"), [("fork", True), ("spawn", True), ("program", False)])
def test_only_a_child_that_runs_the_ranks_code_may_be_warming_up(start: str, *, counts: bool) -> None:
    with running(WITH_A_CHILD, argv=(start,)) as process, observed(process) as observer:
        assert first_line(process) == ["ready"]

        def born() -> float | None:
            (seen,) = observer.observe(time.monotonic(), with_children=True)
            return seen.youngest_child_born

        # Right after the fork a program has the rank's command line still.
        wait_until(lambda: (born() is not None) is counts)


def test_what_a_look_had_a_worker_write_is_none_of_its_io() -> None:
    with waiting_process() as process, observed(process) as observer:
        (before,) = observer.observe(time.monotonic(), with_children=False)
        for _ in range(2):
            observer.looked_at(process.pid, 100)
        (after,) = observer.observe(time.monotonic(), with_children=False)
        assert after.io_bytes == before.io_bytes - 200


@pytest.mark.parametrize(("tool", "state"), [("py-spy", "S"), ("pystack", "S"), ("gdb", "t")])
def test_a_worker_that_a_tool_holds_is_stopped_only_for_a_debugger(tool: str, state: str) -> None:
    with (
        waiting_process() as process,
        observed(process) as observer,
        traced(process.pid, name=tool, stopped=True),
    ):
        (seen,) = observer.observe(time.monotonic(), with_children=False)
        assert seen.state == state
