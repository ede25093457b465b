"""Rules 1 and 2: ranks that ended, left before the others, or cannot run."""

from __future__ import annotations

import pytest
from tests.classify_factory import (
    ARank,
    a_job,
    a_rank,
    judge,
    judge_still,
    stdlib,
    torch_frame,
    user,
)
from tests.rules_factory import (
    ended,
    loading,
    said,
    waiting,
)

from rankscope.diag.classify import load_catalogue

# ---- rule 1: ended ----------------------------------------------------------------------------------------


def test_the_first_to_end_is_the_culprit_and_terminated_survivors_are_not() -> None:
    found = judge_still(ended(0, -15, ago=1.0), ended(1, -9, ago=2.0), ended(2, -15, ago=1.0))
    assert said(found) == ("Exited", "dead", "high", (1,), "1")
    assert found.summary == "rank 1 was killed by SIGKILL; ranks 0,2 ended after it"
    assert [one.role for one in found.ranks] == ["victim", "culprit", "victim"]
    assert found.unobserved == ()


def test_a_lost_connection_is_a_consequence_even_when_it_ended_first() -> None:
    closed = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:64144"
    found = judge_still(ended(0, 1, closed, ago=2.0), ended(1, 1, "ValueError: bad batch", ago=2.0))
    assert found.culprits == (1,)
    assert found.summary.startswith("rank 1 ended with exit code 1: ValueError: bad batch")


def test_ranks_that_still_wait_for_the_dead_one_are_its_victims() -> None:
    found = judge_still(*waiting(0, 2), ended(1, 5))
    assert (found.verdict, found.culprits, found.severity) == ("Exited", (1,), "error")
    assert found.ranks[0].waits_for == (1,)
    assert found.ranks[1].state == "exited"


def test_a_zombie_has_ended() -> None:
    """How it ended nobody knows: that it was waited for is all there is."""
    assert said(judge_still(*waiting(0), a_rank(1).but(state="Z"))) == ("Exited", "dead", "low", (1,), "1")


def test_failures_at_the_same_moment_are_a_tie() -> None:
    found = judge_still(ended(0, 1, "A", ago=2.0), ended(1, 1, "B", ago=2.0))
    assert (found.culprits, found.confidence) == ((0, 1), "low")
    alike = judge_still(ended(0, -9, ago=2.0), ended(1, -9, ago=2.0), ended(2, 1, "B", ago=2.0))
    assert alike.summary == "ranks 0-1 were killed by SIGKILL; rank 2 ended with exit code 1: B"


def test_a_job_ended_from_outside_has_no_culprit() -> None:
    found = judge_still(ended(0, -15), ended(1, -15))
    assert (found.verdict, found.culprits, found.severity) == ("Exited", (), "info")


def test_a_job_whose_ranks_all_finished_is_healthy() -> None:
    assert judge_still(ended(0, 0), ended(1, 0)).verdict == "Healthy"


def test_a_rank_that_left_early_is_waited_for() -> None:
    assert said(judge_still(*waiting(0, 2), ended(1, 0))) == ("Exited", "exit", "medium", (1,), "1")


def test_a_rank_that_hangs_at_its_exit_is_named_after_the_others_left() -> None:
    hung = a_rank(1).but(frames=(stdlib("_shutdown", "threading.py", 1590),))
    assert said(judge_still(ended(0, 0), hung)) == ("RankNonCommHang", "exit", "medium", (1,), "10")


# ---- rule 2: frozen ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["T", "D", "t"])
def test_a_frozen_rank_is_the_culprit_without_a_stack(state: str) -> None:
    frozen = a_rank(1).but(state=state, wchan="kernel_clone").unseen("state " + state)
    found = judge_still(*waiting(0, 2), frozen)
    assert said(found) == ("RankNonCommHang", "frozen", "high", (1,), "2")
    assert any(f"state {state}" in one.fact and one.rank == 1 for one in found.evidence)
    assert [(one.rank, one.reason) for one in found.unobserved] == [(1, "state " + state)]


def test_a_moment_in_the_kernel_is_not_frozen() -> None:
    found = judge(
        a_job(*waiting(0, 2), loading(1)), a_job(*waiting(0, 2), loading(1).but(state="D"), seconds=4.0)
    )
    assert found.kind == "data_loading"


def test_a_job_that_was_stopped_has_no_culprit() -> None:
    found = judge_still(*(a_rank(rank).but(state="T") for rank in range(3)))
    assert (found.kind, found.severity, found.culprits) == ("frozen", "info", ())
    assert "stopped by a signal" in found.summary


def test_all_ranks_blocked_in_the_kernel_are_a_common_cause() -> None:
    found = judge_still(
        *(a_rank(rank).stuck_in(user("read", 4)).but(state="D", wchan="nfs_wait") for rank in range(2))
    )
    assert (found.kind, found.culprits) == ("storage", ())


# ---- ranks that finished before the others ----------------------------------------------------------------


@pytest.mark.parametrize("code", [0, None])
def test_a_rank_that_finished_does_not_hide_the_one_that_hangs(code: int | None) -> None:
    left = ended(2, code).at(20, size=3)
    waits = a_rank(0).waiting_in().at(20, size=3).at(31, completed=30, group="1", size=2)
    hangs = a_rank(1).stuck_in(user("stuck", 53)).at(20, size=3).at(30, group="1", size=2)
    assert said(judge_still(waits, hangs, left)) == ("RankNonCommHang", "user_code", "high", (1,), "4")
    assert judge_still(*waiting(0), loading(), ended(1, code)).culprits == (2,)


