"""Rows 5 and 9 where ranks wait for messages and no number tells what the others are in."""

from __future__ import annotations

import pytest
from tests.classify_factory import C10D, ARank, a_job, a_rank, judge, judge_still, native, user
from tests.rules_factory import facts_of, receiving, said, waiting, with_peer

from rankscope.diag.model import Diagnosis, Frame, GroupProgress

JOB = "/tmp/job/heath.py"
WRAPPER = Frame("wrapper", C10D.replace("distributed_c10d", "c10d_logger"), 83)
# The stacks of torch 2.13's ranks in the fault matrix's row ``unsent_beside``, as py-spy gave them.
RECEIVES = (
    Frame("recv", C10D, 2799),
    WRAPPER,
    user("receive_settings", 43, JOB),
    user("exchange", 90, JOB),
    user("main", 113, JOB),
)
REDUCES = (Frame("all_reduce", C10D, 3252), WRAPPER, user("main", 119, JOB))
# Of ``one_sided_beside``: a wait for a message that an earlier call asked for, by C++ frames.
BATCH = (
    native("pthread_cond_timedwait", "libc.so.6"),
    native("gloo::transport::tcp::UnboundBuffer::waitRecv"),
    native("c10d::ProcessGroupGloo::RecvWork::wait"),
    user("swap_edges", 67, JOB),
    user("exchange", 100, JOB),
    user("main", 121, JOB),
)


def standing(rank: int, frames: tuple[Frame, ...]) -> ARank:
    return a_rank(rank).stuck_in(*frames, wchan="futex_do_wait").but(active=False)


def unsent(*, peers: dict[int, int], receivers: tuple[int, ...] = (5,), ranks: int = 7) -> Diagnosis:
    """Some ranks receive, all others reduce, and nothing else is known."""
    job = [standing(rank, RECEIVES if rank in receivers else REDUCES) for rank in range(ranks)]
    return judge(*(with_peer(a_job(*job, seconds=seconds), peers) for seconds in (0.0, 4.0)))


# ---- by elimination ---------------------------------------------------------------------------------------


def test_a_receive_of_one_in_the_call_that_lacks_only_the_receiver_is_a_circle() -> None:
    found = unsent(peers={5: 6})
    assert said(found) == ("RankNonCommHang", "order_deadlock", "low", (5, 6), "5")
    assert [one.waits_for for one in found.ranks] == [*[(5, 6)] * 5, (6,), (5,)]
    assert found.location is not None
    assert (found.location.function, found.location.line) == ("receive_settings", 43)
    assert found.summary == (
        "a circle of waits: rank 5 waits for rank 6, rank 6 waits for rank 5;"
        " ranks 0-4 wait for them in all_reduce"
    )
    elimination = "ranks 0-4,6 are in one all_reduce, rank 5 is not: by elimination they wait for it"
    assert elimination in facts_of(found)


def test_two_ranks_one_in_a_receive_of_the_other_are_a_circle() -> None:
    assert said(unsent(peers={0: 1}, receivers=(0,), ranks=2))[3:] == ((0, 1), "5")


def test_of_several_receivers_those_are_named_that_wait_for_themselves_in_the_end() -> None:
    found = unsent(peers={4: 5, 5: 6}, receivers=(4, 5))
    assert said(found)[3:] == ((4, 5, 6), "5")


def test_a_circle_of_messages_alone_needs_no_elimination() -> None:
    found = unsent(peers={4: 5, 5: 4}, receivers=(4, 5))
    assert said(found)[2:] == ("medium", (4, 5), "5")
    assert not any("by elimination" in fact for fact in facts_of(found))
    assert found.ranks[0].waits_for == (4, 5)


def test_a_receiver_whose_chain_is_part_of_no_circle_is_none_of_it() -> None:
    """Stages of a pipeline may be as many as those that reduce: nothing is known of those by elimination."""
    assert said(unsent(peers={4: 0, 5: 1, 6: 2, 7: 3}, receivers=(4, 5, 6, 7), ranks=8))[:1] == ("Unknown",)


