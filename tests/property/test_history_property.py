"""A history of whatever is left of the records: never an error, and its times always add up."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.history_factory import a_log

from rankscope.agent.records.past import Past
from rankscope.diag.history.read import JobRecords, NodeRecords
from rankscope.diag.history.story import history_of
from rankscope.diag.history.tables import TABLES, csv_text
from rankscope.diag.report.history_text import render_history
from rankscope.diag.store.events import Event, parse_log
from rankscope.diag.store.launches import STAGES

NAMES = st.sampled_from(
    [
        "cleared",
        "cycle.ended",
        "cycle.started",
        "cycle.training",
        "decision",
        "incident.confirmed",
        "incident.recovered",
        "job.ended",
        "job.started",
        "of.the.future",
        "restart",
        "restart.begun",
        "slow",
        "stopping",
        "suspected",
        "worker.failed",
    ]
)
FIELDS = st.sampled_from(
    [
        *STAGES,
        "action",
        "duration",
        "exit_code",
        "number",
        "rank",
        "ranks",
        "reason",
        "restarts",
        "root",
        "seconds",
        "settings",
        "step",
        "steps",
        "worker",
        "world_size",
    ]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "restart", "=1", "\x1b[31m", "x" * 90]),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
STEPS = st.tuples(NAMES, st.dictionaries(FIELDS, VALUES, max_size=6), st.floats(0, 1000), st.booleans())


@st.composite
def logs(draw: st.DrawFn) -> tuple[Event, ...]:
    """Any events in any order, a clock that jumps, a host that is started anew, then damage to the bytes."""
    log = a_log()
    for name, data, seconds, jumps in draw(st.lists(STEPS, min_size=1, max_size=25)):
        log.passes(round(seconds, 3))
        if jumps:
            log.skew = -draw(st.floats(0, 1e6))
            log.boot = draw(st.sampled_from(["aaaaaaaa", "bbbbbbbb"]))
        log.event(name, data)
    text = b"".join(msgspec.json.encode(event) + b"\n" for event in log.events)
    at = draw(st.integers(0, len(text)))
    return parse_log(text[:at] + draw(st.binary(max_size=3)) + text[at + draw(st.integers(0, 40)) :]).events


@given(st.lists(logs(), min_size=1, max_size=3), st.booleans())
def test_any_records_have_a_history_that_adds_up(found: list[tuple[Event, ...]], unfold: bool) -> None:
    nodes = [NodeRecords(f"node-{at}", events) for at, events in enumerate(found) if events]
    for events in found:
        Past.of(events)
    history = history_of(JobRecords("run-7", nodes=tuple(nodes)), unfold=unfold)
    for cycle in history.cycles:
        stages = [getattr(cycle, stage) for stage in STAGES]
        assert min(stages) >= 0
        assert sum(stages) == pytest.approx(cycle.duration)
    walls = [sum(one.seconds for one in history.spent if one.node == node.node) for node in nodes]
    assert max(walls, default=0.0) == pytest.approx(history.wall)
    text = render_history(history)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text
    assert msgspec.json.decode(msgspec.json.encode(history))["job"] == "run-7"
    for table in TABLES:
        csv_text(history, table)