@pytest.mark.parametrize("code", [0, None])
def test_a_rank_that_finished_is_not_blamed_for_a_group_without_it(code: int | None) -> None:
    waits = [
        a_rank(rank).waiting_in().at(20, size=3).at(31, completed=30, group="1", size=2) for rank in (0, 1)
    ]
    found = judge_still(*waits, ended(2, code).at(20, size=3))
    assert said(found) == ("RankCommHang", "network", "low", (), "7")


def test_an_unknown_exit_code_names_with_low_confidence() -> None:
    found = judge_still(*waiting(0, 2, seq=7), ended(1, None).at(6))
    assert said(found) == ("Exited", "dead", "low", (1,), "1")
    assert "its exit code is unknown; ranks 0,2 wait for it" in found.summary
    assert judge_still(*waiting(0, 2, seq=7), ended(1, 0).at(6)).confidence == "medium"


def test_a_rank_that_left_is_named_by_numbers_while_another_is_busy_alone() -> None:
    logs = a_rank(2).stuck_in(user("log", 4)).at(7, completed=7, size=3)
    found = judge_still(a_rank(0).waiting_in().at(7, completed=6, size=3), ended(1, 0).at(6, size=3), logs)
    assert (found.verdict, found.kind, found.culprits) == ("Exited", "exit", (1,))


def test_a_rank_that_hangs_at_its_exit_is_named_though_the_others_ends_are_unknown() -> None:
    hung = a_rank(1).but(frames=(stdlib("_shutdown", "threading.py", 1590),))
    found = judge_still(ended(0, None), hung)
    assert (found.verdict, found.kind, found.culprits) == ("RankNonCommHang", "exit", (1,))
    assert judge_still(ended(0, None), hung, trained=False).verdict == "Unknown"
    # Nobody saw the job move, but the others have left with 0, and no server waits in there.
    assert said(judge_still(ended(0, 0), hung, trained=False)) == (*said(found)[:2], "low", (1,), "10")
    serves = a_rank(1).stuck_in(user("serve", 7))
    assert judge_still(ended(0, 0), serves, trained=False).verdict == "Unknown"


def test_how_a_job_ended_is_not_known_without_its_codes() -> None:
    assert judge_still(ended(0, 0), ended(1, None)).verdict == "Unknown"


CUT = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537]"
    " Read error [127.0.0.1]:"
)


@pytest.mark.parametrize("tail", ["3288: Connec", "28046: Conne", "", "3288: Connection reset by peer"])
def test_a_rank_that_left_with_0_is_why_the_others_lost_their_connection(tail: str) -> None:
    found = judge_still(ended(0, 1, CUT + tail, ago=0.1), ended(1, 0, ago=3.8), ended(2, -15, ago=0.0))
    assert said(found) == ("Exited", "exit", "medium", (1,), "1")
    assert found.summary == "rank 1 ended with exit code 0 before the others; ranks 0,2 ended after it"
    assert found.ranks[0].waits_for == (1,)


def test_a_rank_that_finished_after_a_failure_or_beside_one_with_a_cause_is_not_named() -> None:
    later = judge_still(ended(0, 1, CUT, ago=3.0), ended(1, 0, ago=1.0))
    assert (later.culprits, later.confidence) == ((0,), "medium")
    own = judge_still(ended(0, 1, "ValueError: bad batch", ago=1.0), ended(1, 0, ago=3.0))
    assert (own.kind, own.culprits, own.confidence) == ("dead", (0,), "high")
    assert judge_still(ended(0, -15, ago=1.0), ended(1, 0, ago=3.0)).culprits == ()


@pytest.mark.parametrize(
    ("message", "is_one"),
    [
        ("x" * 110 + " Connection clo", True),
        ("x" * 110 + " Conn", False),
        ("RuntimeError: lost Connection", False),
        ("[gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 320000 vs 32", False),
    ],
)
def test_a_message_that_was_cut_is_still_read(message: str, is_one: bool) -> None:
    assert load_catalogue().is_consequence(message) is is_one


# ---- ranks of which no process is left ----


def in_store(rank: int, line: int = 12) -> ARank:
    return a_rank(rank).stuck_in(user("meet", line), wchan="poll_schedule_timeout")


def test_a_rank_that_left_while_the_others_wait_in_the_store_is_named() -> None:
    lines = {12: "store.wait(keys)"}
    found = judge_still(in_store(0), ended(1, 0), in_store(2), lines=lines, trained=False)
    assert said(found) == ("Exited", "exit", "medium", (1,), "1")
    assert judge_still(in_store(0), ended(1, None), lines=lines).culprits == (1,)


def test_a_rank_that_never_came_to_the_start_is_missing_there() -> None:
    inside = (torch_frame("init_process_group", "torch/distributed/distributed_c10d.py"), user("init", 31))
    starting = [a_rank(rank).stuck_in(*inside) for rank in (0, 2)]
    found = judge_still(*starting, ended(1, None), trained=False)
    assert said(found) == ("RankNonCommHang", "startup", "medium", (1,), "11")
    assert "rank 1 has no process: ended, or never started" in found.summary
    assert judge_still(*starting, ended(1, 0), trained=False).verdict == "Exited"


def test_an_exception_without_an_exit_code_is_told_as_what_it_is() -> None:
    found = judge_still(*waiting(0), ended(1, None, "ValueError: no batch"))
    assert said(found) == ("Exited", "dead", "high", (1,), "1")
    assert found.summary.startswith("rank 1 raised ValueError: no batch")
    alone = judge_still(ended(0, None, "ValueError: no batch"))
    assert (alone.culprits, alone.confidence) == ((0,), "medium")
