"""Rules 4 to 6: sequence numbers."""

from __future__ import annotations

from tests.classify_factory import (
    a_rank,
    judge_still,
    user,
)
from tests.rules_factory import (
    loading,
    said,
    waiting,
)

# ---- rules 4 to 6: sequence numbers -----------------------------------------------------------------------


def test_who_has_not_entered_the_open_collective_is_named_by_sequence_number() -> None:
    found = judge_still(*waiting(0, 1, 3, seq=7), loading().at(6))
    assert said(found) == ("RankNonCommHang", "data_loading", "high", (2,), "4")
    assert any("has not entered collective 7 of group 0" in one.fact for one in found.evidence)


def test_a_rank_without_a_stack_is_named_by_sequence_number() -> None:
    found = judge_still(*waiting(0, 1, 3, seq=7), a_rank(2).at(6).unseen())
    assert (found.culprits, found.confidence, found.rule) == ((2,), "medium", "4")
    assert found.unobserved[0].reason == "ptrace denied"


def test_a_chain_of_waits_is_walked_to_its_end() -> None:
    first = a_rank(0).waiting_in().at(5, completed=4, group="a", size=2)
    second = a_rank(1).waiting_in().at(4, group="a", size=2).at(9, completed=8, group="b", size=2)
    third = loading().at(8, group="b", size=2)
    found = judge_still(first, second, third)
    assert (found.culprits, found.kind) == ((2,), "data_loading")
    assert found.ranks[0].waits_for == (2,)
    assert found.ranks[1].role == "victim"


def test_a_circle_of_waits_is_an_order_deadlock() -> None:
    left = a_rank(0).waiting_in().at(5, completed=4, group="a", size=2).at(8, group="b", size=2)
    right = a_rank(1).waiting_in().at(4, group="a", size=2).at(9, completed=8, group="b", size=2)
    found = judge_still(left, right)
    assert said(found) == ("RankNonCommHang", "order_deadlock", "high", (0, 1), "5")
    assert "rank 0 waits for rank 1, rank 1 waits for rank 0" in found.summary
    assert found.ranks[0].waits_for == (1,)


def test_a_rank_that_only_started_a_collective_asynchronously_does_not_wait() -> None:
    stuck = loading(1).at(5, completed=4, group="a", size=2).at(8, group="b", size=2)
    other = a_rank(0).waiting_in().at(4, group="a", size=2).at(9, completed=8, group="b", size=2)
    assert judge_still(other, stuck).culprits == (1,)


def test_ranks_that_do_not_list_a_group_are_not_missing_from_it() -> None:
    pair = [a_rank(rank).waiting_in().at(3, completed=2, group="tp", size=2) for rank in (0,)]
    late = loading(1).at(2, group="tp", size=2)
    bystander = a_rank(2).waiting_in().at(9, group="0", size=3)
    found = judge_still(*pair, late, bystander)
    assert found.culprits == (1,)
    assert found.ranks[2].role == "bystander"


def test_a_collective_that_some_finished_is_the_layer_s_fault() -> None:
    done = a_rank(0).waiting_in("barrier").at(7, size=3)
    found = judge_still(done, *(rank.but(groups=()).at(7, completed=6, size=3) for rank in waiting(1, 2)))
    assert said(found) == ("RankCommHang", "network", "medium", (1, 2), "6")
    assert found.severity == "error"


def test_a_rank_outside_of_communication_is_not_held_in_the_collective_that_its_record_leaves_open() -> None:
    """Measured: torch marks the last one ended in a thread that needs the GIL; the others are in the next."""
    others = [a_rank(rank).waiting_in("barrier").at(141, completed=140) for rank in (1, 2, 3)]
    saves = a_rank(0).stuck_in(user("write_shard", 9)).at(140, completed=139).but(beat=14.0)
    found = judge_still(saves, *others)
    assert (found.verdict, found.culprits, found.rule) == ("RankNonCommHang", (0,), "4")
    held = a_rank(0).waiting_in().at(140, completed=139)
    assert judge_still(held, *others).rule == "6"
