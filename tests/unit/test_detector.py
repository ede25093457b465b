"""The detector: a state, an event, the instructions expected. Time is an argument."""

from __future__ import annotations

from dataclasses import replace

from tests.detector_factory import TICK, Job, Ranks, polling, wait_for, working

from rankscope.watchdog.limits import HangSettings
from rankscope.watchdog.observations import (
    ActDue,
    ActedOn,
    Capture,
    Cleared,
    Confirmed,
    CycleStarted,
    Diagnosed,
    Instruction,
    JobContinued,
    JobStopped,
    JudgedAgain,
    JudgedForAll,
    Postponed,
    RankObservation,
    Recovered,
    Suspected,
    TimerExpired,
)


def test_a_training_job_is_left_alone() -> None:
    job = Job()
    job.train(120)
    assert job.said == []


def test_a_quiet_rank_that_others_wait_for_is_confirmed_within_15_seconds() -> None:
    job = Job()
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=2)
    job.run(20)
    confirmed = job.last(Confirmed)
    assert confirmed.suspects == (2,)
    assert confirmed.waiting == (0, 1)
    assert confirmed.sink_class == "quiet"
    assert job.times_of(Confirmed)[0] - hung_at <= 13


def test_two_snapshots_are_taken_four_seconds_apart() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.run(20)
    first, second = job.times_of(Capture)
    assert second - first == 4.0


def test_nothing_is_said_before_the_rhythm_is_known() -> None:
    job = Job()
    wait_for(job, culprit=2)
    job.run(59)
    assert job.said == []
    job.run(10)
    assert job.times_of(Confirmed)


def test_an_evaluation_on_one_rank_is_not_called_a_hang() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=0)
    job.run(29, working(0))
    assert job.published == []


def test_a_deadlock_after_an_evaluation_is_noticed_by_the_quiet_clock() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=0)
    job.run(20, working(0))
    quiet_from = job.now - job.started
    job.run(20)
    assert job.times_of(Confirmed)
    assert job.times_of(Confirmed)[0] - quiet_from <= 13


def test_evaluations_teach_the_busy_limit() -> None:
    job = Job()
    for _ in range(3):
        job.train(5)
        wait_for(job, culprit=0)
        job.run(20, working(0))
    job.train(5)
    wait_for(job, culprit=0)
    job.run(50, working(0))
    assert job.published == []


def test_a_working_rank_past_the_busy_limit_is_published_as_busy() -> None:
    job = Job(confidence="low")
    job.train(10)
    wait_for(job, culprit=0)
    job.run(45, working(0))
    assert job.last(Confirmed).sink_class == "busy"
    assert not job.times_of(ActDue)


def test_a_rank_published_as_working_that_falls_quiet_is_looked_at_again() -> None:
    job = Job(confidence="low")
    job.train(10)
    wait_for(job, culprit=0)
    job.run(45, working(0))
    job.run(20)
    assert len(job.times_of(Confirmed)) == 2
    assert job.last(Confirmed).sink_class == "quiet"


def test_a_polling_rank_that_others_wait_for_is_published_after_30_seconds() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=1)
    job.run(28, polling(1))
    assert job.said == []
    job.run(12, polling(1))
    assert job.last(Confirmed).sink_class == "ticking"


def test_a_thread_that_wakes_for_the_gil_only_is_quiet_when_not_even_the_probe_gets_it() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=1)
    job.ranks[1] = replace(job.ranks[1], beat_ns=5)
    job.run(15, polling(1))
    assert job.last(Confirmed).sink_class == "quiet"


def test_its_waits_for_a_core_on_a_busy_machine_are_no_work() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=1)
    job.ranks[1] = replace(job.ranks[1], beat_ns=5)

    def polls_and_waits_for_a_core(ranks: Ranks) -> None:
        polling(1)(ranks)
        seen = ranks[1]
        delay = seen.run_delay_seconds + 0.2 * TICK
        ranks[1] = replace(seen, cpu_seconds=seen.cpu_seconds + 0.2 * TICK, run_delay_seconds=delay)

    job.run(15, polls_and_waits_for_a_core)
    assert job.last(Confirmed).sink_class == "quiet"


def test_a_rank_without_a_core_that_holds_the_gil_and_does_not_wake_wants_to_work() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=1)
    job.ranks[1] = replace(job.ranks[1], beat_ns=5)

    def waits_for_a_core(ranks: Ranks) -> None:
        seen = ranks[1]
        delay = seen.run_delay_seconds + TICK
        ranks[1] = replace(seen, cpu_seconds=seen.cpu_seconds + TICK, run_delay_seconds=delay)

    job.run(20, waits_for_a_core)
    assert job.times_of(Confirmed) == []


