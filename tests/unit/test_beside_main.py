"""The end of a job in the main thread's place: whatever fails on the way, the process ends."""

from __future__ import annotations

import signal
import threading
from typing import Any, cast

import pytest
from tests.deadline import DEADLINE

from rankscope.agent.deciding.restart_clock import RestartClock
from rankscope.agent.ending.beside_main import BesideMain
from rankscope.agent.ending.signals import StopSignals


def beside_main(said: list[str]) -> BesideMain:
    nobody: Any = None  # nothing is decided here
    found = BesideMain(signals=StopSignals(), clock=RestartClock(None), decider=nobody, say=said.append)
    found.abandon = said.append
    return found


def test_workers_are_ended_and_then_the_process() -> None:
    said: list[str] = []
    beside = beside_main(said)
    beside.end_workers = lambda sent: said.append(f"workers, by {sent.name}")
    beside.on_signal(signal.SIGTERM)
    assert said[1:] == ["workers, by SIGTERM", "stopped by SIGTERM"]


def test_a_decision_that_nobody_carries_out_ends_the_job_once() -> None:
    said: list[str] = []
    ended = threading.Event()
    beside = beside_main(said)

    def abandon(result: str) -> None:
        said.append(result)
        ended.set()

    class Decides:
        def on_stuck_agent(self, action: str, seconds: float) -> None:
            said.append(f"{action} after {seconds:.0f} s")

    beside._decider = cast("Any", Decides())
    beside.abandon = abandon
    beside.end_workers = lambda sent: said.append(f"workers, by {sent.name}")
    beside.look_at_due("restart", 59.0)
    assert said == []
    beside.look_at_due("restart", 60.0)
    beside.look_at_due("restart", 61.0)
    assert ended.wait(DEADLINE)
    assert said == ["restart after 60 s", "workers, by SIGTERM", "failed"]


def test_a_process_whose_workers_cannot_be_ended_does_not_stay_for_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_sent: signal.Signals) -> None:
        raise OSError("too many open files")

    said: list[str] = []
    beside = beside_main(said)
    beside.end_workers = fail
    beside.on_signal(signal.SIGTERM)
    assert said[-1] == "stopped by SIGTERM"
    assert "too many open files" in caplog.text
