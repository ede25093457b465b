"""The stages of a cycle: each moment in one of them, whatever was noticed late or told in another order."""

from __future__ import annotations

import pytest

from rankscope.agent.records.cycles import Cycles
from rankscope.diag.history.stages import CycleClock
from rankscope.diag.store.launches import Stage


def stages(clock: CycleClock, at: float) -> dict[Stage, float]:
    span = clock.end(at)
    assert span is not None
    assert sum(span.milliseconds.values()) == span.ended_ms - span.began_ms
    return {stage: seconds for stage, seconds in span.seconds.items() if seconds}


def a_running_clock(*, trains: bool = True) -> CycleClock:
    """Rendezvous at 0, start at 2, workers run at 3, first progress at 10."""
    clock = CycleClock()
    clock.enter("rendezvous", 0.0)
    clock.enter("start", 2.0)
    clock.enter("first_step", 3.0)
    if trains:
        assert clock.progressed(10.0)
    return clock


def test_a_cycle_that_goes_well_is_rendezvous_start_first_step_and_training() -> None:
    clock = a_running_clock()
    assert not clock.progressed(11.0)
    assert stages(clock, 60.0) == {"rendezvous": 2.0, "start": 1.0, "first_step": 7.0, "training": 50.0}
    assert clock.stage is None


def test_a_hang_begins_with_the_last_progress_and_not_with_its_suspicion() -> None:
    clock = a_running_clock()
    clock.enter("hang_unnoticed", 40.0)
    clock.enter("collection", 52.0)
    clock.enter("analysis", 55.0)
    clock.enter("stopping", 100.0)
    assert stages(clock, 103.0) == {
        "rendezvous": 2.0,
        "start": 1.0,
        "first_step": 7.0,
        "training": 30.0,
        "hang_unnoticed": 12.0,
        "collection": 3.0,
        "analysis": 45.0,
        "stopping": 3.0,
    }


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (5.0, {"first_step": 2.0, "hang_unnoticed": 15.0}),
        (3.0, {"hang_unnoticed": 17.0}),
        (-99.0, {"hang_unnoticed": 17.0}),
        (10.0, {"first_step": 7.0, "hang_unnoticed": 10.0}),
        (12.0, {"first_step": 7.0, "training": 2.0, "hang_unnoticed": 8.0}),
    ],
)
def test_silence_reaches_back_to_the_workers_start_at_most(
    since: float, expected: dict[Stage, float]
) -> None:
    clock = a_running_clock()
    clock.enter("hang_unnoticed", since)
    clock.enter("collection", 20.0)
    assert stages(clock, 20.0) == {"rendezvous": 2.0, "start": 1.0, **expected}


def test_a_suspicion_that_was_wrong_costs_nothing() -> None:
    for trains in (True, False):
        clock = a_running_clock(trains=trains)
        before = clock.stage
        clock.enter("hang_unnoticed", 40.0)
        clock.enter("collection", 52.0)
        clock.enter("analysis", 55.0)
        clock.cleared()
        assert clock.stage == before
        clock.cleared()
        assert "hang_unnoticed" not in stages(clock, 60.0)


def test_a_hang_that_goes_away_by_itself_has_cost_its_time() -> None:
    clock = a_running_clock()
    clock.enter("hang_unnoticed", 40.0)
    clock.enter("collection", 52.0)
    clock.recovered(70.0)
    clock.enter("hang_unnoticed", 90.0)
    clock.enter("collection", 95.0)
    clock.cleared()
    found = stages(clock, 100.0)
    assert (found["training"], found["hang_unnoticed"], found["collection"]) == (60.0, 12.0, 18.0)


def test_another_look_at_the_same_silence_is_no_other_hang() -> None:
    clock = a_running_clock()
    for at in (52.0, 60.0):
        clock.enter("hang_unnoticed", 40.0)
        clock.enter("collection", at)
        clock.enter("analysis", at + 3)
    found = stages(clock, 70.0)
    assert (found["hang_unnoticed"], found["collection"], found["analysis"]) == (12.0, 6.0, 12.0)


def test_workers_that_are_being_stopped_do_not_train_whatever_the_watch_thread_says() -> None:
    clock = a_running_clock()
    clock.enter("stopping", 20.0)
    assert not clock.progressed(21.0)
    clock.enter("hang_unnoticed", 5.0)
    clock.enter("collection", 21.0)
    assert clock.stage == "stopping"
    assert stages(clock, 25.0)["stopping"] == 5.0


