"""When a job is looked at for what is slow, and what is told: the real collector, looks that are given."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from tests.classify_factory import a_job, a_rank
from tests.slow_factory import judge_slow

from rankscope.agent.evidence.taker import EvidenceTaker
from rankscope.agent.observing.observer import Observer
from rankscope.agent.records.folder import Records
from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.joint import JointInquiry
from rankscope.agent.watching.questions import Question
from rankscope.agent.watching.reporter import Reporter
from rankscope.agent.watching.stragglers import AGAIN_AFTER, Stragglers
from rankscope.agent.workers.model import Launch
from rankscope.diag.classify import Slowdown, SlowLook
from rankscope.diag.model import Diagnosis, JobSnapshot
from rankscope.diag.store.job import JobFolder
from rankscope.watchdog.observations import RankObservation
from rankscope.watchdog.page import SlotView

LAUNCH = Launch((), restart_count=0, world_size=2)
HEALTHY = judge_slow(*(a_job(a_rank(0).but(step=at), a_rank(1).but(step=at)) for at in range(3)))
SLOW = msgspec.structs.replace(
    HEALTHY, verdict="RankNonCommSlow", kind="user_code", culprits=(1,), incident="i-1"
)


@dataclass
class Told(Reporter):
    """What was reported."""

    slow: list[tuple[str, Slowdown | None, float]] = field(
        default_factory=list[tuple[str, Slowdown | None, float]]
    )
    over: list[tuple[str | None, str]] = field(default_factory=list[tuple[str | None, str]])

    def on_slow(self, diagnosis: Diagnosis, slowdown: Slowdown | None, *, seconds: float) -> None:
        self.slow.append((diagnosis.verdict, slowdown, seconds))

    def on_slow_no_more(self, diagnosis: Diagnosis, reason: str) -> None:
        self.over.append((diagnosis.incident, reason))


class Looks(EvidenceTaker):
    """Looks that are given, in place of processes."""

    def __init__(self, folder: Path) -> None:
        super().__init__("run-7", Records(JobFolder(folder), lambda _text: None))
        self.asked = 0
        self.diagnosis = HEALTHY
        self.named: list[frozenset[int]] = []
        self.waits = threading.Event()
        self.waits.set()
        self.is_looking = threading.Event()

    def slow_looks(
        self,
        launch: Launch,
        observer: Observer,
        *,
        pause: Callable[[float], bool],
        kept_entries: int = 2_000,
    ) -> tuple[JobSnapshot, ...]:
        del launch, observer, kept_entries
        self.asked += 1
        self.is_looking.set()
        while not self.waits.is_set():
            if pause(0.01):
                return ()
        return (a_job(a_rank(0)),) * 3

    def judge_slow(
        self,
        incident: str,
        looks: Sequence[JobSnapshot],
        slow: SlowLook,
        *,
        called: Callable[[Diagnosis], Diagnosis] | None = None,
    ) -> Diagnosis:
        del incident, looks, called
        self.named.append(slow.named)
        if self.diagnosis.summary == "broken":
            raise ValueError
        return self.diagnosis


class Others(JointInquiry):
    """Other nodes: none, or some that are asked and answer when the test does."""

    def __init__(self, evidence: EvidenceTaker, collector: Collector) -> None:
        super().__init__(
            evidence=evidence,
            collector=collector,
            post=lambda message: message(),
            ended=dict,
            known=lambda: None,
            published=lambda *_: None,
            ruled=lambda _ruling: None,
            say=lambda _text: None,
        )
        self.are_there = False
        self.first = True
        self.asked: list[Question] = []

    @property
    def leads(self) -> bool:
        return self.first

    def wish(self, question: Question) -> bool:
        if self.are_there:
            self.asked.append(question)
        return self.are_there


class Job:
    """A job that makes a step every so often, observed once a second."""

    def __init__(self, folder: Path, interval: float | None) -> None:
        self.evidence, self.told, self.collector = Looks(folder), Told(), Collector()
        self.messages: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.others = Others(self.evidence, self.collector)
        self.stragglers = Stragglers(
            interval,
            evidence=self.evidence,
            reporter=self.told,
            collector=self.collector,
            joint=self.others,
            post=self.messages.put,
            new_incident=lambda: "i-1",
        )
        self.observer = Observer(LAUNCH, None, timer_calls=dict, log_sizes=dict)
        self.now = self.ended = 1000.0
        self.step = 10
        self.delivers = True
        self.collector.start()
        self.stragglers.begin(LAUNCH, self.observer, self.now)

    def run(self, seconds: int, *, each: float, calm: bool = True, silent: float = 0.0) -> None:
        """So many ticks, a second each; a look that they ask for is waited for, unless it is held up."""
        for _ in range(seconds):
            self.now += 1.0
            steps = round(1 / each)
            self.step += steps
            self.ended += steps * each
            self.observer.slots = {0: SlotView(0, 1, 1, self.step, int(self.ended * 1e9), 0, 0, "", None, ())}
            asked = self.evidence.asked
            ranks = [RankObservation(0, probed=True, step=self.step)]
            self.stragglers.tick(self.now, ranks, silent=silent, calm=calm)
            if self.evidence.waits.is_set() and self.delivers:
                self.take_in(expected=self.was_asked(asked))

    def was_asked(self, before: int) -> bool:
        done = threading.Event()
        self.collector.put(done.set)
        assert done.wait(10)
        return self.evidence.asked > before

    def take_in(self, *, expected: bool) -> None:
        if expected:
            self.messages.get(timeout=10)()


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[Job]:
    made = Job(tmp_path, getattr(request, "param", None))
    yield made
    made.evidence.waits.set()
    made.stragglers.end()
    made.collector.stop(10)


def test_a_job_at_its_own_pace_is_not_looked_at(job: Job) -> None:
    job.run(120, each=0.2)
    assert (job.evidence.asked, job.told.slow) == (0, [])


def test_steps_that_take_longer_have_it_looked_at_once_and_told_once(job: Job) -> None:
    job.evidence.diagnosis = SLOW
    job.run(30, each=0.2)
    job.run(60, each=0.5)
    assert job.evidence.asked == 1
    ((verdict, slowdown, seconds),) = job.told.slow
    assert verdict == "RankNonCommSlow"
    assert slowdown is not None
    assert slowdown.now / slowdown.before == pytest.approx(2.5, rel=0.1)
    assert seconds != 0


def test_what_goes_on_is_looked_at_again_later_and_not_told_again(job: Job) -> None:
    job.evidence.diagnosis = SLOW
    job.run(30, each=0.2)
    job.run(int(AGAIN_AFTER) + 60, each=0.5)
    assert job.evidence.asked == 2
    assert len(job.told.slow) == 1


def test_what_becomes_much_worse_is_looked_at_at_once(job: Job) -> None:
    job.run(30, each=0.2)
    job.run(30, each=0.5)
    job.run(30, each=1.0)
    assert job.evidence.asked in (2, 3)  # it becomes worse step by step


def test_longer_steps_that_nobody_is_to_blame_for_are_reported_as_that(job: Job) -> None:
    job.run(30, each=0.2)
    job.run(30, each=0.5)
    assert [verdict for verdict, _, _ in job.told.slow] == ["Healthy"]


def test_that_it_is_over_is_told(job: Job) -> None:
    job.evidence.diagnosis = SLOW
    job.run(30, each=0.2)
    job.run(30, each=0.5)
    job.run(60, each=0.2)
    assert job.told.over == [("i-1", "steps take as long as before")]


@pytest.mark.parametrize("job", [20.0], indirect=True)
def test_two_looks_that_find_nobody_slow_end_what_was_told(job: Job) -> None:
    job.evidence.diagnosis = SLOW
    job.run(45, each=0.2)
    for look in (HEALTHY, SLOW, HEALTHY):
        job.evidence.diagnosis = look
        job.run(20, each=0.2)
    assert job.told.over == []
    job.run(20, each=0.2)
    assert job.told.over == [("i-1", "no rank and no link is slow by far any more")]
    job.evidence.diagnosis = SLOW
    job.run(20, each=0.2)
    assert [verdict for verdict, _, _ in job.told.slow] == ["RankNonCommSlow"] * 2


def test_another_finding_ends_what_was_told_of_the_first(job: Job) -> None:
    job.evidence.diagnosis = SLOW
    job.run(30, each=0.2)
    job.run(30, each=0.5)
    assert job.told.over == []
    job.evidence.diagnosis = msgspec.structs.replace(SLOW, culprits=(0,), incident="i-2")
    job.run(30, each=1.0)
    assert job.told.over == [("i-1", "a newer look finds another cause")]
    assert len(job.told.slow) == 2
    assert job.evidence.named[:2] == [frozenset(), {1}]
    job.run(60, each=0.2)
    assert job.told.over[1:] == [("i-2", "steps take as long as before")]


@pytest.mark.parametrize("trouble", [{"calm": False}, {"silent": 9.0}])
def test_a_job_that_may_be_about_to_hang_is_left_to_those_who_look_for_that(
    job: Job, trouble: dict[str, float]
) -> None:
    job.run(30, each=0.2)
    job.run(40, each=0.5, **trouble)  # type: ignore[arg-type] # one of two
    assert job.evidence.asked == 0
    job.run(3, each=0.5)
    assert job.evidence.asked == 1


def test_a_look_gives_way_to_a_suspicion_and_is_taken_again(job: Job) -> None:
    job.run(30, each=0.2)
    job.evidence.waits.clear()
    job.run(20, each=0.5)
    assert job.evidence.is_looking.wait(10)
    job.stragglers.give_way()
    job.take_in(expected=True)
    job.evidence.waits.set()
    job.run(3, each=0.5)
    assert job.evidence.asked == 2
    assert len(job.told.slow) == 1


def test_what_was_seen_of_workers_before_a_restart_is_void(job: Job) -> None:
    job.evidence.diagnosis = SLOW
    job.run(30, each=0.2)
    job.delivers = False
    job.run(20, each=0.5)
    assert job.evidence.is_looking.wait(10)
    assert job.was_asked(0)
    job.stragglers.begin(LAUNCH, job.observer, job.now)
    job.take_in(expected=True)
    assert job.told.slow == []


def test_a_judgement_that_fails_is_not_tried_again_at_every_tick(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    job.evidence.diagnosis = msgspec.structs.replace(SLOW, summary="broken")
    job.run(30, each=0.2)
    job.run(30, each=0.5)
    assert job.evidence.asked == 1
    assert "training is untouched" in caplog.text


@pytest.mark.parametrize("job", [20.0], indirect=True)
def test_with_an_interval_it_is_looked_at_whatever_its_pace(job: Job) -> None:
    job.run(90, each=0.2)
    assert job.evidence.asked == 4
    assert job.told.slow == []
    job.evidence.diagnosis = SLOW
    job.run(60, each=0.2)
    assert [(verdict, slowdown) for verdict, slowdown, _ in job.told.slow] == [("RankNonCommSlow", None)]


# ---- several nodes ----


def test_where_there_are_other_nodes_they_are_asked_with_what_is_known_of_the_pace(job: Job) -> None:
    job.others.are_there = True
    job.run(60, each=0.1)
    job.run(60, each=0.2)
    assert job.evidence.asked == 0
    (question,) = job.others.asked
    assert question.opening.asked
    pace = question.opening.slow
    assert pace is not None
    assert pace.slowdown is not None
    assert pace.slowdown.now > 1.5 * pace.slowdown.before
    question.judged(SLOW)
    assert [verdict for verdict, _, _ in job.told.slow] == ["RankNonCommSlow"]


def test_what_came_first_is_waited_for_and_the_others_are_asked_again(job: Job) -> None:
    job.others.are_there = True
    job.run(60, each=0.1)
    job.run(60, each=0.2)
    job.others.asked[0].goes_on("a node suspects a hang")
    assert job.told.slow == []
    job.run(2, each=0.2)
    assert len(job.others.asked) == 2


def test_where_they_do_not_answer_the_ranks_here_are_looked_at(job: Job) -> None:
    job.others.are_there = True
    job.run(60, each=0.1)
    job.run(60, each=0.2)
    job.evidence.diagnosis = SLOW
    job.others.asked[0].here()
    job.take_in(expected=True)
    assert (job.evidence.asked, len(job.told.slow)) == (1, 1)


def test_answers_to_what_was_asked_of_other_workers_are_void(job: Job) -> None:
    job.others.are_there = True
    job.run(60, each=0.1)
    job.run(60, each=0.2)
    job.stragglers.begin(LAUNCH, job.observer, job.now)
    job.others.asked[0].judged(SLOW)
    job.others.asked[0].here()
    assert (job.told.slow, job.evidence.asked) == ([], 0)


@pytest.mark.parametrize("job", [30.0], indirect=True)
def test_every_so_often_one_agent_asks_for_all(job: Job) -> None:
    job.others.are_there, job.others.first = True, False
    job.run(100, each=0.2)
    assert job.others.asked == []
    job.others.first = True
    job.run(1, each=0.2)
    assert len(job.others.asked) == 1
