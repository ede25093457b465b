"""The inquiry into a silence where the whole job is asked: what is told, and what is told to the detector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.classify_factory import a_job, judge
from tests.rules_factory import loading, waiting

from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.inquiry import Inquiry
from rankscope.agent.watching.joint import JointInquiry
from rankscope.agent.watching.questions import Question
from rankscope.agent.watching.reporter import Reporter
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag.model import Diagnosis, ExitFacts, JobSnapshot
from rankscope.watchdog.observations import (
    ActDue,
    Cleared,
    Confirmed,
    Diagnosed,
    Event,
    JudgedAgain,
    Postponed,
    Recovered,
    Suspected,
)

SUSPECTED = Suspected("no progress for 8 s", "quiet", 8.0, 8.0, (0,), (1,), "quiet")
CONFIRMED = Confirmed("no progress for 8 s", 0.0, (0,), (1,), "quiet")
LOOK = a_job(*waiting(1, 2, 3, seq=7), loading(0).at(6))


def found(incident: str = "theirs", verdict: str = "RankNonCommHang") -> Diagnosis:
    return replace(judge(LOOK, LOOK), incident=incident, verdict=cast("Any", verdict), confidence="high")


class Told(Reporter):
    """What the rest of the agent is told."""

    def __init__(self) -> None:
        self.what: list[tuple[str, object]] = []

    def on_cleared(self, incident: str, cleared: Cleared) -> None:
        self.what.append(("cleared", (incident, cleared.reason)))

    def on_diagnosed(self, diagnosis: Diagnosis, confirmed: Confirmed) -> None:
        self.what.append(("diagnosed", (diagnosis.incident, diagnosis.verdict)))

    def on_recovered(self, diagnosis: Diagnosis, recovered: Recovered) -> None:
        self.what.append(("recovered", diagnosis.incident))

    def on_act_due(self, diagnosis: Diagnosis, due: ActDue, *, progress_seen: bool) -> None:
        self.what.append(("due", diagnosis.incident))


@dataclass
class Others:
    """The other nodes, which are asked."""

    is_here: bool = True
    is_judged: bool = False
    named: tuple[str, int] = ("here", 0)
    questions: list[Question] = field(default_factory=list[Question])

    opening = JointInquiry.opening

    def ask(self, question: Question) -> bool:
        self.questions.append(question)
        return True


class Evidence:
    """Looks that are made, and the verdict of this node alone."""

    def snapshot(self, *_: object, **__: object) -> JobSnapshot:
        return LOOK

    def closer(self, seen: JobSnapshot) -> JobSnapshot:
        return seen

    def communicating(self, _seen: JobSnapshot) -> frozenset[int]:
        return frozenset()

    def judge(self, incident: Any) -> Diagnosis:
        return found(incident.id)


class AtOnce(Collector):
    def put(self, job: Callable[[], None], *, urgent: bool = False) -> None:
        job()


class Watch:
    """An inquiry whose silence is confirmed, and who is told of it."""

    def __init__(self) -> None:
        self.told, self.others = Told(), Others()
        self.events: list[Event] = []
        self.ends: dict[int, ExitFacts] = {}
        self.inquiry = Inquiry(
            evidence=cast("Any", Evidence()),
            reporter=self.told,
            collector=AtOnce(),
            joint=cast("Any", self.others),
            post=lambda message: message(),
            tell=self.events.append,
            new_incident=lambda: "mine",
            ended=lambda: self.ends,
        )
        launch = Launch((WorkerRef(0, 0, 1, 1),), restart_count=0, world_size=4)
        self.inquiry.begin(launch, cast("Any", None))
        self.inquiry.suspected(SUSPECTED)
        self.inquiry.look("a", samples_of=())
        self.inquiry.look("b", samples_of=())
        self.inquiry.confirmed(CONFIRMED)
        self.events.clear()

    @property
    def question(self) -> Question:
        return self.others.questions[-1]


@pytest.fixture
def watch() -> Watch:
    return Watch()


def test_the_verdict_of_the_job_is_told_as_this_nodes_own(watch: Watch) -> None:
    assert (watch.inquiry.asking, watch.inquiry.judging) == (True, False)
    assert watch.question.opening.incident == "mine"
    watch.question.judged(found())
    assert watch.told.what == [("diagnosed", ("theirs", "RankNonCommHang"))]
    assert watch.events == [Diagnosed(hang=True, confidence="high")]
    assert watch.inquiry.stored_incident == "theirs"
    assert not watch.inquiry.asking


def test_a_job_that_goes_on_elsewhere_clears_the_suspicion(watch: Watch) -> None:
    watch.question.goes_on("node there goes on")
    assert watch.told.what == [("cleared", ("mine", "node there goes on"))]
    assert watch.events == [Diagnosed(hang=False, confidence="high", healthy=True)]
    assert not watch.inquiry.asking


def test_without_the_others_this_node_judges_what_it_has_seen(watch: Watch) -> None:
    watch.question.here()
    assert watch.told.what == [("diagnosed", ("mine", "RankNonCommHang"))]


def test_what_is_due_while_the_job_is_asked_is_due_once_there_is_a_verdict(watch: Watch) -> None:
    watch.inquiry.act_due(ActDue(200.0))
    assert len(watch.others.questions) == 1
    watch.question.judged(found())
    assert watch.told.what[1:] == [("due", "theirs")]


def test_what_is_due_rests_on_a_verdict_that_still_holds(watch: Watch) -> None:
    watch.question.judged(found())
    watch.events.clear()
    watch.inquiry.act_due(ActDue(200.0))  # what was open is closed by now
    assert len(watch.others.questions) == 2
    watch.question.judged(found(verdict="Unknown"))
    assert watch.events == [JudgedAgain(hang=False, confidence="high")]
    watch.question.judged(found(verdict="Healthy"))
    assert watch.events[1:] == [Postponed()]
    watch.others.is_judged = True
    watch.inquiry.act_due(ActDue(201.0))
    assert watch.told.what[1:] == [("due", "theirs")]


def test_a_recovery_is_told_when_it_has_lasted_and_never_of_workers_that_are_stopped(watch: Watch) -> None:
    watch.question.judged(found())
    watch.inquiry.recovered(Recovered(20.0))
    watch.inquiry.tick(0.0)
    assert watch.told.what[1:] == []
    watch.inquiry.tick(float("inf"))
    assert watch.told.what[1:] == [("recovered", "theirs")]


@pytest.mark.parametrize(("code", "told"), [(0, [("recovered", "theirs")]), (1, []), (None, [])])
def test_workers_that_end_well_after_it_have_recovered(
    watch: Watch, code: int | None, told: list[tuple[str, object]]
) -> None:
    watch.question.judged(found())
    watch.inquiry.recovered(Recovered(20.0))
    watch.ends = {0: ExitFacts(code)}
    watch.inquiry.end()
    watch.inquiry.tick(float("inf"))
    assert watch.told.what[1:] == told


def test_answers_that_come_after_the_workers_end_are_void(watch: Watch) -> None:
    watch.inquiry.end()
    watch.question.judged(found())
    watch.question.goes_on("node there goes on")
    assert (watch.told.what, watch.events) == ([], [])