def test_a_rank_whose_page_stands_still_in_a_collective_while_it_computes_is_waited_for() -> None:
    job = Job()
    job.train(10)
    for rank in range(3):
        group = job.ranks[rank].groups[0]
        job.ranks[rank] = replace(job.ranks[rank], groups=(group._replace(enqueued=group.enqueued + 1),))
    job.ranks[1] = replace(job.ranks[1], beat_ns=5)
    job.run(45, working(1))
    confirmed = job.last(Confirmed)
    assert (confirmed.suspects, confirmed.waiting, confirmed.sink_class) == ((1,), (0, 2), "busy")


def test_the_last_page_of_a_rank_whose_script_has_ended_is_no_wait() -> None:
    """On a busy machine it was written inside of a collective, seconds before the end."""
    job = Job()
    job.train(30)
    for rank in (0, 2):
        job.ranks[rank] = replace(job.ranks[rank], alive=False, returned=True)
    group = job.ranks[1].groups[0]
    inside = (group._replace(enqueued=group.enqueued + 1),)
    job.ranks[1] = replace(job.ranks[1], groups=inside, returned=True)
    job.run(100)
    assert job.times_of(Confirmed) == []


def test_a_polling_rank_whose_probe_beats_is_polling() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=1)

    def beats(ranks: Ranks) -> None:
        polling(1)(ranks)
        ranks[1] = replace(ranks[1], beat_ns=ranks[1].beat_ns + 1)

    job.run(28, beats)
    assert job.said == []


def test_a_polling_rank_that_nobody_waits_for_is_left_alone() -> None:
    job = Job()
    job.train(10)
    job.run(29, polling(1))
    assert job.said == []


def test_progress_between_the_snapshots_clears() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.run(9)
    job.train(1)
    assert job.times_of(Cleared)
    assert not job.times_of(Confirmed)


def test_a_gap_that_ended_by_itself_teaches_the_quiet_limit() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.run(10)
    job.train(5)
    wait_for(job, culprit=2)
    before = len(job.said)
    job.run(19)
    assert len(job.said) == before


def test_a_published_hang_that_moves_again_has_recovered() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.run(20)
    job.train(1)
    assert len(job.times_of(Recovered)) == 1


def test_a_high_confidence_hang_is_due_after_180_seconds() -> None:
    job = Job()
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=2)
    job.run(400)
    (due,) = job.times_of(ActDue)
    assert 180 <= due - hung_at <= 181


def test_a_medium_confidence_hang_is_due_after_1800_seconds() -> None:
    job = Job(confidence="medium")
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=2)
    job.run(1900)
    (due,) = job.times_of(ActDue)
    assert 1800 <= due - hung_at <= 1801


def test_a_user_s_interval_holds_whatever_the_confidence() -> None:
    job = Job(HangSettings(act_after=20), confidence="low")
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=2)
    job.run(40)
    (due,) = job.times_of(ActDue)
    assert 20 <= due - hung_at <= 21


def test_evidence_is_taken_before_a_user_s_interval_ends_also_in_warm_up() -> None:
    job = Job(HangSettings(act_after=30))
    wait_for(job, culprit=2)
    job.run(40)
    (due,) = job.times_of(ActDue)
    assert job.times_of(Confirmed)[0] < due <= 31


def test_a_fixed_diagnose_after_replaces_the_learned_limits() -> None:
    job = Job(HangSettings(diagnose_after=20))
    job.train(10)
    wait_for(job, culprit=2)
    job.run(19)
    assert job.said == []
    job.run(8)
    assert job.times_of(Confirmed)


def test_a_stopped_rank_is_frozen() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=1)
    job.ranks[1] = replace(job.ranks[1], state="T")
    job.run(20)
    assert job.last(Confirmed).sink_class == "frozen"
    assert job.last(Confirmed).suspects == (1,)


def test_a_job_stopped_as_a_whole_is_no_hang() -> None:
    job = Job()
    job.train(10)
    for rank in job.ranks:
        job.ranks[rank] = replace(job.ranks[rank], state="T")
    job.run(300)
    assert job.published == [JobStopped(3.0)]
    job.train(5)
    assert job.published[1:] == [JobContinued(300.0)]


def test_a_paused_machine_is_no_hang() -> None:
    job = Job()
    job.train(10)
    job.now += 3600
    job.run(7)
    assert job.said == []


def test_a_restart_forgets_the_suspicion() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.run(9)
    job.detector.handle(CycleStarted(job.now))
    before = len(job.said)
    job.run(50)
    assert len(job.said) == before


