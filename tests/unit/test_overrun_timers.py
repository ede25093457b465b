"""Timers that have expired: who gets which signal. A real process; what is asked beside it stands in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.deadline import DEADLINE

from rankscope.agent.deciding.overrun_timers import OverrunTimers
from rankscope.agent.observing.current import CurrentWorkers
from rankscope.agent.observing.observer import Observer
from rankscope.agent.watching.reporter import TimerSignal
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag import proc

REAL_TIME = 36
"""One of the signals for real time, which have no names of their own."""


class Services:
    """Knows whether the block of a timer goes on."""

    def __init__(self, *, overrun: bool) -> None:
        self.overrun = overrun

    def timer_is_overrun(self, _pid: int, _scope: str) -> bool:
        return self.overrun


class Decider:
    """Lets every signal be sent."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    def on_timer(self, _what: str, *, signal_name: str, is_rank: bool, incident: str) -> bool:
        assert incident == "i-1"
        self.asked.append((signal_name, is_rank))
        return True


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", "-c", "print('up', flush=True); import signal; signal.pause()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def timers(
    child: subprocess.Popen[bytes], decider: Decider, said: list[str], *, overrun: bool
) -> OverrunTimers:
    launch = Launch((WorkerRef(3, 0, child.pid, proc.start_ticks(child.pid) or 0),), 0, 4)
    current = CurrentWorkers(dict)
    current.replace(launch, Observer(launch, None, timer_calls=dict, log_sizes=dict))
    services: Any = Services(overrun=overrun)
    asked: Any = decider
    watch: Any = None
    return OverrunTimers(current, watch=watch, services=services, decider=asked, say=said.append)


@pytest.mark.parametrize(("number", "name"), [(15, "SIGTERM"), (REAL_TIME, f"signal {REAL_TIME}")])
def test_a_process_gets_the_signal_that_its_timer_asked_for(
    child: subprocess.Popen[bytes], number: int, name: str
) -> None:
    decider, said = Decider(), list[str]()
    timers(child, decider, said, overrun=True).due(TimerSignal(child.pid, 3, "step", number), "i-1")
    assert child.wait(DEADLINE) == -number
    assert (decider.asked, said) == ([(name, True)], [])


def test_a_number_that_is_no_signal_is_said_and_nothing_is_sent(child: subprocess.Popen[bytes]) -> None:
    said: list[str] = []
    timers(child, Decider(), said, overrun=True).due(TimerSignal(child.pid, 3, "step", 400), "i-1")
    assert said == [f"signal 400 could not be sent to process {child.pid}: Invalid argument"]
    assert child.poll() is None


def test_nothing_is_sent_once_its_block_has_ended(child: subprocess.Popen[bytes]) -> None:
    decider, said = Decider(), list[str]()
    timers(child, decider, said, overrun=False).due(TimerSignal(child.pid, 3, "step", 15), "i-1")
    assert decider.asked == []
    assert "its block has ended since" in said[0]
    assert child.poll() is None
