"""The launcher beside torch's, and the rendezvous that gives every round a store of its own.

Rendezvous are torch's own over real stores, or small ones of this file that are registered the way a user's
out-of-tree backend is. Workers are commands that do not import torch, so that a launch takes a second.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch.distributed import HashStore, Store, TCPStore  # type: ignore[attr-defined]  # re-exported
from torch.distributed.elastic.agent.server.api import RunResult
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent.launcher import entrypoint_name, launch_agent, worker_spec
from rankscope.agent.rendezvous.store import SWITCH, FreshStoreRendezvous


class SmallRendezvous(RendezvousHandler):
    """A user's own handler: one store for all rounds, addresses as it was told."""

    def __init__(
        self,
        store: Store,
        *,
        rank: int = 0,
        world: int = 1,
        addresses: Iterator[RendezvousStoreInfo | None] | None = None,
        shares: bool = True,
    ) -> None:
        self.store = store
        self.rank = rank
        self.world = world
        self.shares = shares
        self.closed = False
        self.shut_down = 0
        self.switch_seen: list[str | None] = []
        self._addresses = addresses or forever(RendezvousStoreInfo("localhost", 1))

    @property
    def use_agent_store(self) -> bool:
        return self.shares

    def next_rendezvous(self) -> RendezvousInfo:
        self.switch_seen.append(os.environ.get(SWITCH))
        address = next(self._addresses)
        return RendezvousInfo(self.store, self.rank, self.world, address)  # type: ignore[arg-type]  # None occurs

    def get_backend(self) -> str:
        return "small"

    def get_run_id(self) -> str:
        return "run-7"

    def is_closed(self) -> bool:
        return self.closed

    def set_closed(self) -> None:
        self.closed = True

    def num_nodes_waiting(self) -> int:
        return 5

    def shutdown(self) -> bool:
        self.shut_down += 1
        return False


def forever(address: RendezvousStoreInfo | None) -> Iterator[RendezvousStoreInfo | None]:
    while True:
        yield address


def address_of(info: RendezvousInfo) -> tuple[str, int]:
    address = info.bootstrap_store_info
    assert address is not None
    return address.master_addr, address.master_port


def accepts(address: tuple[str, int]) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(address, timeout=5):
        return True
    return False


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def loopbacks() -> list[str]:
    """The loopback addresses that this machine has."""
    found = ["127.0.0.1"]
    with contextlib.suppress(OSError):
        free_port("::1")
        found.append("::1")
    return found


def torchs_own(backend: str, endpoint: str, *, nodes: int = 1, **config: Any) -> FreshStoreRendezvous:
    parameters = RendezvousParameters(
        backend=backend, endpoint=endpoint, run_id="run-7", min_nodes=nodes, max_nodes=nodes, **config
    )
    return FreshStoreRendezvous(get_rendezvous_handler(parameters), timeout=20)


@pytest.mark.parametrize("host", loopbacks())
def test_every_round_of_c10d_has_a_store_of_its_own_and_the_old_one_ends(host: str) -> None:
    endpoint = f"[{host}]:0" if ":" in host else f"{host}:0"
    rendezvous = torchs_own("c10d", endpoint, local_addr=host)
    first = address_of(rendezvous.next_rendezvous())
    worker = TCPStore(*first, is_master=False)
    worker.set("peer", "an address that dies with its process")

    second = address_of(rendezvous.next_rendezvous())
    assert second[0] == host
    assert not TCPStore(*second, is_master=False).check(["peer"])
    assert not accepts(first)
    assert rendezvous.use_agent_store

    rendezvous.shutdown()
    assert not accepts(second)


@pytest.mark.parametrize("host", loopbacks())
def test_a_static_job_meets_at_the_users_address_first_and_in_fresh_stores_later(host: str) -> None:
    port = free_port(host)
    endpoint = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    rendezvous = torchs_own("static", endpoint, rank=0)
    addresses = [address_of(rendezvous.next_rendezvous()) for _ in range(3)]
    assert addresses[0] == (host, port)
    assert len(set(addresses)) == 3
    assert all(accepts(address) for address in (addresses[0], addresses[2]))
    rendezvous.shutdown()


def test_static_nodes_that_restart_at_different_times_meet_in_the_newest_round() -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    zero = torchs_own("static", endpoint, nodes=2, rank=0)
    one = torchs_own("static", endpoint, nodes=2, rank=1)
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(node.next_rendezvous) for node in (zero, one)]
        assert len({address_of(each.result(20)) for each in both}) == 1

        second, third = (address_of(zero.next_rendezvous()) for _ in range(2))
        assert accepts(second), "node 1 has not left the rounds before"
        assert address_of(one.next_rendezvous()) == third

        waiting = threads.submit(one.next_rendezvous)
        fourth = address_of(zero.next_rendezvous())
        assert address_of(waiting.result(20)) == fourth
        assert not accepts(second), "every node took a newer round"
    zero.shutdown()
    one.shutdown()


