"""The diagnosis of a failure and the root failure name the same rank, and both say when that is a guess."""

from __future__ import annotations

from tests.classify_factory import a_job
from tests.failures_factory import ended as words_of
from tests.rules_factory import ended

from rankscope.agent.failures import Failure, choose_root
from rankscope.agent.failures.in_diagnosis import in_order, is_told_otherwise, with_tie
from rankscope.agent.policy import History, Rules, decide_on_failure
from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.model import Diagnosis, ExitFacts

MISSING = "ModuleNotFoundError: No module named 'nosuch'"
AGES = {0: 1.000, 1: 1.003}
"""Rank 1 ended 3 ms before rank 0: seen in any order."""


def exits(ages: dict[int, float]) -> dict[int, ExitFacts]:
    return {rank: ExitFacts(1, MISSING, seconds_ago=age) for rank, age in ages.items()}


def judged(ages: dict[int, float], root: Failure | None = None) -> Diagnosis:
    job = a_job(*(ended(rank, 1, MISSING, ago=age) for rank, age in ages.items()))
    if root is not None:
        job = in_order(job, exits(ages), root)
    return diagnose((job, None), catalogue=load_catalogue(), source_line=lambda _file, _line: None, time="")


def root_of(ages: dict[int, float]) -> Failure:
    found = choose_root([words_of(rank, MISSING, after=-age) for rank, age in ages.items()])
    assert found is not None
    return found


def test_ranks_that_fail_within_milliseconds_are_a_tie_in_the_diagnosis_and_in_the_decision() -> None:
    root, first = root_of(AGES), judged(AGES)
    assert (root.rank, root.tied_with, first.culprits) == (0, (1,), (1,))
    assert is_told_otherwise(first, root, exits(AGES))
    found = with_tie(judged(AGES, root), root)
    assert found.culprits == (0, 1)
    assert found.summary.endswith("which of ranks 0-1 was the first cannot be told")
    decision = decide_on_failure(found, root, History(restarts_allowed=1), Rules(), time="")
    assert decision.reason.startswith(found.summary)
    assert not is_told_otherwise(found, root, exits(AGES))


def test_without_a_diagnosis_the_decision_says_with_whom_the_root_is_tied() -> None:
    decision = decide_on_failure(None, root_of(AGES), History(restarts_allowed=1), Rules(), time="")
    assert "rank 0 on node-a failed first, rank 1 at the same instant (exit code 1)" in decision.reason


def test_whoever_raised_first_is_the_culprit_though_others_ended_before_it() -> None:
    ages = {0: 3.0, 1: 2.0, 2: 1.0}
    root = choose_root([words_of(rank, MISSING, after=0.0 if rank == 2 else 1.0) for rank in ages])
    assert root is not None
    assert (root.rank, judged(ages).culprits) == (2, (0,))
    assert judged(ages, root).culprits == (2,)
    assert with_tie(judged(ages, root), root) == judged(ages, root)


def test_a_diagnosis_that_is_right_or_about_something_else_stays() -> None:
    ages = {0: 1.0, 1: 2.0}
    root = root_of(ages)
    assert not is_told_otherwise(judged(ages), root, exits(ages))
    assert not is_told_otherwise(judged(ages), None, exits(ages))
    left = {**exits(ages), 1: ExitFacts(0)}
    assert not is_told_otherwise(judged(ages), root_of(AGES), left)  # it blames a rank that left before
