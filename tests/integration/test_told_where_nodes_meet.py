"""What nodes tell each other where they meet, over torch's own store: their restarts, and the job's token."""

from __future__ import annotations

from typing import Any

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # re-exported from torch._C

from rankscope.agent.health.offer import Peer
from rankscope.agent.rendezvous.introductions import MOST_PEERS, Introduced, introduce, introduced
from rankscope.agent.rendezvous.restarts import tell_restarts, told_restarts


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_the_largest_count_of_a_round_holds_and_no_other_round_s(store: TCPStore) -> None:
    tell_restarts(store, "one", 2)
    tell_restarts(store, "one", 0)
    tell_restarts(store, "two", 3)
    assert told_restarts(store, "one", known=0, most=3) == 2
    assert told_restarts(store, "one", known=2, most=3) == 2
    assert told_restarts(store, "three", known=1, most=3) == 1


def test_more_than_are_allowed_are_not_looked_for(store: TCPStore) -> None:
    tell_restarts(store, "one", 9)
    assert told_restarts(store, "one", known=0, most=3) == 0


def tells(store: TCPStore, token: str, number: int = 0, *, settled: bool = False, nodes: int = 2) -> None:
    me = Peer(f"node{number}", f"http://198.18.0.{number}:4242")
    introduce(store, "one", token, me, is_settled=settled, nodes=nodes)


def test_the_token_that_is_told_first_holds(store: TCPStore) -> None:
    assert introduced(store, "one", nodes=2) == Introduced()
    for token in ("", "first", "second"):
        tells(store, token)
    assert introduced(store, "one", nodes=2).token == "first"
    assert introduced(store, "two", nodes=2) == Introduced()


def test_a_token_that_nodes_agreed_on_before_holds_whoever_comes_new(store: TCPStore) -> None:
    tells(store, "of-the-new-one")
    tells(store, "of-the-others", settled=True)
    assert introduced(store, "one", nodes=2).token == "of-the-others"


def test_agents_tell_where_they_can_be_asked(store: TCPStore) -> None:
    for number in range(3):
        tells(store, "", number)
    introduce(store, "one", "", Peer("nobody", ""), is_settled=False, nodes=2)
    told = introduced(store, "one", nodes=2).peers
    assert told == tuple(Peer(f"node{number}", f"http://198.18.0.{number}:4242") for number in range(3))


def test_a_job_of_one_node_asks_its_store_nothing() -> None:
    nobody: Any = None
    introduce(nobody, "one", "a-token", Peer("here", "http://198.18.0.1:1"), is_settled=False, nodes=1)
    assert introduced(nobody, "one", nodes=1) == Introduced()


def test_in_a_large_job_nobody_reads_the_addresses_of_all(store: TCPStore) -> None:
    tells(store, "a-token", nodes=MOST_PEERS + 1)
    assert introduced(store, "one", nodes=2) == Introduced("a-token")


def test_what_is_no_address_is_passed_over(store: TCPStore) -> None:
    appending: Any = store
    appending.append("rankscope/introductions/one/peers", b"{half\n\xff\n")
    tells(store, "", 7)
    assert [peer.node for peer in introduced(store, "one", nodes=2).peers] == ["node7"]