def test_where_smaller_groups_are_known_nothing_follows_by_elimination() -> None:
    group = GroupProgress("data", 6, -1, -1, 77)
    job = [
        (standing(rank, RECEIVES) if rank == 6 else standing(rank, REDUCES).but(groups=(group,)))
        for rank in range(7)
    ]
    found = judge(*(with_peer(a_job(*job, seconds=seconds), {6: 0}) for seconds in (0.0, 4.0)))
    assert found.kind != "order_deadlock"


@pytest.mark.parametrize(
    "others",
    [
        ("all_reduce", "all_reduce", "barrier"),  # at two places: which of them lacks the receiver?
        ("recv", "recv", "recv"),  # messages, for anybody
        ("_store_based_barrier",) * 3,  # the store
    ],
)
def test_only_ranks_in_one_collective_wait_for_whoever_is_outside_of_it(others: tuple[str, ...]) -> None:
    job = [*(a_rank(rank).waiting_in(name) for rank, name in enumerate(others)), receiving(3)]
    found = judge(*(with_peer(a_job(*job, seconds=seconds), {3: 0}) for seconds in (0.0, 4.0)))
    assert found.kind != "order_deadlock"


def test_waits_that_end_and_begin_again_are_no_circle() -> None:
    job = [standing(rank, RECEIVES if rank == 2 else REDUCES).but(switches=60.0) for rank in range(3)]
    found = judge(*(with_peer(a_job(*job, seconds=seconds), {2: 0}) for seconds in (0.0, 4.0)))
    assert found.kind != "order_deadlock"


# ---- the minority's call ----------------------------------------------------------------------------------


def test_a_receiver_whose_peer_could_not_be_read_is_the_minority_s_call() -> None:
    found = unsent(peers={})
    assert said(found) == ("RankNonCommHang", "desync", "low", (5,), "9")
    assert [one.waits_for for one in found.ranks] == [(5,) if rank != 5 else () for rank in range(7)]
    assert found.summary.startswith("rank 5 in recv; ranks 0-4,6 wait in all_reduce")


def test_a_rank_that_waits_for_a_batch_of_messages_is_the_minority_s_call() -> None:
    one_group = GroupProgress("0", 5, -1, -1, 7)
    ranks = [standing(rank, BATCH if rank == 3 else REDUCES).but(groups=(one_group,)) for rank in range(5)]
    found = judge_still(*ranks)
    assert said(found) == ("RankNonCommHang", "desync", "low", (3,), "9")
    assert found.location is not None
    assert found.location.function == "swap_edges"


def test_of_two_ranks_one_of_which_receives_both_are_named() -> None:
    assert said(unsent(peers={}, receivers=(0,), ranks=2))[2:] == ("low", (0, 1), "9")


def test_by_numbers_too_it_is_another_wait_and_no_lock() -> None:
    """The kernel has it in ``futex_do_wait``, as it has whoever waits for a lock."""
    reduces = [standing(rank, REDUCES).at(7, completed=6) for rank in (0, 1, 2)]
    found = judge_still(*reduces, standing(3, BATCH).at(6))
    assert said(found) == ("RankNonCommHang", "desync", "low", (3,), "4")


@pytest.mark.parametrize("receivers", [(0, 1, 2, 3), (0, 1), (1, 2, 3)])
def test_stages_of_a_pipeline_stand_in_messages_by_right(receivers: tuple[int, ...]) -> None:
    """Most or half of them in messages, the rest in a reduction: that says nothing."""
    assert unsent(peers={}, receivers=receivers, ranks=4).verdict in ("Unknown", "RankCommHang")


def test_messages_beside_two_different_collectives_name_nobody() -> None:
    job = [receiving(0), *waiting(1, 2, 3), a_rank(4).waiting_in("barrier")]
    assert judge_still(*job).verdict == "Unknown"
