"""``/livez`` of a real server while time passes: the end of each phase's deadline, with nobody turning."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from tests.health_factory import PATIENCE, a_page, an_agent, answers, ask, eventually

from rankscope.agent.health import HealthProcess, StatusWriter
from rankscope.agent.health.model import Phase

TIMEOUT = 0.2
NS = 1_000_000_000


@pytest.fixture(name="page", scope="module")
def _page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StatusWriter]:
    writer = a_page(tmp_path_factory.mktemp("phases") / "status.page")
    yield writer
    writer.close()


@pytest.fixture(name="address", scope="module")
def _address(page: StatusWriter) -> Iterator[tuple[str, int]]:
    process = HealthProcess(page.path, None, 0, timeout=TIMEOUT)
    yield process.start(PATIENCE)
    process.stop()


def stand_still(page: StatusWriter) -> None:
    """Neither loop has turned for a minute."""
    for stamp in (page.stamp_main, page.stamp_watch):
        stamp(time.monotonic_ns() - 60 * NS)


@pytest.mark.parametrize("phase", get_args(Phase))
def test_a_phase_that_stands_still_is_alive_until_its_deadline_comes(
    page: StatusWriter, address: tuple[str, int], phase: Phase
) -> None:
    stand_still(page)
    page.phase(phase, time.monotonic() + 3600)
    reply = ask(address, "/livez")
    assert (reply.status, reply.json()) == (200, {"status": "pass", "phase": phase})
    page.phase(phase, time.monotonic() + TIMEOUT)
    eventually(answers(address, "/livez", 503), "the end of the deadline and of the grace")
    assert "past its deadline" in ask(address, "/livez").json()["output"]
    eventually(lambda: is_dead_by_metrics(address), "the metrics to say so")
    page.stamp_watch(time.monotonic_ns() + 3600 * NS)
    assert ask(address, "/livez").status == 200


@pytest.mark.parametrize("phase", get_args(Phase))
def test_a_phase_without_a_deadline_lives_by_the_loops_alone(
    page: StatusWriter, address: tuple[str, int], phase: Phase
) -> None:
    page.phase(phase, None)
    page.stamp_main(time.monotonic_ns() + 3600 * NS)
    assert ask(address, "/livez").status == 200
    stand_still(page)
    assert ask(address, "/livez").status == 503
    page.stamp_main(time.monotonic_ns())
    eventually(answers(address, "/livez", 503), "the end of the grace")


def is_dead_by_metrics(address: tuple[str, int]) -> bool:
    lines = ask(address, "/metrics").body.splitlines()
    (alive,) = [line for line in lines if line.startswith(b"rankscope_agent_alive{")]
    return alive.endswith(b" 0.0")


def test_a_server_whose_agent_is_stopped_by_a_signal_goes_on_answering(tmp_path: Path) -> None:
    """SIGSTOP on the whole agent, as `kill -STOP` or a frozen container would: answers come, and are 503."""
    does = """
def turn():
    while True:
        writer.stamp_watch(time.monotonic_ns())
        time.sleep(0.01)
threading.Thread(target=turn, daemon=True).start()
threading.Event().wait()
"""
    start = "server = HealthProcess(writer.path, None, 0, timeout=0.5)\nstart()"
    with an_agent(tmp_path / "page", does, start=start) as (agent, (address, _pid)):
        eventually(answers(address, "/livez", 200), "life")
        os.kill(agent.pid, signal.SIGSTOP)
        eventually(answers(address, "/livez", 503), "the loops stand")
        os.kill(agent.pid, signal.SIGCONT)
        eventually(answers(address, "/livez", 200), "life again")
