"""The timers' server over time: stepped clocks, stopped processes, idleness, and whose timers count."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.timers_factory import (
    OUR_BLOCKS,
    OUR_CLIENT,
    Starter,
    Watched,
    a_watched_server,
    finished,
    let_pass,
    programs,
    said,
    tell,
    until,
)
from torch.distributed.elastic.timer.file_based_local_timer import FileTimerClient as TorchClient

from rankscope.watchdog.timers import FileTimerClient, FileTimerServer

# A server whose wall clock can be stepped, as by an administrator: ``time.time`` is all that it reads of it.
SERVER = """
import json, sys, time
from rankscope.watchdog.timers import FileTimerServer
true_time, offset = time.time, 0.0
time.time = lambda: true_time() + offset
expired = []
def on_expired(pid, requests):
    expired.extend(request.scope_id for request in requests)
server = FileTimerServer(sys.argv[1], "run", on_expired=on_expired)
server.start()
print("ready", flush=True)
for line in sys.stdin:
    offset += float(line)
    running = {timer.scope: timer.seconds_left for timer in server.active_timers()}
    print(json.dumps([expired, running, server.counts().requests]), flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "timers")


@pytest.fixture
def program() -> Generator[Starter]:
    yield from programs()


@pytest.fixture
def watched(path: str) -> Generator[Watched]:
    yield from a_watched_server(path)


class Serving:
    """A server in a process of its own."""

    def __init__(self, program: Starter, path: str) -> None:
        self.process = program(SERVER, path)
        assert said(self.process) == "ready"

    def state(self, *, step: float = 0.0) -> tuple[list[str], dict[str, float], int]:
        """Scopes that expired, seconds left by scope, requests read; after a step of its wall clock."""
        tell(self.process, str(step))
        expired, running, requests = json.loads(said(self.process))
        return expired, running, requests

    def expired(self) -> list[str]:
        return self.state()[0]

    def running(self) -> dict[str, float]:
        return self.state()[1]


# Stepped clocks.


@pytest.mark.parametrize("step", [3600.0, -3600.0], ids=["forwards", "backwards"])
def test_a_step_of_the_wall_clock_fires_nothing_and_delays_nothing(
    path: str, program: Starter, step: float
) -> None:
    serving = Serving(program, path)
    ours = FileTimerClient(path)
    TorchClient(path).acquire("torch's", time.time() + 60)
    ours.acquire("ours", time.time() + 60)
    until(lambda: len(serving.running()) == 2)
    serving.state(step=step)
    # Read after the step, as from a worker that did not see it in time.
    ours.acquire("after", time.time() + 60)
    until(lambda: len(serving.running()) == 3)
    assert serving.expired() == []
    assert all(0 < left <= 60 for left in serving.running().values())
    ours.acquire("due", time.time() + 0.05)
    until(lambda: serving.expired() == ["due"])


STEPPED_WORKER = """
import sys, time
true_time, offset = time.time, 0.0
time.time = lambda: true_time() + offset
client = FileTimerClient(sys.argv[1])
with expires(after=60, scope="before", client=client):
    offset = -3600.0
    with expires(after=60, scope="backwards", client=client):
        offset = 3600.0
        with expires(after=60, scope="forwards", client=client):
            print("inside", flush=True)
            sys.stdin.readline()
print("outside", flush=True)
sys.stdin.readline()
"""


def test_a_step_of_the_workers_clock_moves_no_timer(path: str, watched: Watched, program: Starter) -> None:
    worker = program(OUR_BLOCKS + STEPPED_WORKER, path)
    assert said(worker) == "inside"
    until(lambda: watched.requests() == 3)
    running = watched.server.active_timers()
    assert [timer.scope for timer in running] == ["before", "backwards", "forwards"]
    assert all(0 < timer.seconds_left <= 60 for timer in running)
    tell(worker)
    assert said(worker) == "outside"
    until(lambda: watched.scopes() == [])
    assert watched.expired == []


# Stopped processes.

WORKING = """
import sys, threading, time
client = FileTimerClient(sys.argv[1])
with expires(after=2.0, scope="block", client=client):
    print("inside", flush=True)
    for _ in range(40):
        threading.Event().wait(0.025)  # a second's work, however long it takes
print("outside", flush=True)
sys.stdin.readline()
"""


