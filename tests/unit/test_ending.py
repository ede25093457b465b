"""The end of workers: evidence once, within its budget, whoever comes first. Real processes and threads."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from rankscope.agent.ending.order import Ending
from rankscope.agent.ending.signals import StopSignals
from rankscope.agent.workers.model import WorkerRef
from rankscope.diag import proc


@pytest.fixture
def worker() -> Iterator[WorkerRef]:
    command = [sys.executable, "-I", "-S", "-c", "print('up', flush=True); import signal; signal.pause()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        yield WorkerRef(0, 0, child.pid, proc.start_ticks(child.pid) or 0)
        child.kill()


def an_ending(worker: WorkerRef, said: list[str]) -> Ending:
    return Ending((worker,), as_groups=True, signals=StopSignals(), stopping=lambda: said.append("stopping"))


def is_running(worker: WorkerRef) -> bool:
    facts = proc.read_facts(worker.pid, now=time.monotonic())
    return facts is not None and facts.state not in "ZX"


def test_evidence_is_taken_once_while_the_workers_still_run(worker: WorkerRef) -> None:
    said: list[str] = []
    ending = an_ending(worker, said)

    def take(_deadline: float) -> None:
        said.append(f"evidence, running: {is_running(worker)}")

    for _ in range(2):
        ending.stop(take, budget=60.0, death_sig=signal.SIGTERM, timeout=60.0)
    assert said == ["evidence, running: True", "stopping"]
    assert not is_running(worker)
    assert ending.left == ()


def test_a_look_that_never_comes_back_costs_its_budget_and_no_more(worker: WorkerRef) -> None:
    forever = threading.Event()
    began = time.monotonic()
    ending = an_ending(worker, [])

    def take(_deadline: float) -> None:
        forever.wait()

    ending.stop(take, budget=0.3, death_sig=signal.SIGTERM, timeout=60.0)
    assert 0.3 <= time.monotonic() - began < 60.0
    assert not is_running(worker)
    forever.set()
    ending.finish(60.0)


def test_when_all_is_seen_the_workers_end_while_it_is_stored(worker: WorkerRef) -> None:
    said: list[str] = []
    stored = threading.Event()
    ending = an_ending(worker, said)

    def take(_deadline: float) -> None:
        ending.enough()
        said.append(f"stored by {stored.wait(60.0)}")

    ending.stop(take, budget=60.0, death_sig=signal.SIGTERM, timeout=60.0)
    assert said == ["stopping"]
    assert not is_running(worker)
    stored.set()
    ending.finish(60.0)
    assert said == ["stopping", "stored by True"]


def test_a_look_that_fails_is_in_nobodys_way(worker: WorkerRef, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_deadline: float) -> None:
        raise RuntimeError("no disk, no tool, nothing")

    an_ending(worker, []).stop(fail, budget=60.0, death_sig=signal.SIGTERM, timeout=60.0)
    assert not is_running(worker)
    assert "could not take evidence" in caplog.text


def test_workers_end_on_a_host_that_has_no_room_for_another_thread(
    worker: WorkerRef, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    said: list[str] = []
    ending = an_ending(worker, said)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        ending.stop(
            lambda _deadline: said.append("evidence"), budget=60.0, death_sig=signal.SIGTERM, timeout=60.0
        )
    assert said == ["stopping"]
    assert not is_running(worker)
    assert "no thread can be started" in caplog.text
    ending.finish(60.0)


def test_the_second_to_come_waits_for_the_first(worker: WorkerRef) -> None:
    said: list[str] = []
    ending = an_ending(worker, said)
    looking, go_on = threading.Event(), threading.Event()

    def take(_deadline: float) -> None:
        looking.set()
        go_on.wait(60.0)
        said.append("evidence")

    def stop(name: str) -> None:
        ending.stop(take, budget=60.0, death_sig=signal.SIGTERM, timeout=60.0)
        said.append(name)

    first = threading.Thread(target=stop, args=("first",))
    first.start()
    assert looking.wait(60.0)
    second = threading.Thread(target=stop, args=("second",))
    second.start()
    assert said == []
    go_on.set()
    first.join(60.0)
    second.join(60.0)
    assert said[:2] == ["evidence", "stopping"]
    assert sorted(said[2:]) == ["first", "second"]