def test_a_handler_that_shares_no_store_passes_through() -> None:
    inner = SmallRendezvous(HashStore(), shares=False)
    rendezvous = FreshStoreRendezvous(inner)
    assert [address_of(rendezvous.next_rendezvous()) for _ in range(2)] == [("localhost", 1)] * 2
    assert not rendezvous.use_agent_store
    assert inner.switch_seen == [None, None]


def test_a_user_who_switched_sharing_off_gets_what_torch_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    rendezvous = torchs_own("c10d", "localhost:0")
    assert not accepts(address_of(rendezvous.next_rendezvous())), "the worker of rank 0 starts the store"
    assert not rendezvous.use_agent_store
    rendezvous.shutdown()


def test_an_own_handler_that_names_a_new_store_each_round_is_believed() -> None:
    named = [RendezvousStoreInfo("elsewhere", port) for port in (1, 2, 3)]
    rendezvous = FreshStoreRendezvous(SmallRendezvous(HashStore(), addresses=iter(named)))
    assert [address_of(rendezvous.next_rendezvous())[1] for _ in named] == [1, 2, 3]


def test_an_own_handler_that_names_no_store_passes_through() -> None:
    rendezvous = FreshStoreRendezvous(SmallRendezvous(HashStore(), addresses=forever(None)))
    assert rendezvous.next_rendezvous().bootstrap_store_info is None


def test_everything_else_is_the_inner_handlers() -> None:
    inner = SmallRendezvous(HashStore())
    rendezvous = FreshStoreRendezvous(inner)
    assert rendezvous.get_backend() == "small"
    assert rendezvous.get_run_id() == "run-7"
    assert rendezvous.num_nodes_waiting() == 5
    assert not rendezvous.is_closed()
    rendezvous.set_closed()
    assert rendezvous.is_closed()
    assert rendezvous.shutdown() is False
    assert inner.shut_down == 1
    assert rendezvous.inner is inner


@pytest.mark.parametrize("before", [None, "0", ""])
def test_the_switch_is_set_only_while_nodes_meet(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if before is None:
        monkeypatch.delenv(SWITCH, raising=False)
    else:
        monkeypatch.setenv(SWITCH, before)
    inner = SmallRendezvous(HashStore(), addresses=iter([RendezvousStoreInfo("localhost", 1)]))
    rendezvous = FreshStoreRendezvous(inner)
    rendezvous.next_rendezvous()
    assert os.environ.get(SWITCH) == before
    with pytest.raises(StopIteration):
        rendezvous.next_rendezvous()
    assert os.environ.get(SWITCH) == before
    assert inner.switch_seen == ["1", "1"]


def test_a_node_that_is_told_no_address_gives_up_at_its_deadline() -> None:
    rendezvous = FreshStoreRendezvous(SmallRendezvous(HashStore(), rank=1, world=2), timeout=0.1)
    with pytest.raises(RendezvousTimeoutError, match=r"named no store .* within 0\.1 s"):
        rendezvous.next_rendezvous()


def test_a_node_that_waits_for_an_address_leaves_when_the_job_closes() -> None:
    inner = SmallRendezvous(HashStore(), rank=1, world=2)
    inner.set_closed()
    with pytest.raises(RendezvousClosedError):
        FreshStoreRendezvous(inner, timeout=60).next_rendezvous()


def test_a_store_that_is_gone_is_a_connection_error() -> None:
    host = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    client = TCPStore("localhost", host.port, is_master=False)
    del host
    with pytest.raises(RendezvousConnectionError, match="cannot agree on the workers' store at localhost"):
        FreshStoreRendezvous(SmallRendezvous(client, rank=1, world=2)).next_rendezvous()


def a_config(**changes: Any) -> LaunchConfig:
    values: dict[str, Any] = {
        "min_nodes": 1,
        "max_nodes": 1,
        "nproc_per_node": 2,
        "run_id": "run-7",
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
        "max_restarts": 0,
        "monitor_interval": 0.01,
    }
    return LaunchConfig(**(values | changes))


@pytest.fixture
def small_backend() -> Iterator[list[SmallRendezvous]]:
    """Registers ``small`` as a user's backend is registered; gives the handlers made."""
    made: list[SmallRendezvous] = []

    def create(_: RendezvousParameters) -> RendezvousHandler:
        made.append(SmallRendezvous(HashStore()))
        return made[-1]

    rendezvous_handler_registry.register("small", create)
    yield made
    del rendezvous_handler_registry._registry["small"]


def test_a_command_runs_on_every_rank_of_a_users_own_backend(
    tmp_path: Path, small_backend: list[SmallRendezvous]
) -> None:
    write = "import os, sys; open(f'{sys.argv[1]}/' + os.environ['RANK'] + sys.argv[2], 'w')"
    arguments = ["-c", write, str(tmp_path), "-${local_rank}"]
    assert launch_agent(a_config(rdzv_backend="small"), sys.executable, arguments) == {0: None, 1: None}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-0", "1-1"]
    assert [inner.shut_down for inner in small_backend] == [1]


def test_failed_workers_raise_torchs_error_with_the_scripts_name(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os; os._exit(7 + int(os.environ['RANK']))")
    with pytest.raises(ChildFailedError) as raised:
        launch_agent(a_config(nproc_per_node=1), sys.executable, ["-u", str(script)])
    assert raised.value.name == str(script)
    assert {rank: failure.exitcode for rank, failure in raised.value.failures.items()} == {0: 7}


def test_the_agent_is_the_callers_and_gets_torchs_arguments() -> None:
    given: dict[str, Any] = {}

    def make(**arguments: Any) -> LocalElasticAgent:
        given.update(arguments)
        return LocalElasticAgent(**arguments)

    config = a_config(log_line_prefix_template="[${rank}]", start_method="forkserver", shutdown_timeout=3)
    launch_agent(config, "/bin/true", [], make_agent=make)
    assert given["spec"].entrypoint == "/bin/true"
    assert given["logs_specs"] is config.logs_specs
    assert given["log_line_prefix_template"] == "[${rank}]"
    assert given["start_method"] == "forkserver"
    assert given["shutdown_timeout"] == 3
    assert "health_check_server" not in given


def test_every_field_that_config_and_workers_share_is_carried_over() -> None:
    changes: dict[str, Any] = {
        "role": "trainer",
        "max_restarts": 4,
        "local_addr": "127.0.0.1",
        "event_log_handler": "console",
        "duplicate_stdout_filters": ["loss"],
        "virtual_local_rank": True,
    }
    spec = worker_spec(a_config(**changes), print, ["x"])
    assert {name: getattr(spec, name) for name in changes} == changes
    assert (spec.local_world_size, spec.entrypoint, spec.args) == (2, print, ("x",))
    assert isinstance(spec.rdzv_handler, FreshStoreRendezvous)
    spec.rdzv_handler.shutdown()


def test_the_address_of_a_static_job_is_left_to_its_rounds() -> None:
    spec = worker_spec(
        a_config(rdzv_backend="static", rdzv_endpoint="host:29500", rdzv_configs={"rank": 0}), print, []
    )
    assert (spec.master_addr, spec.master_port) == (None, None)
    assert spec.rdzv_handler.get_backend() == "static"


@pytest.mark.parametrize("endpoint", ["", "host"])
def test_a_static_job_without_a_port_is_refused(endpoint: str) -> None:
    config = a_config(rdzv_backend="static", rdzv_endpoint=endpoint, rdzv_configs={"rank": 0})
    with pytest.raises(ValueError, match="absent"):
        launch_agent(config, "/bin/true", [])


def test_a_run_id_is_made_up_and_signals_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "")
    config = a_config(run_id="", signals_to_handle="SIGTERM,SIGUSR2")
    launch_agent(config, "/bin/true", [])
    assert int(config.run_id) > 0
    assert config.run_id in caplog.text
    assert os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] == "SIGTERM,SIGUSR2"


