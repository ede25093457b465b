"""Stopping processes: together, in bounded time, and what cannot be ended is told. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from tests.standing import stand_still

from rankscope.agent.workers.model import WorkerRef
from rankscope.agent.workers.stopping import stop_processes
from rankscope.diag import proc

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
POLITE = "import signal; print('up', flush=True); signal.pause()"
Start = Callable[[str], WorkerRef]


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[subprocess.Popen[bytes]] = []

    def one(program: str) -> WorkerRef:
        command = [sys.executable, "-I", "-S", "-c", program]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        number = len(children) - 1
        return WorkerRef(number, number, child.pid, proc.start_ticks(child.pid) or 0)

    yield one
    for child in children:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def ended_by(worker: WorkerRef) -> int:
    """The signal that ended a child that nobody has reaped."""
    found = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
    assert found is not None
    return found.si_status


def test_all_get_the_signal_at_once_and_nobody_is_reaped(start: Start) -> None:
    workers = [start(POLITE) for _ in range(3)]
    assert stop_processes(workers, death_sig=signal.SIGINT, timeout=60.0, as_groups=True) == ()
    assert [ended_by(worker) for worker in workers] == [signal.SIGINT] * 3


def test_those_that_ignore_it_get_sigkill_together(start: Start) -> None:
    workers = [start(DEAF) for _ in range(4)]
    began = time.monotonic()
    assert stop_processes(workers, death_sig=signal.SIGTERM, timeout=0.5, as_groups=True) == ()
    assert time.monotonic() - began < 4 * 0.5
    assert [ended_by(worker) for worker in workers] == [signal.SIGKILL] * 4


def test_a_stopped_one_is_continued_and_takes_the_signal(start: Start) -> None:
    worker = start(POLITE)
    stand_still(worker.pid)
    assert stop_processes([worker], death_sig=signal.SIGTERM, timeout=60.0, as_groups=False) == ()
    assert ended_by(worker) == signal.SIGTERM


def test_the_third_asking_is_answered_by_sigkill(start: Start) -> None:
    worker = start(DEAF)
    askings = iter([1, 1, 2])
    stop_processes(
        [worker],
        death_sig=signal.SIGTERM,
        timeout=60.0,
        as_groups=True,
        askings=lambda: next(askings, 3),
    )
    assert ended_by(worker) == signal.SIGKILL


def test_a_process_with_the_pid_of_a_worker_that_is_gone_is_left_alone(start: Start) -> None:
    worker = start(POLITE)
    other = WorkerRef(0, 0, worker.pid, worker.start_ticks - 1)
    assert stop_processes([other], death_sig=signal.SIGKILL, timeout=1.0, as_groups=True) == ()
    facts = proc.read_facts(worker.pid, now=time.monotonic())
    assert facts is not None
    assert facts.state in "RS"


def test_threads_that_outlive_their_main_thread_are_waited_for(start: Start) -> None:
    # The main thread ends (state Z) while another one still runs: the process has not ended.
    program = (
        "import ctypes, signal, threading\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "print('up', flush=True)\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"
    )
    worker = start(program)
    assert stop_processes([worker], death_sig=signal.SIGTERM, timeout=0.3, as_groups=True) == ()
    assert ended_by(worker) == signal.SIGKILL
