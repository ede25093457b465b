"""Limits that change while a hang is open: they hold at once, whatever was published before."""

from __future__ import annotations

from tests.detector_factory import Job, one_step, wait_for

from rankscope.watchdog.limits import HangSettings
from rankscope.watchdog.observations import ActDue, Recovered, SettingsChanged


def hung() -> tuple[Job, float]:
    """A job whose hang is published, and when it began."""
    job = Job(HangSettings(diagnose_after=10.0, act_after=100.0))
    job.train(10)
    hung_at = job.now - job.started
    wait_for(job, culprit=2)
    job.run(20)
    assert job.detector.state == "confirmed"
    return job, hung_at


def change(job: Job, *, act_after: float | None, anew: bool = False) -> None:
    job.detector.handle(SettingsChanged(HangSettings(diagnose_after=10.0, act_after=act_after), anew=anew))


def acted(job: Job, hung_at: float) -> list[int]:
    return [round(at - hung_at) for at in job.times_of(ActDue)]


def test_a_shorter_interval_holds_for_a_hang_that_is_published_already() -> None:
    job, hung_at = hung()
    change(job, act_after=40.0)
    job.run(200)
    assert acted(job, hung_at) == [40]


def test_an_interval_that_has_passed_already_is_acted_on_at_the_next_look() -> None:
    job, hung_at = hung()
    change(job, act_after=1.0)
    job.run(0.5)
    assert len(acted(job, hung_at)) == 1


def test_without_an_interval_the_confidence_says_when_again() -> None:
    job, hung_at = hung()
    change(job, act_after=None)
    job.run(200)
    assert acted(job, hung_at) == [180]


def test_a_hang_that_was_acted_on_is_acted_on_again_only_when_that_is_asked_for() -> None:
    job, hung_at = hung()
    job.run(100)
    assert acted(job, hung_at) == [100]
    change(job, act_after=100.0)
    job.run(50)
    assert acted(job, hung_at) == [100]
    change(job, act_after=200.0, anew=True)
    job.run(100)
    assert acted(job, hung_at) == [100, 200]


def test_progress_after_that_is_a_recovery_as_ever() -> None:
    job, hung_at = hung()
    job.run(100)
    change(job, act_after=100.0, anew=True)
    job.run(1, one_step)
    assert len(job.times_of(Recovered)) == 1
    assert acted(job, hung_at) == [100]


def test_a_change_before_anything_was_found_asks_for_nothing() -> None:
    job = Job()
    job.train(10)
    change(job, act_after=20.0, anew=True)
    job.train(10)
    assert job.published == []
