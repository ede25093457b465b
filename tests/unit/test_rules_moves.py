"""Row 0 and what may hang at all: a job that moves, and one that was never seen to."""

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
    loading,
    said,
    waiting,
)

# ---- rule 0: the job moves --------------------------------------------------------------------------------


def test_a_step_between_the_snapshots_is_health() -> None:
    found = judge(
        a_job(*(rank.but(step=10) for rank in (*waiting(0, 1), loading()))),
        a_job(*(rank.but(step=11) for rank in (*waiting(0, 1), loading())), seconds=4.0),
    )
    assert said(found) == ("Healthy", "none", "high", (), "0")
    assert (found.severity, found.stacks != ()) == ("none", True)
    assert {one.state for one in found.ranks} == {"running"}


def test_a_collective_completed_between_the_snapshots_is_health() -> None:
    found = judge(
        a_job(*waiting(0, 1, seq=5), loading().at(4)),
        a_job(*waiting(0, 1, seq=6), loading().at(5), seconds=4.0),
    )
    assert (found.verdict, found.rule) == ("Healthy", "0")


def test_a_rank_that_left_its_wait_is_health_without_a_page() -> None:
    found = judge(
        a_job(*waiting(0, 1, 2)),
        a_job(*waiting(0, 1), a_rank(2).stuck_in(user("forward", 7)).but(cpu=0.9), seconds=4.0),
    )
    assert (found.verdict, found.severity) == ("Healthy", "none")


def test_a_rank_that_began_to_wait_in_between_leaves_it_open() -> None:
    found = judge(a_job(*waiting(0), loading(1), loading()), a_job(*waiting(0, 1), loading(), seconds=4.0))
    assert (found.verdict, found.severity) == ("Unknown", "info")


def test_waits_that_end_and_begin_again_while_the_others_move_are_health() -> None:
    stirred = [rank.but(switches=20.0) for rank in waiting(0, 1)]
    before, after = user("forward", 7), user("data", 9)
    found = judge(
        a_job(*stirred, a_rank(2).stuck_in(before)),
        a_job(*stirred, a_rank(2).stuck_in(after).but(cpu=0.9), seconds=4.0),
    )
    assert found.verdict == "Healthy"


def test_a_slow_loader_in_a_job_that_moves_is_suspected_only() -> None:
    stirred = [rank.but(switches=20.0) for rank in waiting(0, 1)]
    assert judge_still(*stirred, loading().but(switches=10.0)).verdict == "Unknown"
    numbered = [rank.but(switches=20.0) for rank in waiting(0, 1, seq=7)]
    assert judge_still(*numbered, loading().at(6).but(switches=10.0)).verdict == "RankNonCommHang"


def test_nobody_waits_and_everyone_works_is_no_hang() -> None:
    found = judge_still(*(a_rank(rank).stuck_in(user("forward", 7)).but(cpu=0.9) for rank in range(4)))
    assert (found.verdict, found.severity) == ("Healthy", "none")


# ---- only what moved can hang -----------------------------------------------------------------------------


@pytest.mark.parametrize("world_size", [1, 3])
def test_ranks_that_never_moved_are_not_called_hung_however_long_they_are_silent(world_size: int) -> None:
    ranks = [a_rank(rank).stuck_in(user("serve", 7)).at(-1, size=3) for rank in range(world_size)]
    found = judge_still(*ranks, silent=3600.0, trained=False)
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "nothing moved in 3600 s" in found.summary
    assert judge_still(*ranks).verdict == "RankNonCommHang"


def test_a_completed_collective_shows_that_the_job_moved() -> None:
    ranks = [loading(rank).at(3, size=2) for rank in range(2)]
    assert judge_still(*ranks, trained=False).confidence == "high"


def test_a_first_read_that_is_blocked_in_the_kernel_is_not_sure_before_the_job_moved() -> None:
    frozen = a_rank(1).but(state="D").unseen("state D")
    assert judge_still(*waiting(0), frozen, trained=False).confidence == "medium"
    assert judge_still(*waiting(0), a_rank(1).but(state="T").unseen("T"), trained=False).confidence == "high"


def test_a_suspicion_tells_how_long_a_watcher_saw_no_progress() -> None:
    busy = a_rank(1).stuck_in(user("evaluate", 36)).but(cpu=0.9)
    assert "evaluate (train.py:36) for 35 s" in judge_still(*waiting(0), busy, silent=35.0).summary
    assert "evaluate (train.py:36) for 4 s" in judge_still(*waiting(0), busy, silent=None).summary
