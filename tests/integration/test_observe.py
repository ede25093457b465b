"""A worker that somebody traces: a capture tool's moment is no stop, a debugger's is."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from tests.capture_factory import waiting_process

from rankscope.agent.observe import Observer
from rankscope.agent.workers import Launch, WorkerRef
from rankscope.diag import proc

TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
set_name, attach = 15, 16
libc.prctl(set_name, sys.argv[1].encode(), 0, 0, 0)
pid = int(sys.argv[2])
assert libc.ptrace(attach, pid, None, None) == 0, os.strerror(ctypes.get_errno())
os.waitpid(pid, 0x40000000)  # __WALL
print("traced", flush=True)
sys.stdin.read()
"""


def test_what_a_look_had_a_worker_write_is_none_of_its_io() -> None:
    with waiting_process() as process:
        worker = WorkerRef(0, 0, process.pid, proc.start_ticks(process.pid) or 0)
        launch = Launch(workers=(worker,), restart_count=0, world_size=1, group_rank=0)
        observer = Observer(launch, None, timer_calls=dict, log_sizes=dict)
        try:
            (before,) = observer.observe(time.monotonic(), with_children=False)
            for _ in range(2):
                observer.looked_at(process.pid, 100)
            (after,) = observer.observe(time.monotonic(), with_children=False)
            assert after.io_bytes == before.io_bytes - 200
        finally:
            observer.close()


@pytest.mark.parametrize(("tool", "state"), [("py-spy", "S"), ("pystack", "S"), ("gdb", "t")])
def test_a_worker_that_a_tool_holds_is_stopped_only_for_a_debugger(tool: str, state: str) -> None:
    with waiting_process() as process:
        worker = WorkerRef(0, 0, process.pid, proc.start_ticks(process.pid) or 0)
        launch = Launch(workers=(worker,), restart_count=0, world_size=1, group_rank=0)
        observer = Observer(launch, None, timer_calls=dict, log_sizes=dict)
        tracer = subprocess.Popen(
            [sys.executable, "-c", TRACER, tool, str(process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert tracer.stdout is not None
            assert tracer.stdout.readline() == "traced\n"
            (seen,) = observer.observe(time.monotonic(), with_children=False)
            assert seen.state == state
        finally:
            tracer.communicate(timeout=30)
            observer.close()