def test_the_next_rendezvous_ends_a_cycle_and_begins_the_next_without_a_gap() -> None:
    clock = a_running_clock()
    clock.enter("stopping", 20.0)
    ended = clock.enter("rendezvous", 23.0)
    assert ended is not None
    assert (ended.began_ms, ended.ended_ms) == (0, 23_000)
    assert clock.enter("rendezvous", 24.0) is None  # a second try to meet
    assert stages(clock, 30.0) == {"rendezvous": 7.0}
    assert clock.end(31.0) is None


def test_what_is_told_late_does_not_turn_time_around() -> None:
    clock = a_running_clock()
    clock.enter("analysis", 50.0)
    clock.enter("collection", 48.0)  # by another thread
    assert stages(clock, 49.0)["training"] == 40.0


def test_the_last_progress_is_known_at_every_stage() -> None:
    clock = CycleClock()
    assert clock.silent_since(5.0) == 5.0
    clock = a_running_clock()
    assert clock.silent_since(30.0) == 30.0
    clock.enter("hang_unnoticed", 25.0)
    clock.enter("collection", 30.0)
    clock.enter("stopping", 40.0)
    assert clock.silent_since(50.0) == 25.0


def test_cycles_are_numbered_over_the_lives_of_an_agent_and_tell_how_they_ended() -> None:
    cycles = Cycles("vm", past=4)
    assert cycles.enter("rendezvous", 100.0, now=0.0) is None
    cycles.enter("start", 101.0, now=1.0)
    assert cycles.launched(102.0, restart_count=1, world_size=4, ranks=(0, 1), now=2.0) is None
    assert cycles.progressed(105.0, steps=1, step=7)
    assert not cycles.progressed(106.0, steps=2)
    cycles.because("a change of the membership", None)
    cycles.because("rank 1 is stuck", "incident-1")
    cycles.because("what follows from it", "incident-2")
    cycles.enter("stopping", 110.0, now=10.0)
    done = cycles.enter("rendezvous", 112.0, now=12.0)
    assert done is not None
    assert (done.number, done.node, done.restart_count, done.ranks) == (5, "vm", 1, (0, 1))
    assert (done.result, done.reason, done.incident) == ("restarted", "rank 1 is stuck", "incident-1")
    assert (done.steps, done.step, done.training, done.duration) == (2, 7, 5.0, 12.0)
    assert (done.began, done.ended) == ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:12.000Z")
    last = cycles.end(113.0, result="failed", now=13.0)
    assert last is not None
    assert (last.number, last.result, last.reason, last.rendezvous) == (6, "failed", "", 1.0)
    assert cycles.end(114.0, result="failed", now=14.0) is None


def test_workers_that_run_anew_without_a_rendezvous_are_another_cycle() -> None:
    cycles = Cycles("vm")
    assert cycles.launched(1.0, restart_count=0, world_size=2, ranks=(0, 1), now=1.0) is None
    done = cycles.launched(9.0, restart_count=1, world_size=2, ranks=(0, 1), now=9.0)
    assert done is not None
    assert (done.number, done.duration, done.first_step) == (1, 8.0, 8.0)
    assert cycles.number == 2


def test_nothing_that_comes_between_cycles_begins_one_by_itself() -> None:
    cycles = Cycles("vm")
    cycles.silent(50.0, seconds=20.0)
    assert not cycles.progressed(51.0, steps=1)
    cycles.cleared()
    cycles.recovered(52.0)
    assert cycles.end(53.0, result="failed", now=53.0) is None


def test_what_comes_after_the_workers_are_done_is_no_cycle() -> None:
    cycles = Cycles("vm")
    cycles.enter("rendezvous", 0.0, now=100.0)
    cycles.launched(1.0, restart_count=0, world_size=2, ranks=(0, 1), now=101.0)
    done = cycles.end(2.0, result="succeeded", now=102.0)
    assert done is not None
    for stage in ("stopping", "collection", "analysis", "training", "hang_unnoticed"):
        assert cycles.enter(stage, 3.0, now=103.0) is None
    assert cycles.end(4.0, result="succeeded", now=104.0) is None
    cycles.enter("start", 5.0, now=105.0)  # a rendezvous that nobody saw
    assert cycles.number == 2
