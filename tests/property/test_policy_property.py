"""The policy under random histories: what must never happen does not, and every input has one decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rankscope.agent.failures.model import Failure
from rankscope.agent.policy import (
    History,
    Rules,
    decide_on_exit_hang,
    decide_on_failure,
    decide_on_hang,
    decide_on_left_workers,
    decide_on_stuck_kernel,
    decide_on_timer,
    decide_on_worker_failure,
    restarts_all,
)
from rankscope.agent.policy.gate import BEFORE_THE_NEXT_RUN, RUN_AGAIN
from rankscope.agent.settings.values import ExecutionMode, FaultTolerantPolicy, OnHang
from rankscope.diag.model import Action, Confidence, Decision, Diagnosis, Evidence, Kind, Severity, Verdict

NOW = "2026-11-29T16:40:00.000Z"
LEAVES_ALONE = ("log", "notify", "hold")
NO_HANG = ("Healthy", "RankCommSlow", "RankNonCommSlow")
BLOCKED = Evidence("/proc", "state D (blocked in the kernel), in the kernel's nfs_wait", 1)
_counts = st.integers(0, 12)
_words = st.sampled_from(["rank 1 is stuck", "", "run it once more", "no such file: before.txt"])
rules = st.builds(
    Rules,
    on_hang=st.sampled_from(get_args(OnHang)),
    execution_mode=st.sampled_from(get_args(ExecutionMode)),
    restart_enabled=st.booleans(),
    critical_roles=st.sampled_from([(), ("ps", "chief")]),
    fault_tolerant_policy=st.sampled_from(get_args(FaultTolerantPolicy)),
    max_same_error=st.integers(-1, 11),
    max_failure_rate=st.sampled_from([-1.0, 0.0, 0.5, 1.0]),
    no_progress_limit=st.integers(-1, 4),
    isolate_nodes=st.sampled_from(["auto", True, False]),
    nodes_have_room=st.booleans(),
)
histories = st.builds(
    History,
    restarts_used=_counts,
    restarts_allowed=_counts,
    same_errors=_counts,
    without_progress=_counts,
    failed_workers=_counts,
    workers=_counts,
    progress_seen=st.booleans(),
    interval_given=st.booleans(),
    progress_known=st.booleans(),
)
diagnoses = st.builds(
    Diagnosis,
    job=st.just("job"),
    time=st.just(NOW),
    world_size=st.just(4),
    observed=st.just("0-3"),
    verdict=st.sampled_from(get_args(Verdict)),
    kind=st.sampled_from(get_args(Kind)),
    severity=st.sampled_from(get_args(Severity)),
    confidence=st.sampled_from(get_args(Confidence)),
    culprits=st.sampled_from([(), (1,), (1, 3)]),
    nodes=st.sampled_from([(), ("host-a",), ("host-a", "host-b")]),
    summary=_words,
    location=st.none(),
    rule=st.sampled_from(["2", "8", "1", "7", "none"]),
    evidence=st.sampled_from([(), (BLOCKED,), (Evidence("py-spy", "in all_reduce", 0), BLOCKED)]),
    incident=st.sampled_from([None, "incident-1"]),
)
failures = st.builds(
    Failure,
    rank=st.integers(0, 3),
    local_rank=st.just(0),
    node=st.just("host-a"),
    role=st.sampled_from(["worker", "ps"]),
    exit_code=st.sampled_from([None, 1, -9, 137]),
    message=_words,
    identity=_words,
    source=st.just("log"),
    retryable=st.booleans(),
    because=_words,
    at=st.just(0.0),
)
lives = st.lists(st.tuples(diagnoses, st.one_of(st.none(), failures), st.booleans()), max_size=30)
Ask = Callable[[History, Rules], Decision]


def asks(diagnosis: Diagnosis, failure: Failure | None) -> dict[str, Ask]:
    """Every question that has a history and rules."""

    def timer(history: History, rules: Rules) -> Decision:
        return decide_on_timer(
            "timer 'a'",
            signal_name="SIGKILL",
            is_rank=True,
            history=history,
            rules=rules,
            time=NOW,
            incident="",
        )[0]

    found: dict[str, Ask] = {
        "hang": partial(decide_on_hang, diagnosis, silent_seconds=9.0, time=NOW),
        "exit": partial(decide_on_exit_hang, diagnosis, silent_seconds=9.0, time=NOW),
        "failure": partial(decide_on_failure, diagnosis, failure, time=NOW),
        "stuck": lambda past, rules: decide_on_stuck_kernel(diagnosis, time=NOW, history=past, rules=rules),
        "left": lambda past, rules: decide_on_left_workers((1,), time=NOW, history=past, rules=rules),
        "timer": timer,
    }
    if failure is not None:
        found["worker"] = partial(decide_on_worker_failure, failure, time=NOW)
    return found


@given(diagnoses, st.one_of(st.none(), failures), histories, rules)
def test_every_input_has_one_decision_that_can_be_carried_out(
    diagnosis: Diagnosis, failure: Failure | None, history: History, rules: Rules
) -> None:
    for name, ask in asks(diagnosis, failure).items():
        decision = ask(history, rules)
        assert decision == ask(history, rules)
        assert decision.action in get_args(Action)
        assert decision.reason
        assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision) == decision
        expected = {"fail": (1, 75, 93), "isolate": (75,)}.get(decision.action, (None,))
        assert decision.exit_code in expected, name


@given(diagnoses, st.one_of(st.none(), failures), histories, rules)
def test_no_restart_past_the_number_or_against_the_users_word(
    diagnosis: Diagnosis, failure: Failure | None, history: History, rules: Rules
) -> None:
    forbidden = (
        rules.fault_tolerant_policy == "Never"
        or (rules.execution_mode == "Sync" and not rules.restart_enabled)
        or history.restarts_used >= history.restarts_allowed
    )
    for name, ask in asks(diagnosis, failure).items():
        decision = ask(history, rules)
        again = decision.action in ("restart", "isolate")
        assert not (forbidden and again), name
        critical = failure is not None and restarts_all(failure, replace(rules, execution_mode="Async"))
        if name == "worker" and critical and not rules.restart_enabled:
            assert not again


@given(lives, histories, rules)
def test_a_life_of_hangs_and_failures_has_no_more_restarts_than_allowed(
    life: list[tuple[Diagnosis, Failure | None, bool]], start: History, rules: Rules
) -> None:
    history, restarts = replace(start, restarts_used=0, without_progress=0), 0
    for diagnosis, failure, steps in life:
        name = "hang" if failure is None else "failure"
        decision = asks(diagnosis, failure)[name](history, rules)
        if decision.action == "fail":
            break
        if decision.action in ("restart", "isolate"):
            restarts += 1
            stalled = 0 if steps else history.without_progress + 1
            history = replace(history, restarts_used=restarts, without_progress=stalled)
    assert restarts <= history.restarts_allowed


@given(diagnoses, st.one_of(st.none(), failures), histories, rules)
def test_never_a_restart_where_a_rank_is_blocked_in_the_kernel(
    diagnosis: Diagnosis, failure: Failure | None, history: History, rules: Rules
) -> None:
    blocked = msgspec.structs.replace(diagnosis, rule="2", evidence=(BLOCKED,))
    for name in ("hang", "exit", "failure", "stuck", "left"):
        assert asks(blocked, failure)[name](history, rules).action != "restart", name


@given(diagnoses, st.one_of(st.none(), failures), histories, rules)
def test_the_reason_says_whether_to_run_the_job_again(
    diagnosis: Diagnosis, failure: Failure | None, history: History, rules: Rules
) -> None:
    for ask in asks(diagnosis, failure).values():
        decision = ask(history, rules)
        asked = decision.action == "fail" and decision.exit_code == 75
        assert (RUN_AGAIN in decision.reason) is asked
        assert (BEFORE_THE_NEXT_RUN in decision.reason) is (decision.exit_code == 93)


@given(diagnoses, histories, rules)
def test_what_is_no_hang_stops_nothing_and_what_is_doubtful_removes_no_node(
    diagnosis: Diagnosis, history: History, rules: Rules
) -> None:
    for name in ("hang", "exit"):
        action = asks(diagnosis, None)[name](history, rules).action
        if diagnosis.verdict in NO_HANG or rules.execution_mode == "Async":
            assert action in LEAVES_ALONE
        if rules.on_hang in LEAVES_ALONE:
            assert action in LEAVES_ALONE
        if diagnosis.verdict in ("Unknown", "Exited") or diagnosis.confidence != "high":
            assert action != "isolate"
        if rules.isolate_nodes is False or (rules.isolate_nodes == "auto" and not rules.nodes_have_room):
            assert action != "isolate"
