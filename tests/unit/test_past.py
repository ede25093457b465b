"""What a job has been through: one count, live or read again, whatever ended the agent before."""

from __future__ import annotations

from tests.history_factory import NodeLogBuilder, a_failure, a_log

from rankscope.agent.records.past import Past


def history(log: NodeLogBuilder, rank: int = 2, identity: str = "ValueError: x") -> tuple[int, int, int, int]:
    """Restarts, same errors, restarts without progress, failed workers."""
    found = Past.of(log.events).history(a_failure(rank, identity), allowed=3, workers=4)
    return found.restarts_used, found.same_errors, found.without_progress, found.failed_workers


def a_job_that_failed_twice() -> NodeLogBuilder:
    log = a_log().agent().launch().trains()
    for _ in range(2):
        log.fails(2).fails(1, "connection closed", root=False).restart_begins().launch().restart_done()
    return log


def test_a_restart_is_counted_once_before_it_begins() -> None:
    log = a_log().agent().launch().trains().fails(2)
    assert history(log) == (0, 1, 0, 1)
    log.restart_begins()
    assert history(log) == (1, 1, 1, 1)
    log.launch()
    assert history(log) == (1, 1, 1, 1)
    log.restart_done()
    assert history(log) == (1, 1, 1, 1)


def test_the_same_error_counts_for_each_rank_that_fails_of_its_own_and_victims_never_fail() -> None:
    log = a_job_that_failed_twice()
    assert history(log) == (2, 2, 2, 1)
    log.event("worker.failed", {"rank": 3, "identity": "ValueError: x", "node": "vm"}).fails(2)
    assert history(log) == (2, 3, 2, 1)
    assert history(log.restart_begins().launch().fails(3), rank=3)[1] == 2  # it was the root only once
    assert history(log, rank=1, identity="connection closed")[1] == 1
    assert history(log, identity="KeyError")[1] == 1
    assert Past.of(log.events).history(allowed=3, workers=4).same_errors == 0


def test_a_new_step_ends_a_row_of_restarts_without_one() -> None:
    log = a_job_that_failed_twice().trains()
    assert history(log)[2] == 0
    log.fails(2).restart_begins().launch()
    assert history(log)[2] == 1


def test_a_step_that_was_made_before_is_no_new_one() -> None:
    past = Past.of(a_log().agent().launch().trains(steps=1, step=40).restart_begins().launch().events)
    assert not past.is_new(1, 40)
    assert past.is_new(2, 41)
    assert past.is_new(1, None)  # a script that gives its steps no number
    assert not past.is_new(0, None)  # a collective
    past.progressed(1, 40)
    assert past.without_progress == 1


def test_a_change_of_the_membership_is_no_restart() -> None:
    log = a_log().agent().launch().restart_begins(counted=False).launch().restart_done(counted=False)
    assert history(log) == (0, 1, 0, 0)


def test_an_agent_that_was_killed_goes_on_with_all_counters() -> None:
    log = a_job_that_failed_twice()
    assert history(log.agent()) == (2, 2, 3, 1)  # to be run again is a restart without progress, too
    assert Past.of(log.events).continues
    assert history(log.agent()) == (2, 2, 3, 1)  # killed before it launched anything


def test_a_job_that_asked_to_be_run_again_has_its_restarts_anew_and_repeats_what_it_repeats() -> None:
    log = a_job_that_failed_twice().ends(75, "failed").agent()
    assert history(log) == (0, 2, 3, 1)
    log.launch().trains().ends(75, "failed").agent()
    assert history(log) == (0, 2, 1, 1)


def test_a_job_that_ended_is_over() -> None:
    for code in (0, 1, 93):
        log = a_job_that_failed_twice().ends(code).event("notice.failed", {"target": "x"})
        past = Past.of(log.agent().events)
        assert history(log) == (0, 1, 0, 0)
        assert not past.continues
        assert past.best_step is None


def test_workers_that_are_restarted_alone_count_each_for_itself() -> None:
    log = a_log().agent().launch()
    for rank in (1, 1, 3):
        log.fails(rank).event("restart.begun", {"worker": rank, "restarts": 1})
        log.event("restart", {"worker": rank, "restarts": 1})
    past = Past.of(log.events)
    assert past.restarts == 0
    found = [past.worker_history(rank, a_failure(rank), allowed=3, workers=4) for rank in (0, 1, 3)]
    assert [one.restarts_used for one in found] == [0, 2, 1]
    assert [one.same_errors for one in found] == [1, 2, 1]
    assert found[0].failed_workers == 2
    assert Past.of(log.agent().events).worker_history(1, allowed=3, workers=4).restarts_used == 2
    assert Past.of(log.ends(75).agent().events).worker_history(1, allowed=3, workers=4).restarts_used == 0


def test_logs_that_tell_of_a_restart_only_when_it_is_complete_are_counted_as_well() -> None:
    log = a_log().agent().launch()
    for restarts in (1, 1, 2):  # the second is a change of the membership
        log.launch().event("restart", {"restarts": restarts, "reason": "x"})
    assert history(log)[0] == 2


def test_nonsense_in_an_event_counts_nothing_and_breaks_nothing() -> None:
    log = a_log().agent()
    log.event("worker.failed", {"rank": "two", "root": True}).event(
        "worker.failed", {"rank": 1, "root": "yes"}
    )
    log.event("restart.begun", {"worker": "x", "is_counted": False}).event("cycle.training", {"step": "x"})
    log.event("cycle.ended", {"number": None}).event("job.ended", {"exit_code": "75"}).event("of.later", {})
    assert history(log.agent()) == (0, 1, 0, 0)


def test_restarts_that_other_nodes_tell_of_count_and_never_take_any_away() -> None:
    log = a_log().agent().launch().trains().fails(2).restart_begins().launch().restart_done()
    assert history(log)[0] == 1
    assert history(log.event("restarts.told", {"restarts": 3}))[0] == 3
    assert history(log.event("restarts.told", {"restarts": 2}))[0] == 3
