"""The end of a job in the main thread's place: whatever fails on the way, the process ends."""

from __future__ import annotations

import signal
from typing import Any

import pytest

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