def test_everybody_in_the_collective_and_nothing_completes_is_confirmed_without_suspects() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=99)
    job.run(20)
    confirmed = job.last(Confirmed)
    assert confirmed.suspects == ()
    assert confirmed.waiting == (0, 1, 2)


def test_spinning_victims_do_not_hide_the_quiet_culprit() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)

    def spin(ranks: Ranks) -> None:
        working(0)(ranks)
        working(1)(ranks)

    job.run(20, spin)
    assert job.last(Confirmed).suspects == (2,)


def test_a_wait_that_no_counter_shows_is_seen_by_the_stacks() -> None:
    job = Job()
    job.train(10)
    job.communicating = frozenset({0, 1})
    job.run(20)
    confirmed = job.last(Confirmed)
    assert confirmed.waiting == (0, 1)
    assert confirmed.suspects == (2,)


def test_an_expired_timer_is_a_suspicion_at_once() -> None:
    job = Job()
    job.train(10)
    job.expire_timer(1)
    assert len(job.times_of(Capture)) == 1
    job.run(6)
    assert "timer epoch of rank 1 expired" in job.last(Confirmed).reason


def test_young_loader_workers_get_the_long_limit() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.ranks[2] = replace(job.ranks[2], youngest_child_born=job.now + 1)
    job.run(50)
    assert job.said == []
    job.run(20)
    assert job.times_of(Confirmed)


def test_a_job_without_probe_that_works_is_left_alone() -> None:
    job = Job()
    job.ranks = {rank: RankObservation(rank=rank) for rank in range(3)}

    def work(ranks: Ranks) -> None:
        for rank in ranks:
            working(rank)(ranks)

    job.run(4000, work)
    assert job.said == []


def test_a_job_without_probe_that_falls_silent_is_noticed_within_a_minute_and_a_bit() -> None:
    job = Job()
    job.ranks = {rank: RankObservation(rank=rank) for rank in range(3)}

    def work(ranks: Ranks) -> None:
        for rank in ranks:
            working(rank)(ranks)

    job.run(100, work)
    silent_from = job.now - job.started
    job.run(80)
    assert job.times_of(Confirmed)[0] - silent_from <= 70


def test_events_replayed_through_a_new_detector_give_the_same_instructions() -> None:
    def run() -> list[tuple[float, Instruction]]:
        job = Job()
        job.train(10)
        wait_for(job, culprit=2)
        job.run(60)
        return job.said

    assert run() == run()


def test_the_quiet_end_of_a_first_epoch_is_given_time() -> None:
    job = Job()
    job.train(5)
    job.run(40)
    assert not job.times_of(Confirmed)
    assert len(job.times_of(Cleared)) == 1
    job.run(30)
    assert len(job.times_of(Confirmed)) == 1


def test_a_pause_of_the_agent_does_not_forget_a_published_hang() -> None:
    job = Job(HangSettings(act_after=40))
    job.train(10)
    wait_for(job, culprit=2)
    job.run(25)
    job.now += 5
    job.run(30)
    assert len(job.times_of(Confirmed)) == 1
    (due,) = job.times_of(ActDue)
    assert due >= 10 + 40 + 5


def test_what_could_not_be_told_is_looked_at_again_and_acted_on_late() -> None:
    job = Job()
    job.hang = False
    job.train(10)
    wait_for(job, culprit=2)
    hung_at = job.now - job.started
    job.run(300)
    looks = [instruction for _, instruction in job.said if isinstance(instruction, Capture)]
    assert [look.which for look in looks] == ["a", "b"] * 4
    suspicions = [instruction for _, instruction in job.said if isinstance(instruction, Suspected)]
    assert [suspicion.again for suspicion in suspicions] == [False, *[True] * 3]
    assert not job.times_of(ActDue)
    job.run(1600)
    (due,) = job.times_of(ActDue)
    assert 1800 <= due - hung_at <= 1805


def test_a_published_hang_that_moves_while_it_is_looked_at_again_has_recovered() -> None:
    job = Job()
    job.hang = False
    job.train(10)
    wait_for(job, culprit=2)
    job.run(61)
    job.train(1)
    assert len(job.times_of(Recovered)) == 1


def test_a_rank_that_has_finished_does_not_make_the_others_hang() -> None:
    job = Job()
    job.train(30)
    job.ranks[1] = replace(job.ranks[1], alive=False, state="X")
    job.run(590)
    assert not job.times_of(Confirmed)
    assert len(job.times_of(Cleared)) == 1
    job.run(60)
    assert job.times_of(Confirmed)


