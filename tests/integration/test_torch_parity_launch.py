"""``rankscope.agent.launch`` beside torch's ``elastic_launch``: results, failures, events and metrics."""

from __future__ import annotations

import itertools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch.distributed.elastic.rendezvous.registry as rendezvous_registry
from torch.distributed.elastic import metrics
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.events import handlers
from torch.distributed.elastic.metrics.api import MetricData, MetricHandler
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousHandler
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from rankscope.agent import launch
from rankscope.agent.launcher import launch_agent

LAUNCHES: dict[str, Callable[..., Any]] = {"torch": elastic_launch, "ours": launch}
_numbers = itertools.count()
FAILING = "import os, sys; sys.exit(4 if os.environ['RANK'] == '1' else 0)"


def a_config(**changes: Any) -> LaunchConfig:
    fields: dict[str, Any] = {
        "min_nodes": 1,
        "max_nodes": 1,
        "nproc_per_node": 2,
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
        "max_restarts": 0,
        "monitor_interval": 0.05,
        "start_method": "fork",  # the workers have torch already
    }
    return LaunchConfig(**(fields | changes))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_HOME", str(tmp_path / "home"))


def ten_and_rank(ten: int) -> int:
    return ten + int(os.environ["RANK"])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_functions_return_comes_by_global_rank() -> None:
    assert launch(a_config(), ten_and_rank)(10) == {0: 10, 1: 11}


def failures(name: str) -> dict[int, tuple[int, int]]:
    with pytest.raises(ChildFailedError) as raised:
        LAUNCHES[name](a_config(), sys.executable)("-c", FAILING)
    assert raised.value.get_first_failure()[0] == 1
    return {rank: (one.local_rank, one.exitcode) for rank, one in raised.value.failures.items()}


def test_failures_come_by_global_rank_with_their_exit_codes() -> None:
    assert failures("ours") == failures("torch") == {1: (1, 4)}


class Kept(logging.Handler):
    """Keeps torch's events: name, source and metadata of each."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []
        self.name_in_torch = f"parity-{next(_numbers)}"

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append(json.loads(record.getMessage()))


class KeptMetrics(MetricHandler):
    def __init__(self) -> None:
        self.names: list[str] = []

    def emit(self, metric_data: MetricData) -> None:
        self.names.append(f"{metric_data.group_name} {metric_data.name}")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """A handler of torch's events under a name of its own."""
    kept = Kept()
    # torch keeps what it finds under a name for good.
    monkeypatch.setitem(handlers._log_handlers, kept.name_in_torch, kept)
    yield kept
    logging.getLogger(f"torchelastic-events-{kept.name_in_torch}").handlers.clear()


@pytest.mark.parametrize("command", ["pass", FAILING], ids=["succeeds", "fails"])
def test_torchs_events_and_metrics_are_those_of_torchs_launch(
    events: Kept, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    told: dict[str, Any] = {}
    names: dict[str, list[str]] = {}
    for name, run in LAUNCHES.items():
        kept = KeptMetrics()
        monkeypatch.setattr(metrics.api, "_default_metrics_handler", kept)
        monkeypatch.setattr(metrics.api, "_metrics_map", {})
        events.events = []
        try:
            run(
                a_config(event_log_handler=events.name_in_torch, run_id=f"{name}-{os.getpid()}"),
                sys.executable,
            )("-c", command)
        except ChildFailedError:
            assert command == FAILING
        shown = [
            (one["name"], one["source"], one["metadata"]["state"], one["metadata"]["global_rank"])
            for one in events.events
        ]
        fields = [sorted(one["metadata"]) for one in events.events]
        told[name] = shown, fields
        # Whether a poll meets the workers before their end is chance.
        names[name] = sorted({one for one in kept.names if not one.endswith(".healthy")})
    assert told["ours"] == told["torch"]
    assert names["ours"] == names["torch"]
    assert told["ours"][0]
    assert any("workers.default_role.run_" in one for one in names["ours"])


def test_a_rendezvous_that_is_put_into_torchs_registry_module_is_the_one_that_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests of torch's, and programs, replace the function in its module."""
    handler = Mock(spec=RendezvousHandler)
    handler.use_agent_store = False
    handler.get_run_id.return_value = handler.get_backend.return_value = "replaced"
    handler.next_rendezvous.side_effect = RendezvousConnectionError("nobody is there")
    monkeypatch.setattr(rendezvous_registry, "get_rendezvous_handler", lambda _parameters: handler)
    with pytest.raises(RendezvousConnectionError):
        launch_agent(a_config(run_id="replaced"), "/bin/true", [])
    handler.shutdown.assert_called_once()


@dataclass
class NewerConfig(LaunchConfig):
    """torch after 2.13 has this field."""

    exit_barrier_timeout: float = 77.0


def test_what_a_newer_configuration_shares_with_the_agent_reaches_it() -> None:
    given: dict[str, Any] = {}

    def make(**arguments: Any) -> LocalElasticAgent:
        given.update(arguments)
        return LocalElasticAgent(**arguments)

    config = NewerConfig(1, 1, 1, run_id="newer", rdzv_backend="c10d", rdzv_endpoint="localhost:0")
    launch_agent(config, "/bin/true", [], make_agent=make)
    assert given["exit_barrier_timeout"] == 77.0
    assert "health_check_server" not in given
