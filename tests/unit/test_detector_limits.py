"""The detector's other limits: stages, intervals, loops, exits, batches. Time is an argument."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.detector_factory import Job, Ranks, polling, wait_for, working

from rankscope.watchdog.limits import FIRST_WINDOW, WINDOW, HangSettings
from rankscope.watchdog.observations import (
    ActDue,
    Cleared,
    Confirmed,
    CycleStarted,
    RankObservation,
    Recovered,
    Sample,
    SettingsChanged,
    Suspected,
)
from rankscope.watchdog.page import GroupSeq


def in_stage(job: Job, limit: float, *ranks: int, name: str = "evaluate") -> None:
    for rank in ranks or job.ranks:
        job.ranks[rank] = replace(job.ranks[rank], stage_limit=limit, stage=name)


def clocks_of(job: Job) -> list[str]:
    return [said.clock for _, said in job.said if isinstance(said, Suspected)]


# Stages and intervals that ranks set for themselves.


def test_a_stage_takes_the_place_of_both_limits() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    in_stage(job, 100.0)
    job.run(91)
    assert job.published == []
    job.run(15)
    assert clocks_of(job) == ["stage"]
    assert [round(at) for at in job.times_of(ActDue)] == [10 + 100]


def test_a_stage_that_is_switched_off_is_never_suspected() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    in_stage(job, -1.0, 2)
    job.run(5000)
    assert job.published == []


def test_leaving_a_stage_is_progress_and_brings_the_learned_limit_back() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    in_stage(job, 600.0)
    job.run(100)
    for rank in job.ranks:
        job.ranks[rank] = replace(job.ranks[rank], stage_limit=None, stage="")
    left_at = job.now - job.started
    job.run(20)
    assert job.times_of(Confirmed)[0] - left_at <= 13


def test_what_passes_in_a_stage_teaches_nothing() -> None:
    job = Job()
    job.train(10)
    in_stage(job, 600.0)
    job.run(300)
    job.train(1)
    for rank in job.ranks:
        job.ranks[rank] = replace(job.ranks[rank], stage_limit=None, stage="")
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=2)
    job.run(20)
    assert job.times_of(Confirmed)[0] - hung_at <= 13


def test_the_awaited_rank_s_own_stage_holds_not_the_waiting_ranks() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    in_stage(job, 600.0, 0, 1)
    job.run(20)
    assert job.last(Confirmed).suspects == (2,)


def test_for_silence_of_the_whole_job_the_largest_value_of_all_ranks_holds() -> None:
    job = Job(HangSettings())
    job.train(30)
    in_stage(job, 50.0, 0)
    in_stage(job, 100.0, 1, 2)
    job.run(91)
    assert job.published == []
    job.run(10)
    assert clocks_of(job) == ["stage"]


@pytest.mark.parametrize("confidence", ["high", "low"])
def test_a_rank_s_own_interval_acts_whatever_the_confidence_and_is_diagnosed_as_learned(
    confidence: str,
) -> None:
    job = Job(confidence=confidence)
    for rank in job.ranks:
        job.ranks[rank] = replace(job.ranks[rank], interval=40.0)
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=2)
    job.run(60)
    assert job.times_of(Confirmed)[0] - hung_at <= 13
    assert [round(at - hung_at) for at in job.times_of(ActDue)] == [40]


def test_an_interval_of_minus_one_switches_the_rank_off() -> None:
    job = Job()
    for rank in job.ranks:
        job.ranks[rank] = replace(job.ranks[rank], interval=-1.0)
    job.train(10)
    wait_for(job, culprit=2)
    job.run(5000)
    assert job.published == []


def test_settings_that_change_while_it_runs_hold_from_then_on() -> None:
    job = Job()
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=2)
    job.run(5)
    job.detector.handle(SettingsChanged(HangSettings(diagnose_after=25.0, act_after=50.0)))
    job.run(60)
    assert [round(at - hung_at) for at in job.times_of(Suspected)] == [25]
    assert [round(at - hung_at) for at in job.times_of(ActDue)] == [50]


# Loops.


def test_an_awaited_rank_in_a_python_loop_is_confirmed_within_15_seconds() -> None:
    job = Job(confidence="medium")
    job.loops = frozenset({1})
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=1)
    job.run(20, working(1))
    assert clocks_of(job) == ["loop"]
    assert job.last(Confirmed).suspects == (1,)
    assert job.times_of(Confirmed)[0] - hung_at <= 15


def test_what_is_alive_is_looked_at_again_when_it_has_lasted() -> None:
    job = Job(confidence="medium")
    job.loops = frozenset({1})
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=1)
    job.run(300, working(1))
    assert clocks_of(job) == ["loop", "again"]
    assert [round(at - hung_at) for at in job.times_of(Suspected)] == [8, 90]


def test_a_loop_with_library_code_at_the_leaf_counts_after_30_seconds() -> None:
    job = Job(confidence="medium")
    job.library_loops = frozenset({1})
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=1)
    job.run(29, working(1))
    assert job.published == []
    job.run(10, working(1))
    assert 30 <= job.times_of(Confirmed)[0] - hung_at <= 35


def test_a_loop_that_ended_by_itself_is_given_three_times_its_length() -> None:
    job = Job(confidence="medium")
    job.loops = frozenset({1})
    job.train(10)
    wait_for(job, culprit=1)
    job.run(20, working(1))
    job.train(10)
    assert len(job.times_of(Recovered)) == 1
    wait_for(job, culprit=1)
    job.run(25, working(1))
    assert len(job.times_of(Confirmed)) == 1


def test_samples_of_a_silence_that_has_ended_are_void() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=1)
    job.run(10, working(1))
    assert job.times_of(Sample)
    job.loops = frozenset({1})
    job.train(10)
    assert job.published == []


def test_nobody_is_sampled_while_the_job_warms_up() -> None:
    job = Job()
    wait_for(job, culprit=1)
    job.run(60, working(1))
    assert job.said == []


def test_a_working_rank_is_overdue_after_ten_times_the_busy_limit() -> None:
    job = Job(confidence="low")
    job.hang = False
    job.train(10)
    wait_for(job, culprit=0)
    job.run(320, working(0))
    confirmed = [(at, said.overdue) for at, said in job.said if isinstance(said, Confirmed)]
    assert [overdue for _, overdue in confirmed][-1]
    assert not any(overdue for at, overdue in confirmed if at < 300)


# Ranks that end while others stay.


def ended(job: Job, *ranks: int) -> None:
    for rank in ranks:
        job.ranks[rank] = replace(job.ranks[rank], alive=False, state="X", groups=())


@pytest.mark.parametrize("stay", [lambda _: None, polling(2), working(2)])
def test_ranks_that_linger_after_others_have_ended_are_suspected_after_the_exit_interval(
    stay: Callable[[Ranks], None],
) -> None:
    job = Job(HangSettings(exit_after=120.0))
    job.train(30)
    ended(job, 0, 1)
    ended_at = job.now - job.started
    job.run(119, stay)
    assert not job.times_of(Confirmed)
    job.run(10, stay)
    assert job.last(Confirmed).suspects == (2,)
    assert clocks_of(job)[-1] == "exit"
    assert job.times_of(Confirmed)[-1] - ended_at <= 126


def test_a_child_that_a_lingering_rank_has_just_started_does_not_put_the_interval_off() -> None:
    job = Job(HangSettings(exit_after=20.0))
    job.train(30)
    ended(job, 0, 1)
    job.ranks[2] = replace(job.ranks[2], youngest_child_born=job.now + 1)
    ended_at = job.now - job.started
    job.run(40)
    assert job.times_of(Confirmed)[0] - ended_at <= 26


def test_ranks_that_have_run_their_script_and_linger_are_ranks_that_have_ended() -> None:
    job = Job(HangSettings(exit_after=120.0))
    job.train(30)
    for rank in job.ranks:
        job.ranks[rank] = replace(job.ranks[rank], returned=True)
    job.run(119)
    assert not job.times_of(Confirmed)
    job.run(10)
    assert job.times_of(Confirmed)


def test_without_exit_hang_detection_ranks_may_linger() -> None:
    job = Job(HangSettings(exit_after=None))
    job.train(30)
    ended(job, 0, 1)
    job.run(5000)
    assert not job.times_of(Confirmed)


# The kernel.


def test_a_rank_that_comes_out_of_the_kernel_between_the_looks_is_not_frozen() -> None:
    def write(ranks: Ranks) -> None:
        ranks[1] = replace(ranks[1], io_bytes=ranks[1].io_bytes + 10**8)

    job = Job()
    job.train(10)
    wait_for(job, culprit=1)
    job.ranks[1] = replace(job.ranks[1], state="D")
    job.run(29, write)
    assert job.published == []
    job.run(20)
    assert job.last(Confirmed).sink_class == "frozen"


# Timers.


def test_progress_does_not_end_the_evidence_of_an_expired_timer() -> None:
    job = Job()
    job.train(10)
    job.expire_timer(rank=1)
    job.train(10)
    assert clocks_of(job) == ["timer"]
    assert job.last(Confirmed).clock == "timer"
    assert not job.times_of(Cleared)


def test_a_timer_that_expires_under_suspicion_keeps_the_evidence_coming() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.run(9)
    job.expire_timer(rank=1)
    job.train(10)
    assert job.last(Confirmed).clock == "timer"


# Silence of everybody.


def test_a_job_in_which_nobody_waits_for_anybody_is_given_45_seconds() -> None:
    job = Job()
    job.train(60)
    quiet_from = job.now - job.started
    job.run(44)
    assert not job.times_of(Confirmed)
    job.run(10)
    assert job.times_of(Confirmed)[0] - quiet_from <= 50


def test_a_gap_that_ended_under_suspicion_is_learned_although_the_look_woke_the_rank() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.run(8)
    assert clocks_of(job) == ["quiet"]
    job.run(2, polling(2))
    job.train(10)
    wait_for(job, culprit=2)
    job.run(19)
    assert clocks_of(job) == ["quiet"]
    job.run(4)
    assert clocks_of(job) == ["quiet", "quiet"]


# Groups.


def test_groups_of_one_name_and_other_members_are_other_groups() -> None:
    job = Job()
    job.train(10)
    seqs = {0: (1, 5, 4), 1: (1, 4, 4), 2: (2, 2, 2), 3: (2, 2, 2)}
    for rank, (members, enqueued, completed) in seqs.items():
        group = GroupSeq("tp", 2, enqueued, completed, members_hash=members)
        job.ranks[rank] = RankObservation(rank=rank, probed=True, step=10, groups=(group,))
    job.run(20)
    assert job.last(Confirmed).suspects == (1,)


# Other signs of progress.


@pytest.mark.parametrize("counter", ["batches", "user_step_ns"])
def test_batches_and_the_user_s_own_steps_are_progress(counter: str) -> None:
    def count(ranks: Ranks) -> None:
        ranks[0] = replace(ranks[0], **{counter: getattr(ranks[0], counter) + 1})

    job = Job()
    job.train(10)
    wait_for(job, culprit=0)
    job.run(100, count)
    assert job.said == []


def test_a_healthy_verdict_gives_the_same_silence_twice_its_length() -> None:
    job = Job()
    job.healthy, job.hang = True, False
    job.train(10)
    silent_from = job.now - job.started
    job.run(200, working(0))
    confirmed = [at - silent_from for at in job.times_of(Confirmed)]
    assert all(later >= 1.9 * earlier for earlier, later in itertools.pairwise(confirmed))
    job.train(5)
    assert not job.times_of(Recovered)


def test_a_suspicion_comes_with_its_figures() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.run(9)
    (said,) = job.published[:1]
    assert isinstance(said, Suspected)
    assert (said.clock, said.limit, said.suspects, said.waiting) == ("quiet", 8.0, (2,), (0, 1))
    assert said.seconds >= said.limit
    job.train(1)
    cleared = job.published[-1]
    assert isinstance(cleared, Cleared)
    assert cleared.gap >= said.seconds


def test_a_restart_forgets_stages_loops_and_limits() -> None:
    job = Job()
    job.loops = frozenset({1})
    job.train(10)
    wait_for(job, culprit=1)
    job.run(20, working(1))
    job.detector.handle(CycleStarted(job.now))
    job.said.clear()
    job.train(10)
    wait_for(job, culprit=1)
    job.run(20, working(1))
    assert clocks_of(job) == ["loop"]


def test_ranks_that_all_wait_for_another_node_are_given_as_long_as_working_ranks() -> None:
    limits: list[float] = []
    for elsewhere in (False, True):
        job = Job()
        job.detector.handle(CycleStarted(job.now, ranks_elsewhere=elsewhere))
        job.train(60)
        before = job.now - job.started
        wait_for(job, culprit=-1)
        job.run(120)
        limits.append(job.times_of(Suspected)[0] - before)
    alone, with_others = limits
    clocks = job.detector.clocks
    assert alone < clocks.busy_limit() <= with_others <= clocks.busy_limit() + 2


def test_where_other_nodes_are_asked_then_the_own_second_look_comes_sooner() -> None:
    between: list[float] = []
    for asks in (False, True):
        job = Job()
        job.detector.handle(CycleStarted(job.now, ranks_elsewhere=True, asks_others=asks))
        job.train(60)
        wait_for(job, culprit=1)
        job.run(60)
        between.append(job.times_of(Confirmed)[0] - job.times_of(Suspected)[0])
    assert between[0] - between[1] == pytest.approx(WINDOW - FIRST_WINDOW, abs=1)


def test_that_all_wait_for_another_node_may_be_known_by_the_stacks_alone() -> None:
    job = Job()
    job.detector.handle(CycleStarted(job.now, ranks_elsewhere=True))
    job.train(60)
    before = job.now - job.started
    job.communicating = frozenset(job.ranks)
    job.run(120)
    limit = job.detector.clocks.busy_limit()
    assert [when - before for when in job.times_of(Confirmed)] == [pytest.approx(limit, abs=10)]
    assert job.times_of(Confirmed)[0] - before >= limit
    assert len(job.times_of(Cleared)) == 1
