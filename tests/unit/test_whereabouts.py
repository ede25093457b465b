"""What is published of a worker: its steps and its place, and nothing that nobody saw."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.history_factory import a_hang

from rankscope.agent.health.api.sources import ThisNode
from rankscope.agent.health.status import HealthStatus, StatusReader, StatusWriter, WorkerHealth
from rankscope.agent.telling.whereabouts import worker_health
from rankscope.agent.workers.model import WorkerRef
from rankscope.diag.model import Diagnosis, Location, RankFinding
from rankscope.diag.top.model import RankSample, Sample
from rankscope.diag.top.rates import Rates
from rankscope.diag.top.standing import Standing
from rankscope.watchdog.page import GroupSeq, SlotView

NOW = 100.0
SECOND = 1_000_000_000
WORKER = WorkerRef(2, 0, 77, 1)


def a_slot(**fields: Any) -> SlotView:
    return SlotView(2, 77, 1, 0, 0, 0, 0, "", None, ())._replace(**fields)


def a_finding(**changes: object) -> Diagnosis:
    finding = RankFinding(2, "vm", 77, "hung", "culprit", position="all_reduce")
    place = Location("load_batch", "/workspace/train.py", 8, rank=3)
    return msgspec.structs.replace(a_hang("i-1"), ranks=(finding,), location=place, **changes)


@pytest.mark.parametrize(
    ("slot", "step", "since"),
    [
        (None, None, None),
        (a_slot(), None, None),
        (a_slot(step=7, step_ns=98 * SECOND), 7, 2.0),
        (a_slot(user_step=0, user_step_ns=99 * SECOND), 0, 1.0),
        (a_slot(step=7, step_ns=98 * SECOND, user_step=1000, user_step_ns=99 * SECOND), 7, 1.0),
    ],
)
def test_a_step_is_told_once_one_was_seen(
    slot: SlotView | None, step: int | None, since: float | None
) -> None:
    told = worker_health(WORKER, slot, state="running", now=NOW, diagnosis=None)
    assert (told.step, told.seconds_since_progress) == (step, since)


@pytest.mark.parametrize(
    ("slot", "where"),
    [
        (a_slot(), ""),
        (a_slot(groups=(GroupSeq("0", 4, 5, 4),)), "collective 5, pg 0"),
        (a_slot(groups=(GroupSeq("0", 4, 5, 5),), stage="load"), "stage load"),
        (a_slot(raised_ns=1, raised_text="ValueError: x"), "raised: ValueError: x"),
        (a_slot(stage="s" * 999), "stage " + "s" * 194),
    ],
)
def test_a_rank_is_where_its_slot_says_while_no_incident_holds(slot: SlotView, where: str) -> None:
    assert worker_health(WORKER, slot, state="running", now=NOW, diagnosis=None).where == where


def test_in_an_incident_that_holds_it_is_where_the_look_found_it() -> None:
    slot = a_slot(groups=(GroupSeq("0", 4, 5, 4),))

    def where(worker: WorkerRef, diagnosis: Diagnosis) -> str:
        return worker_health(worker, slot, state="hung", now=NOW, diagnosis=diagnosis).where

    assert where(WORKER, a_finding()) == "all_reduce"
    mine = a_finding()
    assert mine.location is not None
    mine = msgspec.structs.replace(mine, location=msgspec.structs.replace(mine.location, rank=2))
    assert where(WORKER, mine) == "load_batch (train.py:8)"
    assert where(WorkerRef(2, 0, 78, 1), mine) == "collective 5, pg 0"  # another process than the one found


def test_the_api_makes_up_no_step_and_no_rate(tmp_path: Path) -> None:
    page = StatusWriter(tmp_path / "page")
    worker = WorkerHealth(2, 0, 77, "running", where="load_batch (train.py:8)")
    page.publish(HealthStatus("run-7", "vm", 1, workers=(worker,)))
    view = StatusReader(page.path).read()
    [told] = asyncio.run(ThisNode(lambda: view).ranks())
    assert (told.step, told.steps_per_second, told.where) == (None, None, "load_batch (train.py:8)")


def test_top_shows_no_step_that_nobody_saw() -> None:
    def row(slot: SlotView) -> int | None:
        rank = RankSample(2, 77, 1, lives=True, slot=slot)
        [shown] = Rates().rows(Sample(100 * SECOND, (rank,)), Standing({}))
        return shown.step

    assert row(a_slot()) is None
    assert row(a_slot(user_step_ns=1)) == 0
