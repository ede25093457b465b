"""The policy's words and borders; what it decides in every cell is in ``test_policy_table.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from tests.classify_factory import a_rank, judge_still, user
from tests.policy_table import NOW, a_diagnosis, a_failure
from tests.rules_factory import waiting

from rankscope.agent.policy import (
    History,
    Rules,
    decide_on_exit_hang,
    decide_on_failure,
    decide_on_hang,
    decide_on_left_workers,
    decide_on_stuck_kernel,
    decide_on_worker_failure,
    restarts_all,
)
from rankscope.agent.policy.isolation import blocked_ranks
from rankscope.agent.settings.values import Settings
from rankscope.diag.model import Decision, RankFinding

HANG = a_diagnosis("RankNonCommHang", "warning", "high")
CRASH = a_diagnosis("Exited", "error", "high")
FAILURE = a_failure({"root": "plain", "role": "ordinary"})
SOME = History(restarts_used=1, restarts_allowed=3)


def hung(history: History = SOME, rules: Rules | None = None) -> Decision:
    return decide_on_hang(HANG, history, rules or Rules(), silent_seconds=200, time=NOW)


def failed(history: History = SOME, rules: Rules | None = None) -> Decision:
    return decide_on_failure(CRASH, FAILURE, history, rules or Rules(), time=NOW)


def test_the_reason_says_what_happened_what_is_done_and_which_restart_it_is() -> None:
    assert hung().reason == (
        "no progress for 200 s: rank 1 is stuck in read_shard (train.py:46), data loading; "
        "all workers are restarted, restart 2 of 3"
    )


def test_a_decision_names_culprits_incident_and_time() -> None:
    decision = hung()
    assert (decision.culprits, decision.incident, decision.time) == ((1,), "incident-1", NOW)


def test_without_a_culprit_the_suspects_are_named() -> None:
    suspects = (RankFinding(2, "host-a", 7, "suspected", "bystander"),)
    unsure = msgspec.structs.replace(a_diagnosis("Unknown", "info", "low", named="nobody"), ranks=suspects)
    assert decide_on_hang(unsure, SOME, Rules(), silent_seconds=1800, time=NOW).culprits == (2,)


def test_an_exit_hang_says_who_has_ended() -> None:
    decision = decide_on_exit_hang(HANG, SOME, Rules(), silent_seconds=600, time=NOW)
    assert decision.reason.startswith("rank 0 has ended, the rest lingers for 600 s: rank 1 is stuck")
    assert decision.action == "restart"


def test_the_last_restart_is_one_that_is_left() -> None:
    assert hung(History(restarts_used=2, restarts_allowed=3)).reason.endswith("restart 3 of 3")
    assert hung(History(restarts_used=3, restarts_allowed=3)).action == "fail"
    assert hung(History(restarts_used=9, restarts_allowed=3)).action == "fail"


@pytest.mark.parametrize(("count", "limit", "stops"), [(10, 10, False), (11, 10, True), (11, 0, False)])
def test_an_error_may_come_as_often_as_the_limit_says(count: int, limit: int, *, stops: bool) -> None:
    decision = failed(replace(SOME, same_errors=count), Rules(max_same_error=limit))
    assert (decision.exit_code == 93) is stops


@pytest.mark.parametrize(
    ("count", "limit", "stops"), [(2, 3, False), (3, 3, True), (1, 1, True), (9, 0, False)]
)
@pytest.mark.parametrize("decide", [hung, failed])
def test_as_many_restarts_as_the_limit_says_may_pass_without_a_step(
    decide: Callable[[History, Rules], Decision], count: int, limit: int, *, stops: bool
) -> None:
    history = History(restarts_used=count, restarts_allowed=20, without_progress=count)
    assert (decide(history, Rules(no_progress_limit=limit)).exit_code == 93) is stops


@pytest.mark.parametrize("decide", [hung, failed])
def test_steps_that_nobody_could_see_are_not_missed(decide: Callable[[History, Rules], Decision]) -> None:
    history = replace(SOME, without_progress=30, progress_known=False)
    assert decide(history, Rules()).action == "restart"


@pytest.mark.parametrize(
    ("count", "rate", "stops"), [(2, 0.5, False), (3, 0.5, True), (4, -1.0, False), (1, 0.0, True)]
)
def test_as_many_workers_may_fail_as_the_rate_says(count: int, rate: float, *, stops: bool) -> None:
    decision = failed(replace(SOME, failed_workers=count, workers=4), Rules(max_failure_rate=rate))
    assert (decision.exit_code == 93) is stops


def test_a_failure_is_told_in_the_words_of_the_diagnosis_where_that_names_the_root() -> None:
    assert failed().reason.startswith("rank 1 is stuck")
    other = replace(FAILURE, rank=2)
    decision = decide_on_failure(CRASH, other, SOME, Rules(), time=NOW)
    first = "rank 2 on host-a failed first (exit code 1): ValueError: no such column; all workers"
    assert decision.reason.startswith(first)
    assert decision.culprits == (2,)


def test_a_failure_that_nobody_looked_at_is_decided_all_the_same() -> None:
    assert decide_on_failure(None, FAILURE, SOME, Rules(), time=NOW).culprits == (1,)
    decision = decide_on_failure(None, None, SOME, Rules(), time=NOW)
    assert (decision.action, decision.culprits, decision.incident) == ("restart", (), None)
    assert decision.reason.startswith("a worker has failed; all workers are restarted")


def test_a_worker_killed_by_a_signal_has_no_exit_code_in_its_words() -> None:
    killed = replace(FAILURE, exit_code=-9, message="killed by SIGKILL")
    reason = decide_on_worker_failure(killed, SOME, Rules(execution_mode="Async"), time=NOW).reason
    assert reason == "rank 1 on host-a failed: killed by SIGKILL; it alone is restarted, restart 2 of 3"


def test_a_restart_is_of_all_workers_where_they_depend_on_the_one_that_failed() -> None:
    rules = Rules(execution_mode="Async", critical_roles=("chief",))
    assert not restarts_all(FAILURE, rules)
    assert restarts_all(replace(FAILURE, role="chief"), rules)
    assert restarts_all(FAILURE, Rules())


def test_a_node_that_hangs_without_a_way_back_is_left_out_only_where_the_job_may_restart() -> None:
    rules = Rules(nodes_have_room=True)
    leaves = decide_on_left_workers((0, 1), time=NOW, history=SOME, rules=rules)
    assert (leaves.action, leaves.culprits, leaves.incident) == ("isolate", (0, 1), None)
    without_room = decide_on_stuck_kernel(HANG, time=NOW, history=SOME, rules=Rules())
    for ends in (
        decide_on_left_workers((0, 1), time=NOW, history=History(), rules=rules),
        decide_on_stuck_kernel(HANG, time=NOW, history=History(), rules=rules),
        without_room,
    ):
        assert (ends.action, ends.exit_code) == ("fail", 75)
    assert (without_room.culprits, without_room.incident) == ((1,), "incident-1")


@pytest.mark.parametrize(("state", "blocked"), [("D", (1,)), ("T", ())])
def test_the_policy_reads_a_blocked_rank_from_what_the_rules_say(
    state: str, blocked: tuple[int, ...]
) -> None:
    stopped = a_rank(1).stuck_in(user("load_batch", 8)).but(state=state)
    diagnosis = judge_still(*waiting(0, 2, 3), stopped)
    assert diagnosis.rule == "2"
    assert blocked_ranks(diagnosis) == blocked
    decision = decide_on_hang(diagnosis, SOME, Rules(), silent_seconds=200, time=NOW)
    assert decision.action == ("fail" if blocked else "restart")


def test_rules_are_those_of_the_settings() -> None:
    settings = Settings(
        on_hang="hold",
        execution_mode="Async",
        restart_enabled=True,
        critical_roles=("chief",),
        fault_tolerant_policy="Never",
        max_same_error=4,
        max_failure_rate=0.25,
        no_progress_limit=7,
        isolate_nodes=False,
    )
    rules = Rules.of(settings, nodes_have_room=True)
    assert rules == Rules("hold", "Async", True, ("chief",), "Never", 4, 0.25, 7, False, True)
