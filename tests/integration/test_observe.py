"""A worker that somebody traces: a capture tool's moment is no stop, a debugger's is."""

from __future__ import annotations

import time

import pytest
from tests.capture_factory import traced, waiting_process

from rankscope.agent.observe import Observer
from rankscope.agent.workers import Launch, WorkerRef
from rankscope.diag import proc


@pytest.mark.parametrize(("tool", "state"), [("py-spy", "S"), ("pystack", "S"), ("gdb", "t")])
def test_a_worker_that_a_tool_holds_is_stopped_only_for_a_debugger(tool: str, state: str) -> None:
    with waiting_process() as process:
        worker = WorkerRef(0, 0, process.pid, proc.start_ticks(process.pid) or 0)
        launch = Launch(workers=(worker,), restart_count=0, world_size=1, group_rank=0)
        observer = Observer(launch, None, timer_calls=dict, log_sizes=dict)
        try:
            with traced(process.pid, name=tool, stopped=True):
                (seen,) = observer.observe(time.monotonic(), with_children=False)
                assert seen.state == state
        finally:
            observer.close()