def stop(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)


def go_on(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        os.kill(process.pid, signal.SIGCONT)


@pytest.mark.parametrize("seconds", [1.75, 4.0], ids=["to just after the expiry", "for long"])
def test_a_machine_that_stood_still_is_no_hang(path: str, program: Starter, seconds: float) -> None:
    serving = Serving(program, path)
    worker = program(OUR_BLOCKS + WORKING, path)
    assert said(worker) == "inside"
    until(serving.running)
    let_pass(0.4)
    stop(worker, serving.process)
    let_pass(seconds)
    go_on(serving.process, worker)
    assert said(worker) == "outside"
    until(lambda: serving.running() == {})
    assert serving.expired() == []


def test_a_worker_that_was_stopped_alone_has_expired(path: str, program: Starter) -> None:
    serving = Serving(program, path)
    worker = program(OUR_BLOCKS + WORKING, path)
    assert said(worker) == "inside"
    stop(worker)
    until(lambda: serving.expired() == ["block"])
    go_on(worker)
    assert said(worker) == "outside"


# Idleness.


def switches_of(name: str) -> int:
    (thread,) = (thread for thread in threading.enumerate() if thread.name == name)
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)


@pytest.mark.parametrize(("after", "most"), [(60.0, 4), (1e13, 0)], ids=["in a minute", "never"])
def test_while_a_timer_runs_the_server_wakes_seldom(
    path: str, watched: Watched, after: float, most: int
) -> None:
    client = FileTimerClient(path)
    client.acquire("s", time.time() + after)
    until(lambda: watched.requests() == 1)
    let_pass(0.1)
    before = switches_of("rankscope-timers")
    let_pass(1.0)
    # A waking is two switches: out of the poll, and out of the rest that follows.
    assert switches_of("rankscope-timers") - before <= most


# Whose timers count.


def test_a_worker_may_be_quicker_than_the_agent_learns_its_pid(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    known: set[int] = set()
    watched = Watched(path, is_known_pid=known.__contains__)
    watched.server.start()
    client = FileTimerClient(path)
    with caplog.at_level(logging.WARNING):
        client.acquire("first", time.time() + 60)
        client.acquire("second", time.time() + 70)
        client.release("first")
        let_pass(0.1)
        assert watched.scopes() == []
        known.add(os.getpid())
        until(lambda: watched.scopes() == ["second"])
    assert (watched.requests(), watched.server.counts().skipped) == (3, {})
    assert not caplog.records
    watched.server.stop()


def test_a_process_that_a_restart_has_left_behind_raises_no_suspicion(path: str, program: Starter) -> None:
    left_behind: set[int] = set()
    watched = Watched(path, is_known_pid=lambda pid: pid not in left_behind)
    watched.server.start()
    text = "import sys, time\n" + OUR_CLIENT
    text += "FileTimerClient(sys.argv[1]).acquire('orphan', time.time() + 0.5); sys.stdin.readline()"
    orphan = program(text, path)
    until(lambda: watched.scopes() == ["orphan"])
    left_behind.add(orphan.pid)
    FileTimerClient(path).acquire("mine", time.time() + 1.0)
    until(lambda: watched.expired)
    assert watched.expired == [(os.getpid(), ["mine"])]
    tell(orphan)
    finished(orphan)
    watched.server.stop()


def test_a_signal_that_does_not_exist_is_none(path: str, watched: Watched) -> None:
    client = FileTimerClient(path, 9999)
    client.acquire("s", time.time())
    until(lambda: watched.expired)
    assert watched.server.counts().skipped == {}


# The server's own life.


def test_a_server_without_a_thread_leaves_no_pipe(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    server = FileTimerServer(path, "run")
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(OSError, match="can't start new thread"):
        server.start()
    assert not Path(path).exists()
    server.stop()


RELATIVE_SERVER = """
import os
from rankscope.watchdog.timers import FileTimerServer
server = FileTimerServer("timers", "run")
server.start()
os.chdir("/")
server.start()
server.stop()
"""


def test_a_server_takes_its_pipe_away_after_a_change_of_folder(path: str, program: Starter) -> None:
    finished(program(RELATIVE_SERVER, folder=str(Path(path).parent)))
    assert list(Path(path).parent.iterdir()) == []
