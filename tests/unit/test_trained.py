"""What workers have got done, as their page says."""

from __future__ import annotations

from typing import Any

from rankscope.agent.observing.trained import Trained, trained
from rankscope.watchdog.page import GroupSeq, SlotView


def a_slot(rank: int = 0, **fields: Any) -> SlotView:
    plain: dict[str, Any] = {
        "pid": 7,
        "start_ticks": 1,
        "step": 0,
        "step_ns": 0,
        "beat_ns": 0,
        "raised_ns": 0,
        "raised_text": "",
        "raised_at": None,
        "groups": (),
    }
    return SlotView(rank=rank, **(plain | fields))


def test_nobody_speaks_for_workers_without_a_probe() -> None:
    assert trained([a_slot(rank=-1, step=5)]) == Trained()
    assert not trained([]).is_known


def test_the_rank_that_made_most_counts() -> None:
    found = trained(
        [a_slot(0, step=3), a_slot(1, step=9, user_step=41, user_step_ns=1), a_slot(2, user_step=77)]
    )
    assert (found.steps, found.step) == (9, 41)
    assert found.has_stepped
    assert found.has_moved


def test_a_job_without_steps_moves_by_its_collectives() -> None:
    begun = GroupSeq("default", 2, enqueued=1, completed=-1)
    done = GroupSeq("default", 2, enqueued=12, completed=11)
    assert not trained([a_slot(groups=(begun,))]).has_moved
    found = trained([a_slot(groups=(begun,)), a_slot(1, groups=(done,))])
    assert (found.collectives, found.has_stepped, found.has_moved) == (11, False, True)


def test_a_rank_that_sets_its_own_interval_is_told_from_one_that_switches_it_off() -> None:
    assert trained([a_slot(interval=180.0)]).sets_interval
    assert not trained([a_slot(interval=-1.0)]).sets_interval
    assert not trained([a_slot()]).sets_interval
