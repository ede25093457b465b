"""Which processes an agent that was killed has left behind, of those that really run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest
from tests.jobs import until

from rankscope.agent.ending.left_behind import left_workers
from rankscope.diag import proc
from rankscope.diag.store.job import AgentFile, WorkerFile
from rankscope.watchdog import environment

RUN_ID = f"left-{os.getpid()}"
WAITS = "import sys; sys.stdin.read()"
HAS_A_CHILD = (
    "import subprocess, sys\n"
    f"subprocess.Popen([sys.executable, '-c', {WAITS!r}], start_new_session=True)\n"
    "sys.stdin.read()"
)
COMMAND = ("train.py", "--epochs=3")
Start = Callable[..., int]


@pytest.fixture
def gone() -> int:
    """Process id of an agent that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    return process.pid


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts workers of an agent; they end with their standard input."""
    started: list[subprocess.Popen[bytes]] = []

    def worker(
        agent: int,
        rank: int,
        *,
        run_id: str = RUN_ID,
        program: str = WAITS,
        command: Sequence[str] = COMMAND,
        **more: str,
    ) -> int:
        marks = {"TORCHELASTIC_RUN_ID": run_id, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        env = {**os.environ, **marks, environment.AGENT_PID: str(agent), **more}
        line = [sys.executable, "-c", program, *command]
        process = subprocess.Popen(line, env=env, stdin=subprocess.PIPE)
        started.append(process)
        until(lambda: bool(proc.environ(process.pid)), "the worker's start")
        return process.pid

    yield worker
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def of_agent(pid: int, *workers: int) -> AgentFile:
    written = tuple(
        WorkerFile(rank, rank, worker, proc.start_ticks(worker) or 0) for rank, worker in enumerate(workers)
    )
    return AgentFile("vm", pid, 1, "starting", workers=written)


def test_workers_that_were_written_down_are_found_once(start: Start, gone: int) -> None:
    pids = [start(gone, rank) for rank in range(2)]
    assert [(one.rank, one.pid) for one in left_workers(of_agent(gone, *pids), RUN_ID, COMMAND)] == [
        *enumerate(pids)
    ]


def test_workers_that_their_agent_could_not_write_down_are_found_by_its_number(
    start: Start, gone: int
) -> None:
    pids = {start(gone, rank) for rank in range(2)}
    found = left_workers(of_agent(gone), RUN_ID, COMMAND)
    assert {one.pid for one in found} == pids
    assert [one.start_ticks for one in found] == [proc.start_ticks(one.pid) for one in found]


def test_others_are_left_alone(start: Start, gone: int) -> None:
    start(gone, 0, run_id="another-job")
    start(os.getpid(), 0)
    start(gone, 0, RANK="no number")
    start(gone, 0, LOCAL_RANK="")
    start(gone, 0, command=("a-service-of-the-script",))
    start(gone, 0, command=())
    assert left_workers(of_agent(gone), RUN_ID, COMMAND) == ()


def test_what_a_worker_has_started_ends_with_it_and_is_none(start: Start, gone: int) -> None:
    pid = start(gone, 0, program=HAS_A_CHILD)
    until(lambda: len(proc.children(pid)) == 1, "the worker's child")
    until(lambda: bool(proc.environ(proc.children(pid)[0])), "its program")
    assert [one.pid for one in left_workers(of_agent(gone), RUN_ID, COMMAND)] == [pid]
