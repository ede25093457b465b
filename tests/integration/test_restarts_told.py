"""What nodes tell each other where they meet, over torch's own store: their restarts, and the job's token."""

from __future__ import annotations

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # re-exported from torch._C

from rankscope.agent.rendezvous.restarts import tell_restarts, told_restarts
from rankscope.agent.rendezvous.shared_token import tell_token, told_token


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


def test_the_token_that_is_told_first_holds(store: TCPStore) -> None:
    assert told_token(store, "one") == ""
    for token in ("", "first", "second"):
        tell_token(store, "one", token, is_settled=False)
    assert told_token(store, "one") == "first"
    assert told_token(store, "two") == ""


def test_a_token_that_nodes_agreed_on_before_holds_whoever_comes_new(store: TCPStore) -> None:
    tell_token(store, "one", "of-the-new-one", is_settled=False)
    tell_token(store, "one", "of-the-others", is_settled=True)
    assert told_token(store, "one") == "of-the-others"
