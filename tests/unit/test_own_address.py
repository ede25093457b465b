"""Where other nodes of a job reach this one."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from tests.deadline import DEADLINE
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent.rendezvous import own_address
from rankscope.agent.rendezvous.own_address import host_for_others

ELSEWHERE = "198.18.0.9"


def a_config(endpoint: str, *, nodes: int = 2, local_addr: str | None = None) -> LaunchConfig:
    config: dict[str, Any] = {"min_nodes": 1, "max_nodes": nodes, "nproc_per_node": 1}
    return LaunchConfig(**config, rdzv_endpoint=endpoint, local_addr=local_addr)


@pytest.fixture
def outward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets to another host leave from an address that is not this host alone."""
    monkeypatch.setattr(own_address, "_towards", lambda host: ELSEWHERE if host == "far" else "127.0.0.1")


@pytest.mark.usefixtures("outward")
def test_it_is_where_packets_to_the_rendezvous_leave_from() -> None:
    assert host_for_others(a_config("far:29400")) == ELSEWHERE
    assert host_for_others(a_config("far")) == ELSEWHERE


@pytest.mark.usefixtures("outward")
def test_a_job_of_one_node_and_one_whose_agents_are_all_here_need_none() -> None:
    assert host_for_others(a_config("far:29400", nodes=1)) == ""
    assert host_for_others(a_config("here:29400")) == ""
    assert host_for_others(a_config("")) == ""


@pytest.mark.usefixtures("outward")
def test_what_the_user_calls_this_host_goes_first() -> None:
    assert host_for_others(a_config("far:29400", local_addr="198.18.0.3")) == "198.18.0.3"
    assert host_for_others(a_config("far:29400", local_addr="localhost")) == ""


@pytest.mark.parametrize("endpoint", ["far:port", "[far", "far:99999"])
def test_an_endpoint_that_torch_will_refuse_is_left_to_it(endpoint: str) -> None:
    assert host_for_others(a_config(endpoint)) == ""


def test_a_name_service_that_does_not_answer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_address, "_LOOK_UP_SECONDS", 0.05)
    over = threading.Event()

    def look_up(*_words: object, **_more: object) -> list[object]:
        over.wait(DEADLINE)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert host_for_others(a_config("far:29400")) == ""
    over.set()
