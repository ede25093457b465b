"""The document of a live page: which incident it shows, whether it still holds, how the job stands."""

from __future__ import annotations

from pathlib import Path

from tests.history_factory import BEGAN, NodeLogBuilder, a_hang, a_job_file, a_log, an_incident

from rankscope.agent.health.live import read_live_page
from rankscope.diag.report.html.live_data import LivePage, current_incident
from rankscope.diag.store.events import Event, iso_time
from rankscope.diag.store.job import JobFolder
from rankscope.diag.top.sampling import EventFollower

NOW = "2026-11-30T12:00:00.000Z"


def confirmed(incident: str = "i-1") -> NodeLogBuilder:
    log = a_log().agent().launch().trains().passes(5)
    return log.event(
        "incident.confirmed", {"verdict": "RankNonCommHang", "summary": "stuck"}, subject=incident
    )


def page_of(folder: Path, log: NodeLogBuilder, *incidents: str) -> LivePage:
    job = JobFolder(folder)
    a_job_file(job)
    for name in incidents:
        an_incident(job, name)
    log.write(job)
    return read_live_page(job, made=NOW)


def test_an_incident_holds_from_its_confirmation_until_something_goes_on() -> None:
    held = confirmed()
    assert current_incident(held.events) == "i-1"
    assert current_incident(held.event("decision", {"action": "restart"}, subject="i-1").events) == "i-1"
    assert current_incident(held.restart_begins().events) == "i-1"
    assert current_incident(held.launch(2).events) is None


def test_its_recovery_ends_it_and_that_of_another_does_not() -> None:
    other = confirmed().event("incident.recovered", {"seconds": 3}, subject="i-0")
    assert current_incident(other.events) == "i-1"
    assert current_incident(other.event("incident.recovered", {"seconds": 3}, subject="i-1").events) is None


def test_the_end_of_the_job_is_no_end_of_what_it_ended_with() -> None:
    assert current_incident(confirmed().ends(1, "failed").events) == "i-1"


def test_a_hang_that_was_found_because_somebody_asked_holds_until_a_look_finds_none() -> None:
    asked = a_log().agent().launch().event("analyzed", {"verdict": "RankNonCommHang"}, subject="i-1")
    assert current_incident(asked.events) == "i-1"
    assert current_incident(asked.event("analyzed", {"verdict": "Healthy"}).events) is None


def test_what_was_slow_ends_with_its_launch() -> None:
    slow = a_log().agent().launch().event("slow", {"verdict": "RankCommSlow"}, subject="i-1")
    assert current_incident(slow.events) == "i-1"
    assert current_incident(slow.event("cycle.ended", {}).events) is None


def test_a_job_without_an_incident_has_a_page_with_its_timeline(tmp_path: Path) -> None:
    page = page_of(tmp_path, a_log().agent().launch().trains().passes(5))
    assert page.report is None
    assert not page.is_current
    assert page.stands.word == ""
    assert page.timeline is not None
    assert [one.type for one in page.timeline.moments][:1] == ["job.started"]


def test_the_last_incident_is_shown_with_its_decision_and_no_second_timeline(tmp_path: Path) -> None:
    page = page_of(tmp_path, confirmed("i-2"), "i-1", "i-2")
    assert page.report is not None
    assert page.report.head.incident == "i-2"
    assert page.report.decided is not None
    assert page.report.timeline is None
    assert page.is_current
    assert page.stands.is_alarm
    assert page.stands.since == iso_time(BEGAN + 1008.0)


def test_an_incident_that_was_asked_for_is_shown_and_holds_no_more(tmp_path: Path) -> None:
    page_of(tmp_path, confirmed("i-2"), "i-1", "i-2")
    page = read_live_page(JobFolder(tmp_path), made=NOW, incident="i-1")
    assert page.report is not None
    assert (page.report.head.incident, page.is_current) == ("i-1", False)


def test_a_wall_clock_that_is_set_back_puts_nothing_in_front_of_what_came_before(tmp_path: Path) -> None:
    log = a_log().agent().launch().trains().passes(5)
    log.event("suspected", {"reason": "quiet", "ranks": [1]})
    log.skew = -3600.0
    page = page_of(tmp_path, log.passes(5).event("cleared", {"reason": "it went on", "seconds": 9}))
    assert not page.stands.is_alarm
    assert EventFollower(tmp_path).events()[-1].name == "cleared"


def test_an_incident_of_an_earlier_job_of_the_run_id_is_not_shown(tmp_path: Path) -> None:
    job = JobFolder(tmp_path)
    a_job_file(job, created=500.0)
    an_incident(job, "i-0", at=1100.0)
    a_log().passes(500.0).agent().launch().write(job)
    assert read_live_page(job, made=NOW).report is None


def test_what_could_not_be_written_is_on_the_page(tmp_path: Path) -> None:
    log = a_log().agent().launch().trains()
    page_of(tmp_path, log)
    unwritten: list[Event] = confirmed().events[-1:]
    memory = a_hang("i-1", time=iso_time(BEGAN + 1008.0))
    page = read_live_page(JobFolder(tmp_path), made=NOW, unwritten=unwritten, diagnoses=[memory])
    assert page.report is not None
    assert page.report.head.incident == "i-1"
    assert page.is_current


def test_a_folder_with_nothing_in_it_makes_a_page(tmp_path: Path) -> None:
    page = read_live_page(JobFolder(tmp_path), made=NOW)
    assert page.report is None
    assert page.timeline is not None
    assert page.timeline.warnings
