"""The table of rules itself: each says its row, names its evidence and what would change its mind."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests.classify_factory import ARank, a_job, a_rank, judge, judge_still, user
from tests.records_factory import a_record, call, judge_records, steps
from tests.rules_factory import ended, facts_of, loading, waiting

from rankscope.diag.classify.rules import RULES
from rankscope.diag.model import Diagnosis
from rankscope.diag.report.text import render_text

ROW = re.compile(r"Rows? [\dS]|Decision \d")


def two_in_a_circle() -> list[ARank]:
    left = a_rank(0).waiting_in().at(5, completed=4, group="a", size=2).at(8, group="b", size=2)
    right = a_rank(1).waiting_in().at(4, group="a", size=2).at(9, completed=8, group="b", size=2)
    return [left, right]


def held(rank: int) -> ARank:
    return a_rank(rank).waiting_in().at(7, completed=6, size=3)


STILL: dict[str, Callable[[], list[ARank]]] = {
    "2": lambda: [*waiting(0, 2), a_rank(1).but(state="T").unseen("T")],
    "4": lambda: [*waiting(0, 1, 3, seq=7), loading().at(6)],
    "5": two_in_a_circle,
    "6": lambda: [a_rank(0).waiting_in("barrier").at(7, size=3), held(1), held(2)],
    "7": lambda: waiting(0, 1, 2),
    "8": lambda: [*waiting(0, 1, 3), loading()],
    "9": lambda: [*waiting(0, 2, 3), a_rank(1).waiting_in("barrier", line=48)],
    "10": lambda: [loading(rank) for rank in range(3)],
    "11": lambda: [
        a_rank(0).stuck_in(user("sync", 12), wchan="poll_schedule_timeout"),
        a_rank(1).stuck_in(user("compute", 20), wchan="hrtimer_nanosleep"),
    ],
}
LINES = {12: 'st.get("done")', 20: "time.sleep(60)"}


def test_every_rule_says_in_its_docstring_which_row_it_is() -> None:
    for rule in RULES:
        assert ROW.match(rule.__doc__ or ""), rule.__name__


@pytest.mark.parametrize("rule", STILL)
def test_every_diagnosis_names_its_rule_and_what_would_change_its_mind(rule: str) -> None:
    found = judge_still(*STILL[rule](), lines=LINES)
    assert found.rule == rule
    assert found.evidence
    assert_is_a_phrase(found)


def assert_is_a_phrase(found: Diagnosis) -> None:
    text = found.would_change
    assert 10 < len(text) < 160, text
    assert not text.endswith(".")
    named = "".join(str(rank) for rank in found.culprits)
    if len(found.culprits) == 1 and found.verdict != "Healthy":
        assert f"rank {named}" in text


@pytest.mark.parametrize("rule", [rule for rule in STILL if rule not in {"6", "7", "10"}])
def test_a_single_dump_is_less_sure_and_says_so(rule: str) -> None:
    ranks = [rank.but(step=5) for rank in STILL[rule]()]
    once, twice = judge(a_job(*ranks), lines=LINES), judge_still(*ranks, lines=LINES)
    order = ["low", "medium", "high"]
    assert once.culprits == twice.culprits
    assert order.index(once.confidence) <= min(order.index(twice.confidence), 1)
    assert any("a single dump" in one for one in facts_of(once))
    assert not any("a single dump" in one for one in facts_of(twice))


def test_a_single_dump_of_a_stopped_job_says_so() -> None:
    found = judge(a_job(*(a_rank(rank).but(state="T") for rank in range(3))))
    assert (found.confidence, found.would_change) == (
        "medium",
        "a rank that runs: its process state is another than the rest's",
    )
    assert any("a single dump" in one for one in facts_of(found))


@pytest.mark.parametrize("rule", ["6", "7", "10"])
def test_what_a_single_dump_cannot_show_is_not_known_from_one(rule: str) -> None:
    found = judge(a_job(*STILL[rule]()))
    assert found.verdict == "Unknown"
    assert any("a single dump" in one for one in facts_of(found))
    assert "second look" in found.would_change


def test_records_alone_tell_what_would_change_their_mind() -> None:
    odd = a_record(*steps(3), call("broadcast", 4, ended=False))
    rest = a_record(*steps(3), call("all_reduce", 4, ended=False))
    minority, tie = judge_records(rest, odd, rest), judge_records(rest, odd)
    assert minority.would_change.startswith("the program: should it make the call of rank 1 there")
    assert "both sides are as likely" in tie.would_change
    beside = judge_records(rest, odd, None)
    assert (beside.culprits, "both sides are as likely" in beside.would_change) == ((0, 1), True)


def test_an_end_is_doubted_by_an_earlier_one() -> None:
    found = judge_still(ended(0, 1, "ValueError", ago=2.0), ended(1, -15, ago=1.0))
    assert found.would_change.startswith("proof that another rank ended")
    assert judge_still(ended(0, 0), ended(1, 0)).would_change == ""


def test_what_is_not_known_says_what_is_missing() -> None:
    unseen = judge_still(*waiting(0, 1), world_size=3)
    assert unseen.would_change == "a stack of rank 2"
    busy = judge_still(*waiting(0, 1), a_rank(2).stuck_in(user("evaluate", 36)).but(cpu=0.9))
    assert busy.would_change.startswith("rank 2 still there, without working")


def test_the_full_report_says_both() -> None:
    found = judge_still(*waiting(0, 1, 3), loading())
    for full in (False, True):
        out = StringIO()
        render_text(found, console=Console(file=out, width=200), full=full)
        assert ("by rule 8" in out.getvalue()) is full
        assert (f"what would change it: {found.would_change}" in out.getvalue()) is full


def test_every_rule_has_a_row_in_the_reference() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "rules.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    named = {row for rule in RULES for row in re.findall(r"(?:[Rr]ows? |and )(S?\d+)", head(rule.__doc__))}
    assert named <= rows
    assert set(STILL) <= rows


def head(docstring: str | None) -> str:
    return (docstring or "").partition(".")[0]
