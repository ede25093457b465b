"""Looks that somebody asks for: the real collector, looks that are given, a watch that has better to do."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.classify_factory import a_job, a_rank
from tests.slow_factory import judge_slow

from rankscope.agent.evidence.looker import Samples
from rankscope.agent.evidence.taker import EvidenceTaker, Incident
from rankscope.agent.observing.observer import Observer
from rankscope.agent.records.folder import Records
from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.joint import JointInquiry
from rankscope.agent.watching.on_demand import START_TIMEOUT, NotLookedError, OnDemand, Standing
from rankscope.agent.watching.questions import Question
from rankscope.agent.workers.model import Launch
from rankscope.diag.look_times import INTERVAL
from rankscope.diag.model import Diagnosis, ExitFacts, JobSnapshot
from rankscope.diag.store.incidents import incident_folders
from rankscope.diag.store.job import JobFolder

LAUNCH = Launch((), restart_count=0, world_size=2)
CALM = Standing(calm=True, silent=100.0)
HEALTHY = judge_slow(*(a_job(a_rank(0).but(step=at), a_rank(1).but(step=at)) for at in range(3)))
HUNG = msgspec.structs.replace(HEALTHY, verdict="RankNonCommHang", kind="lock", culprits=(1,))
PATIENCE = 20.0


class Looks(EvidenceTaker):
    """Looks that are given, in place of processes; the judgement too."""

    def __init__(self, folder: Path) -> None:
        self.folder = JobFolder(folder)
        self.records = Records(self.folder, lambda _text: None)
        super().__init__("run-7", self.records)
        self.taken: list[str] = []
        self.found = HEALTHY
        self.breaks = False
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def snapshot(
        self,
        launch: Launch,
        observer: Observer,
        *,
        timeout: float,
        exits: Mapping[int, ExitFacts],
        children: bool = True,
    ) -> JobSnapshot:
        del launch, observer, timeout, exits, children
        assert self.may_go_on.wait(PATIENCE)
        self.taken.append("look")
        if self.breaks:
            raise ValueError
        return a_job(a_rank(0), a_rank(1))

    def closer(self, seen: JobSnapshot, *, deadline: float = 0.0) -> JobSnapshot:
        del deadline
        self.taken.append("closer")
        return seen

    def samples(
        self, launch: Launch, observer: Observer, ranks: Sequence[int], *, pause: Callable[[float], bool]
    ) -> Samples:
        del launch, observer
        self.taken.append(f"samples of {list(ranks)}")
        while not pause(0.01):
            pass
        return Samples()

    def _diagnose(self, incident: Incident) -> Diagnosis:
        return msgspec.structs.replace(self.found, incident=incident.id)

    def stored(self) -> list[str]:
        return [one.path.name for one in incident_folders(self.folder.incidents)]


class Others:
    """The other nodes of the job, which are asked where there are some."""

    opening = JointInquiry.opening

    def __init__(self) -> None:
        self.is_here = self.is_judged = False
        self.named = ("here", 0)
        self.wished: list[Question] = []

    def wish(self, question: Question) -> bool:
        self.wished.append(question)
        return True


class Watching:
    """The watch thread, turn by turn."""

    def __init__(self, folder: Path) -> None:
        self.evidence, self.collector = Looks(folder), Collector()
        self.messages: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.answers: list[Diagnosis | NotLookedError] = []
        self.made = 0
        self.others = Others()
        self.on_demand = OnDemand(
            evidence=self.evidence,
            collector=self.collector,
            post=self.messages.put,
            new_incident=self._new_incident,
            ended=dict,
            joint=cast("JointInquiry", self.others),
        )
        self.now = time.monotonic()
        self.collector.start()
        self.begin()

    def _new_incident(self) -> str:
        self.made += 1
        return f"i-{self.made}"

    def begin(self) -> None:
        self.on_demand.begin(LAUNCH, Observer(LAUNCH, None, timer_calls=dict, log_sizes=dict))

    def ask(self) -> None:
        self.on_demand.ask(self.answers.append)
        self.take_in()

    def take_in(self) -> None:
        """All that the collector has to say."""
        done = threading.Event()
        self.collector.put(done.set)
        assert done.wait(PATIENCE)
        while not self.messages.empty():
            self.messages.get()()

    def tick(self, seconds: float, standing: Standing = CALM) -> None:
        self.now = max(self.now, time.monotonic()) + seconds
        self.on_demand.tick(self.now, lambda: standing)

    def run(self, standing: Standing = CALM) -> Diagnosis | NotLookedError:
        """The whole of it, for a job that stands so."""
        self.ask()
        self.tick(0.1, standing)
        self.take_in()
        self.tick(INTERVAL, standing)
        self.take_in()
        return self.answers[-1]


@pytest.fixture
def watching(tmp_path: Path) -> Generator[Watching]:
    made = Watching(tmp_path)
    yield made
    made.evidence.may_go_on.set()
    made.on_demand.close()
    made.collector.stop(PATIENCE)
    made.evidence.records.close()


def why(answer: Diagnosis | NotLookedError) -> str:
    assert isinstance(answer, NotLookedError)
    return f"{answer.why}: {answer}"


def incident(answer: Diagnosis | NotLookedError) -> str | None:
    assert isinstance(answer, Diagnosis)
    return answer.incident


def test_two_looks_some_seconds_apart_are_judged(watching: Watching) -> None:
    watching.ask()
    watching.tick(0.1)
    watching.take_in()
    watching.tick(INTERVAL / 2)
    watching.take_in()
    assert (watching.evidence.taken, watching.answers) == (["look"], [])
    watching.tick(INTERVAL / 2)
    watching.take_in()
    assert watching.evidence.taken == ["look", "look", "closer"]
    assert [type(one) for one in watching.answers] == [Diagnosis]
    assert not watching.on_demand.is_looking


def test_what_is_well_is_not_stored(watching: Watching) -> None:
    assert incident(watching.run()) is None
    assert watching.evidence.stored() == []


def test_what_is_not_well_is_stored_as_an_incident_with_both_looks(watching: Watching) -> None:
    watching.evidence.found = HUNG
    assert incident(watching.run()) == "i-1"
    (folder,) = incident_folders(watching.evidence.folder.incidents)
    assert folder.diagnosis().verdict == "RankNonCommHang"
    assert folder.snapshot("a") is not None
    assert folder.snapshot("b") is not None


def test_what_the_watch_has_published_is_named_and_not_stored_again(watching: Watching) -> None:
    watching.evidence.found = HUNG
    known = msgspec.structs.replace(HUNG, incident="of-the-watch")
    assert incident(watching.run(Standing(calm=True, silent=100.0, known=known))) == "of-the-watch"
    other = msgspec.structs.replace(known, culprits=(0,))
    assert incident(watching.run(Standing(calm=True, silent=0.0, known=other))) == "i-2"
    assert watching.evidence.stored() == ["i-2"]


def test_who_asks_again_while_nothing_moves_gets_the_same_incident(watching: Watching) -> None:
    watching.evidence.found = HUNG
    assert [incident(watching.run()) for _ in range(3)] == ["i-1"] * 3
    assert incident(watching.run(Standing(calm=True, silent=0.0))) == "i-4"  # it has moved since


def test_a_second_is_told_that_it_is_busy_and_for_how_long(watching: Watching) -> None:
    watching.ask()
    with pytest.raises(NotLookedError) as error:
        watching.on_demand.ask(watching.answers.append)
    assert error.value.why == "busy"
    assert error.value.retry_after is not None
    assert 1 <= error.value.retry_after <= 8
    assert watching.answers == []


def test_looks_of_a_suspicion_go_first(watching: Watching) -> None:
    watching.ask()
    for _ in range(3):
        watching.tick(1.0, Standing(calm=False))
    watching.take_in()
    assert watching.evidence.taken == []
    watching.tick(1.0)
    watching.take_in()
    watching.tick(INTERVAL, Standing(calm=False))
    watching.take_in()
    assert watching.evidence.taken == ["look"]
    watching.tick(1.0)
    watching.take_in()
    assert len(watching.answers) == 1


def test_a_look_that_waits_for_its_turn_lets_a_suspicion_pass(watching: Watching) -> None:
    turn = threading.Event()

    def another_look() -> None:
        turn.wait(PATIENCE)

    watching.ask()
    watching.collector.put(another_look)
    watching.tick(0.1)
    watching.on_demand.give_way()
    turn.set()
    watching.take_in()
    assert watching.evidence.taken == []
    watching.tick(1.0)
    watching.take_in()
    assert watching.evidence.taken == ["look"]


def test_samples_of_working_ranks_end_when_a_suspicion_comes(watching: Watching) -> None:
    watching.ask()
    watching.tick(0.1, Standing(calm=True, samples_of=(1,)))
    while "samples of [1]" not in watching.evidence.taken:
        time.sleep(0.01)
    watching.on_demand.give_way()
    watching.take_in()
    watching.tick(INTERVAL)
    watching.take_in()
    assert len(watching.answers) == 1


def test_who_cannot_be_looked_at_for_long_is_told_so(watching: Watching) -> None:
    watching.ask()
    watching.tick(START_TIMEOUT + 1, Standing(calm=False))
    assert "unavailable: evidence of a suspicion comes first" in why(watching.answers[0])
    watching.now = 0.0
    assert incident(watching.run()) is None


@pytest.mark.parametrize("breaks", [False, True])
def test_who_is_answered_may_ask_again_at_once(watching: Watching, breaks: bool) -> None:
    asked = watching.on_demand.ask

    def ask_again(answer: Diagnosis | NotLookedError) -> None:
        watching.answers.append(answer)
        watching.evidence.breaks = False
        asked(watching.answers.append)

    watching.evidence.breaks = breaks
    asked(ask_again)
    watching.take_in()
    for seconds in (0.1, INTERVAL, INTERVAL, INTERVAL):
        watching.tick(seconds)
        watching.take_in()
    assert isinstance(watching.answers[0], NotLookedError) is breaks
    assert incident(watching.answers[1]) is None
    assert not watching.on_demand.is_looking


def test_without_workers_there_is_nothing_to_look_at(watching: Watching) -> None:
    watching.on_demand.end()
    watching.ask()
    assert why(watching.answers[0]) == "unavailable: no workers run now"


@pytest.mark.parametrize("what", ["begin", "end", "close"])
def test_what_was_seen_of_workers_that_are_gone_is_void(watching: Watching, what: str) -> None:
    watching.ask()
    watching.evidence.may_go_on.clear()
    watching.tick(0.1)
    end: Callable[[], None] = {
        "begin": watching.begin,
        "end": watching.on_demand.end,
        "close": watching.on_demand.close,
    }[what]
    end()
    watching.evidence.may_go_on.set()
    watching.take_in()
    (answer,) = watching.answers
    assert why(answer).startswith("unavailable: ")


def test_a_look_that_fails_is_told_and_the_next_is_taken(watching: Watching) -> None:
    watching.evidence.breaks = True
    assert why(watching.run()).startswith("failed: the analysis failed: ValueError")
    watching.evidence.breaks = False
    assert incident(watching.run()) is None


def test_in_a_job_of_several_nodes_all_are_asked(watching: Watching) -> None:
    watching.others.is_here = True
    watching.ask()
    watching.tick(0.1)
    (question,) = watching.others.wished
    assert question.opening.asked
    assert question.opening.silent == 100.0
    watching.tick(INTERVAL)
    watching.take_in()
    assert (len(watching.others.wished), watching.evidence.taken) == (1, [])
    question.judged(HUNG)
    watching.take_in()
    assert watching.answers == [HUNG]
    assert not watching.on_demand.is_looking


def test_what_came_between_is_waited_for_and_all_are_asked_again(watching: Watching) -> None:
    watching.others.is_here = True
    watching.ask()
    watching.tick(0.1)
    watching.others.wished[0].goes_on("node b suspects a hang, which comes first")
    watching.tick(1.0, Standing(calm=False))
    assert len(watching.others.wished) == 1
    watching.tick(1.0)
    assert len(watching.others.wished) == 2
    watching.others.wished[1].goes_on("node b suspects a hang, which comes first")
    watching.tick(START_TIMEOUT)
    assert "unavailable: evidence of a suspicion comes first" in why(watching.answers[0])


def test_of_a_suspicion_that_all_nodes_have_judged_the_verdict_is_the_answer(watching: Watching) -> None:
    watching.others.is_here = watching.others.is_judged = True
    watching.ask()
    watching.tick(0.1, Standing(calm=True, silent=100.0, known=HUNG))
    watching.take_in()
    assert watching.answers == [HUNG]
    assert watching.others.wished == []


def test_where_the_others_do_not_answer_the_own_ranks_are_looked_at(watching: Watching) -> None:
    watching.others.is_here = True
    watching.ask()
    watching.tick(0.1)
    watching.others.wished[0].here()
    for _ in range(2):
        watching.tick(INTERVAL)
        watching.take_in()
    assert watching.evidence.taken == ["look", "look", "closer"]
    assert incident(watching.answers[0]) is None
    assert len(watching.others.wished) == 1
