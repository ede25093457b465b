"""torch's health check API, answered for real."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.health_factory import answers, ask, eventually

from rankscope.agent.health import HealthCheckServer, create_healthcheck_server
from rankscope.agent.health.callback import AliveAge


@contextmanager
def serving(callback: Callable[[], int], timeout: int = 1) -> Generator[tuple[str, int]]:
    server = create_healthcheck_server(callback, 0, timeout)
    server.start()
    try:
        assert server.address is not None
        yield server.address
    finally:
        server.stop()
        assert server.address is None


def test_a_clock_that_is_set_makes_no_agent_older_or_younger() -> None:
    age = AliveAge()
    assert age.of(1000, wall=1003.0, now=50.0) == 3.0
    assert age.of(1000, wall=9000.0, now=51.0) == 4.0  # set forward
    assert age.of(1000, wall=10.0, now=120.0) == 73.0  # and back
    assert age.of(11, wall=12.0, now=122.0) == 1.0
    assert age.of(11, wall=14.0, now=124.0) == 3.0


def test_an_agent_with_recent_progress_is_alive() -> None:
    with serving(lambda: int(time.time())) as address:
        for path in ("/livez", "/readyz", "/health"):
            eventually(answers(address, path, 200), f"{path} is 200")


@pytest.mark.parametrize("progress", [0, -5, 1], ids=["never", "before the epoch", "long ago"])
def test_an_agent_without_progress_for_longer_than_the_timeout_is_dead(progress: int) -> None:
    with serving(lambda: progress, timeout=60) as address:
        for path in ("/livez", "/readyz", "/health"):
            eventually(answers(address, path, 503), f"{path} is 503")


def test_progress_that_stops_and_comes_back_is_followed() -> None:
    progress = [time.time() - 100]
    with serving(lambda: int(progress[0]), timeout=10) as address:
        eventually(answers(address, "/livez", 503), "dead")
        progress[0] = time.time()
        eventually(answers(address, "/livez", 200), "alive")


def test_a_callback_that_blocks_ends_in_503_and_does_not_hold_up_the_caller() -> None:
    release = threading.Event()

    def block() -> int:
        release.wait(60)
        return int(time.time())

    with serving(block) as address:
        eventually(answers(address, "/livez", 503), "dead")
        release.set()
        eventually(answers(address, "/livez", 200), "alive")


def test_a_callback_that_raises_ends_in_503_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> int:
        raise RuntimeError("no such watchdog")

    with caplog.at_level(logging.WARNING), serving(fail) as address:
        eventually(answers(address, "/livez", 503), "dead")
    assert [record.message for record in caplog.records] == [
        "the health check's alive_callback raised; said once"
    ]


def test_a_port_in_use_is_one_warning_and_the_job_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = HealthCheckServer(lambda: 0, taken.getsockname()[1], 60)
        with caplog.at_level(logging.WARNING):
            server.start()
        server.stop()
    assert len(caplog.records) == 1
    assert "Address already in use" in caplog.records[0].message


def test_stopping_leaves_no_thread_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = HealthCheckServer(lambda: int(time.time()), 0, 60)
    server.start()
    server.start()
    assert len(list(tmp_path.iterdir())) == 1
    server.stop()
    server.stop()
    assert list(tmp_path.iterdir()) == []
    assert not [each for each in threading.enumerate() if each.name.startswith("rankscope-health")]


def test_torchs_agent_takes_it_and_stops_it() -> None:
    from torch.distributed.elastic.agent.server.api import WorkerSpec
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import create_rdzv_handler

    parameters = RendezvousParameters("static", "127.0.0.1:0", "run-7", 1, 1, rank=0)
    spec = WorkerSpec(
        role="trainer", local_world_size=1, rdzv_handler=create_rdzv_handler(parameters), entrypoint="true"
    )
    server = create_healthcheck_server(alive_callback=lambda: int(time.time()), port=0, timeout=60)
    server.start()
    address = server.address
    assert address is not None
    agent = LocalElasticAgent(
        spec=spec,
        logs_specs=DefaultLogsSpecs(),
        health_check_server=server,  # type: ignore[arg-type]  # torch asks for its class, uses its methods
    )
    assert ask(address, "/livez").status == 200
    assert server.alive_callback() > 0
    agent._shutdown()
    assert server.address is None