def an_agent_that_ends_with(error: BaseException) -> type[LocalElasticAgent]:
    class Agent(LocalElasticAgent):
        def _invoke_run(self, role: str = "default") -> RunResult:
            raise error

    return Agent


def test_a_signal_leaves_the_rendezvous_open_for_the_other_nodes(
    small_backend: list[SmallRendezvous],
) -> None:
    agent = an_agent_that_ends_with(SignalException("stopped", signal.SIGTERM))
    with pytest.raises(SignalException):
        launch_agent(a_config(rdzv_backend="small"), "/bin/true", [], make_agent=agent)
    assert [inner.shut_down for inner in small_backend] == [0]


def test_an_agent_that_breaks_closes_the_rendezvous(small_backend: list[SmallRendezvous]) -> None:
    agent = an_agent_that_ends_with(OSError("lost"))
    with pytest.raises(OSError, match="lost"):
        launch_agent(a_config(rdzv_backend="small"), "/bin/true", [], make_agent=agent)
    assert [inner.shut_down for inner in small_backend] == [1]


def test_a_node_that_left_of_its_own_accord_returns_nothing(small_backend: list[SmallRendezvous]) -> None:
    agent = an_agent_that_ends_with(RendezvousGracefulExitError())
    assert launch_agent(a_config(rdzv_backend="small"), "/bin/true", [], make_agent=agent) == {}
    assert [inner.shut_down for inner in small_backend] == [1]


class Wrapped:
    """An entrypoint that is no function."""

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("entrypoint", "args", "name"),
    [
        (print, (), "print"),
        (Wrapped(), (), "Wrapped"),
        ("/usr/bin/env", ("x",), "/usr/bin/env"),
        (sys.executable, ("-u", "", "train.py"), ""),
        (sys.executable, ("-u", "-m"), ""),
        (sys.executable, ("-u", "train.py"), "train.py"),
        (None, (), ""),
    ],
)
def test_errors_name_the_entrypoint(entrypoint: Any, args: tuple[str, ...], name: str) -> None:
    assert entrypoint_name(entrypoint, args) == name
