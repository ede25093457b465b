"""Every cell of the table of decisions against the code: action, exit code and a phrase of the reason."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from tests.decisions_page import render_page
from tests.policy_table import Answer, Cell, Row, cells, decide, questions

from rankscope.agent.policy.gate import BEFORE_THE_NEXT_RUN, RUN_AGAIN
from rankscope.agent.settings.values import ExecutionMode, FaultTolerantPolicy, OnHang
from rankscope.diag.model import Confidence, Severity, Verdict

NAMES = sorted(questions())


def wrong(row: Row, cell: Cell, answer: Answer) -> str:
    """What the code says otherwise than the row, ``""`` when they agree."""
    said = (answer.decision.action, answer.decision.exit_code, answer.send)
    if said == (row.action, row.code, row.send) and row.says in answer.decision.reason:
        return ""
    expected = f"expected {row.action} {row.code}: {row.says}"
    return f"{dict(cell)}\n  {expected}\n  said {said}: {answer.decision.reason}"


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_decided_as_the_table_says(name: str) -> None:
    table = questions()[name]
    found: list[str] = []
    for cell in cells(name):
        number = table.index(cell)
        assert number is not None, f"no row holds for {dict(cell)}"
        if text := wrong(table.row[number], cell, decide(name, cell)):
            found.append(text)
    assert not found, f"{len(found)} cells:\n" + "\n".join(found[:5])


@pytest.mark.parametrize("name", NAMES)
def test_every_row_of_the_table_decides_a_cell_and_says_where_it_comes_from(name: str) -> None:
    table = questions()[name]
    used = Counter(table.index(cell) for cell in cells(name))
    assert [row.when for number, row in enumerate(table.row) if not used[number]] == []
    assert [row.when for row in table.row if not (row.spec or row.open)] == []


@pytest.mark.parametrize("name", NAMES)
def test_rows_name_axes_and_values_that_exist(name: str) -> None:
    table = questions()[name]
    for row in table.row:
        for axis, wanted in row.when.items():
            values = {wanted} if isinstance(wanted, str) else set(wanted)
            assert values <= set(table.axes[axis])


@pytest.mark.parametrize("name", ["hang", "failure"])
def test_the_table_covers_verdict_severity_confidence_mode_policy_and_restarts(name: str) -> None:
    axes = questions()[name].axes
    values = {
        "verdict": set(get_args(Verdict)),
        "severity": set(get_args(Severity)),
        "confidence": set(get_args(Confidence)),
        "mode": set(get_args(ExecutionMode)),
        "policy": set(get_args(FaultTolerantPolicy)),
        "restarts": {"left", "used up", "forbidden", "none"},
    }
    assert {axis: set(axes[axis]) for axis in values} == values
    walked = {tuple(cell[axis] for axis in values) for cell in cells(name)}
    assert walked == set(itertools.product(*values.values()))


def test_the_table_covers_every_on_hang() -> None:
    assert set(questions()["hang"].axes["on_hang"]) == set(get_args(OnHang))


@pytest.mark.parametrize("name", NAMES)
def test_an_end_has_an_exit_code_that_its_reason_explains_and_nothing_else_has_one(name: str) -> None:
    for cell in cells(name):
        decision = decide(name, cell).decision
        ends = decision.action in ("fail", "isolate")
        assert (decision.exit_code in (1, 75, 93)) is ends, decision
        assert (RUN_AGAIN in decision.reason) is (decision.action == "fail" and decision.exit_code == 75)
        assert (BEFORE_THE_NEXT_RUN in decision.reason) is (decision.exit_code == 93)


def test_the_documented_decisions_are_those_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "decisions.md").read_text()
    assert page == render_page(), "stale: make docs writes it anew"
