"""Ranks that could not be seen, and what the record holds of a job."""

from __future__ import annotations

import pytest
from tests.classify_factory import (
    a_job,
    a_rank,
    judge,
    judge_still,
    user,
)
from tests.rules_factory import (
    in_child,
    loading,
    said,
    waiting,
)

from rankscope.diag.classify import communicating_ranks, load_catalogue

# ---- what could not be seen -------------------------------------------------------------------------------


def test_a_rank_that_was_not_observed_is_named_and_never_accused() -> None:
    found = judge_still(*waiting(0, 1), world_size=3)
    assert (found.verdict, found.culprits, found.observed) == ("Unknown", (), "0-1")
    assert [(one.rank, one.reason) for one in found.unobserved] == [(2, "no snapshot of this rank")]
    assert found.ranks[2].state == "unobserved"
    assert "rank 2 could not be observed" in found.summary


def test_a_rank_that_was_not_observed_lowers_the_confidence_in_another() -> None:
    assert judge_still(*waiting(0, 1), loading(), world_size=4).confidence == "medium"


@pytest.mark.parametrize("world_size", [0, 1])
def test_an_empty_job_is_not_known(world_size: int) -> None:
    assert judge(a_job(world_size=world_size)).verdict == "Unknown"


def test_the_record_holds_the_folded_stacks_and_the_incident_s_time() -> None:
    found = judge_still(*waiting(0, 1, 3), loading())
    assert [(group.count, group.ranks) for group in found.stacks] == [(1, "2"), (3, "0-1,3")]
    assert (found.job, found.time, found.observed) == ("run-7", "2026-11-29T16:40:00Z", "0-3")


def test_communicating_ranks_are_those_that_wait() -> None:
    job = a_job(*waiting(0, 1, 3), loading())
    assert communicating_ranks(job, load_catalogue()) == {0, 1, 3}


def test_sleepers_that_nobody_watched_are_not_called_hung() -> None:
    """Two looks four seconds apart cannot tell a hang from a server that waits for requests."""
    ranks = [a_rank(rank).stuck_in(user("serve", 7)) for rank in range(3)]
    found = judge_still(*ranks, silent=None, trained=False)
    assert (found.verdict, found.severity, found.culprits) == ("Unknown", "info", ())
    assert "ranks 0-2 stand in serve (train.py:7); nothing moved in 4 s" in found.summary
    assert judge_still(*ranks).verdict == "RankNonCommHang"


@pytest.mark.parametrize("silent", [None, 3600.0])
def test_a_wait_in_a_job_that_was_never_seen_to_move_is_named_with_medium_confidence(
    silent: float | None,
) -> None:
    found = judge_still(*waiting(0, 1), loading(), silent=silent, trained=False)
    assert (found.verdict, found.confidence, found.culprits) == ("RankNonCommHang", "medium", (2,))


# ---- child processes, and ranks that were not seen --------------------------------------------------------


@pytest.mark.parametrize("trained", [True, False])
def test_children_in_different_places_are_no_common_cause(trained: bool) -> None:
    found = judge_still(in_child(0, *waiting(0)[0].frames), in_child(1, user("sleeps", 38)), trained=trained)
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "rank 0 stands in train_step (train.py:11); rank 1 stands in sleeps (train.py:38)" in found.summary
    same = judge_still(in_child(0, user("sleeps", 38)), in_child(1, user("sleeps", 38)))
    assert (same.verdict, same.kind) == ("RankNonCommHang", "child_process")


def test_one_of_three_ranks_shows_no_common_cause() -> None:
    found = judge_still(loading(1), world_size=3)
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "no minority" not in found.summary
    assert "ranks 0,2 could not be observed" in found.summary


def test_numbers_of_processes_that_ended_meanwhile_name_nobody() -> None:
    ranks = [
        rank.unseen("the process has ended").but(state=None)
        for rank in (*waiting(0, seq=7), loading(1).at(6))
    ]
    assert said(judge_still(*ranks))[:4] == ("Unknown", "none", "low", ())
    assert judge_still(*waiting(0, seq=7), ranks[1]).verdict == "Unknown"
