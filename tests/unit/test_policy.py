"""The smallest policy: a diagnosis, a history, the decision expected."""

from __future__ import annotations

import pytest

from rankscope.agent.policy import History, OnHang, decide_on_failure, decide_on_hang, decide_on_timer
from rankscope.diag.model import Decision, Diagnosis


def a_diagnosis(*culprits: int) -> Diagnosis:
    return Diagnosis(
        job="job",
        time="t",
        world_size=4,
        observed="0-3",
        verdict="RankNonCommHang",
        kind="lock",
        severity="warning",
        confidence="high",
        culprits=culprits,
        nodes=("host",),
        summary="rank 2 is stuck",
        location=None,
        rule="8",
        incident="incident-1",
    )


def decide(history: History, *, on_hang: OnHang = "auto", culprits: tuple[int, ...] = (2,)) -> Decision:
    return decide_on_hang(
        a_diagnosis(*culprits), history, silent_seconds=200, on_hang=on_hang, time="2026-01-01T00:00:00.000Z"
    )


@pytest.mark.parametrize(
    ("left", "allowed", "interval_given", "expected"),
    [
        (2, 2, False, "restart"),
        (1, 2, False, "restart"),
        (0, 2, False, "fail"),
        (0, 0, True, "fail"),
        (0, 0, False, "notify"),
        (1, 1, True, "restart"),
    ],
)
def test_a_hang_restarts_the_job_while_restarts_are_left(
    *, left: int, allowed: int, interval_given: bool, expected: str
) -> None:
    assert decide(History(left, allowed, interval_given)).action == expected


@pytest.mark.parametrize("on_hang", ["log", "notify", "hold"])
def test_a_user_who_wants_the_job_left_alone_gets_that(on_hang: OnHang) -> None:
    assert decide(History(2, 2), on_hang=on_hang).action == on_hang


def test_without_restarts_an_explicit_restart_fails_the_job() -> None:
    assert decide(History(0, 0), on_hang="restart").action == "fail"


def test_failing_asks_to_be_run_again() -> None:
    decision = decide(History(0, 2))
    assert decision.exit_code == 75
    assert decision.culprits == (2,)
    assert decision.incident == "incident-1"


def test_a_job_that_never_trained_and_has_no_culprit_is_not_stopped() -> None:
    history = History(2, 2, progress_seen=False)
    assert decide(history, culprits=()).action == "notify"
    assert decide(history, culprits=(1,)).action == "restart"


def test_the_reason_says_how_long_what_and_which_restart_it_is() -> None:
    assert decide(History(1, 2)).reason == "no progress for 200 s: rank 2 is stuck; restart 2 of 2"


def test_a_failure_is_put_into_words() -> None:
    restarted = decide_on_failure(a_diagnosis(2), restarts_left=1, restarts_allowed=3, time="t")
    assert (restarted.action, restarted.exit_code) == ("restart", None)
    assert restarted.reason.endswith("restart 3 of 3")
    failed = decide_on_failure(a_diagnosis(2), restarts_left=0, restarts_allowed=3, time="t")
    assert (failed.action, failed.exit_code) == ("fail", 1)


@pytest.mark.parametrize("on_hang", ["log", "notify", "hold"])
def test_an_expired_timer_of_a_job_that_is_to_be_left_alone_sends_no_signal(on_hang: OnHang) -> None:
    decision, send = decide_timer(on_hang=on_hang)
    assert (decision.action, send) == (on_hang, False)
    assert f"--on-hang {on_hang}" in decision.reason


@pytest.mark.parametrize(("left", "action"), [(2, "restart"), (0, "fail")])
def test_an_expired_timer_of_a_rank_sends_its_signal_and_says_what_follows(left: int, action: str) -> None:
    decision, send = decide_timer(left=left)
    assert (decision.action, send) == (action, True)
    assert "SIGKILL, as it asked" in decision.reason


def test_an_expired_timer_of_a_rank_s_child_is_told_and_carried_out() -> None:
    decision, send = decide_timer(is_rank=False)
    assert (decision.action, send) == ("notify", True)


def decide_timer(*, on_hang: OnHang = "auto", left: int = 1, is_rank: bool = True) -> tuple[Decision, bool]:
    return decide_on_timer(
        "timer 'epoch' of process 7 (rank 2)",
        signal_name="SIGKILL",
        is_rank=is_rank,
        history=History(restarts_left=left, restarts_allowed=3),
        on_hang=on_hang,
        time="2026-11-29T16:40:00Z",
        incident="one",
    )
