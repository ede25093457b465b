"""How often a job was restarted, told where nodes meet, over torch's own store."""

from __future__ import annotations

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # re-exported from torch._C

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