def test_a_rank_that_is_waited_for_and_has_ended_is_noticed_at_once() -> None:
    job = Job()
    job.train(30)
    wait_for(job, culprit=1)
    job.ranks[1] = replace(job.ranks[1], alive=False, state="X")
    job.run(20)
    assert job.last(Confirmed).suspects == (1,)


def test_a_user_s_interval_also_holds_when_some_ranks_have_finished() -> None:
    job = Job(HangSettings(act_after=40))
    job.train(30)
    hung_at = job.now - job.started
    job.ranks[1] = replace(job.ranks[1], alive=False, state="X")
    job.run(60)
    (due,) = job.times_of(ActDue)
    assert due - hung_at <= 41


def test_a_wait_for_a_finished_rank_that_only_the_stacks_show_is_noticed_at_once() -> None:
    job = Job()
    job.train(30)
    job.ranks[1] = replace(job.ranks[1], alive=False, state="X")
    job.communicating = frozenset({0})
    job.run(20)
    assert job.last(Confirmed).waiting == (0,)


def test_what_was_found_of_the_whole_job_is_published_here_and_acted_on_in_time() -> None:
    job = Job(HangSettings(act_after=60.0))
    job.train(10)
    wait_for(job, culprit=2)
    job.run(5)
    job.detector.handle(JudgedForAll(hang=True, confidence="high"))
    assert job.detector.state == "confirmed"
    job.run(50)
    assert job.times_of(Capture) == []  # it is not looked at again
    job.run(10)
    assert len(job.times_of(ActDue)) == 1
    job.train(1)
    assert job.times_of(Recovered)


def test_what_is_postponed_is_due_again_after_twice_as_long() -> None:
    job = Job(HangSettings(act_after=60.0))
    job.train(10)
    wait_for(job, culprit=2)
    job.detector.handle(JudgedForAll(hang=True, confidence="high"))
    job.run(61)
    assert len(job.times_of(ActDue)) == 1
    job.detector.handle(Postponed())
    job.run(50)
    assert len(job.times_of(ActDue)) == 1
    job.run(20)
    assert len(job.times_of(ActDue)) == 2


def test_an_expired_timer_is_looked_at_whatever_is_found_of_the_whole_job() -> None:
    job = Job()
    job.train(10)
    job.detector.handle(TimerExpired(job.now, 1, "epoch"))
    job.detector.handle(JudgedForAll(hang=True, confidence="high"))
    assert job.detector.state == "suspected"


def test_what_another_node_has_decided_about_is_not_due_here() -> None:
    job = Job(HangSettings(act_after=60.0))
    job.train(10)
    wait_for(job, culprit=2)
    job.detector.handle(JudgedForAll(hang=True, confidence="high"))
    job.detector.handle(ActedOn())
    job.run(120)
    assert job.times_of(ActDue) == []
    job.train(1)
    assert job.times_of(Recovered)


def test_ranks_that_work_are_said_to_until_they_have_had_their_time() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    seen = []
    for _ in range(7):
        job.run(5, working(2))
        seen.append(job.detector.is_giving_time)
    assert seen == [True] * 5 + [False] * 2


def test_ranks_that_are_quiet_are_given_no_more_time_than_any() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.run(6)
    assert not job.detector.is_giving_time


def test_nothing_is_acted_on_before_there_is_a_verdict() -> None:
    job = Job(HangSettings(act_after=5.0))
    job.train(10)
    wait_for(job, culprit=2)
    job.detector.state = "confirmed"  # and the whole job is still being asked
    job.run(60)
    assert job.times_of(ActDue) == []
    job.detector.handle(Diagnosed(hang=True, confidence="high"))
    job.run(1)
    assert len(job.times_of(ActDue)) == 1


def test_what_is_due_is_due_later_where_it_is_judged_to_be_less_certain() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.detector.handle(JudgedForAll(hang=True, confidence="high"))
    job.run(200)
    assert len(job.times_of(ActDue)) == 1
    job.detector.handle(JudgedAgain(hang=True, confidence="low"))
    job.run(100)
    assert len(job.times_of(ActDue)) == 1
    job.detector.handle(JudgedAgain(hang=True, confidence="high"))  # nothing is due: it changes nothing
    assert job.detector.state == "confirmed"


def test_what_is_judged_anew_and_as_certain_is_due_at_once() -> None:
    job = Job()
    job.train(10)
    wait_for(job, culprit=2)
    job.detector.handle(JudgedForAll(hang=True, confidence="high"))
    job.run(185)
    job.detector.handle(JudgedAgain(hang=True, confidence="high"))
    job.run(1)
    assert len(job.times_of(ActDue)) == 2
