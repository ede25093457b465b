"""The watch's part in incidents of the whole job: what it asks, and what becomes of the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.classify_factory import a_job, judge
from tests.rules_factory import loading, waiting

from rankscope.agent.evidence.taker import EvidenceTaker, Incident
from rankscope.agent.nodes.driver import NodeDriver
from rankscope.agent.nodes.events import Alone as IsAlone
from rankscope.agent.nodes.events import (
    Event,
    Follow,
    Judge,
    Keep,
    Learn,
    Look,
    LookTaken,
    Progressed,
    Proposed,
    Suspected,
)
from rankscope.agent.nodes.folding import Known, unfold
from rankscope.agent.nodes.meeting import Meeting
from rankscope.agent.nodes.messages import Member, Opening, Ruling
from rankscope.agent.nodes.verdicts import write_verdict
from rankscope.agent.nodes.whole_job import WholeJob
from rankscope.agent.observing.observer import Observer
from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.joint import JointInquiry
from rankscope.agent.watching.questions import Proposal, Question
from rankscope.agent.workers.model import Launch
from rankscope.diag.classify import Slowdown, SlowLook
from rankscope.diag.model import Decision, Diagnosis, JobSnapshot

ME = Member(0, 2, "here", (0, 1))
MINE = Opening("mine", 0, "here", "no progress for 8 s", 0.0, silent=8.0)
THEIRS = Opening("theirs", 1, "there", "no progress for 9 s", 0.0, silent=9.0)
WISH = Opening("wish", 0, "here", "an analysis was asked for", 0.0, asked=True)
PACE = SlowLook(Slowdown(0.1, 0.2, 40), frozenset({1}))
SLOW = Opening("slow", 0, "here", "what is slow is looked for", 0.0, asked=True, slow=PACE)
THEIR_SLOW = replace(SLOW, incident="their-slow", rank=1, node="there")
THEIR_WISH = Opening("their-wish", 1, "there", "an analysis was asked for", 0.0, asked=True)
RESTART = Decision("restart", "it hangs", "now", "mine", culprits=(0,))


def found(incident: str = "mine", verdict: str = "RankNonCommHang") -> Diagnosis:
    look = a_job(*waiting(1, 2, 3, seq=7), loading(0).at(6))
    return replace(judge(look, look), incident=incident, verdict=cast("Any", verdict))


@dataclass
class Driver:
    """In place of the protocol's thread: what it was told, and what it tells."""

    part: WholeJob
    told: list[Event] = field(default_factory=list[Event])

    def start(self) -> None: ...

    def stop(self, _timeout: float = 0.0) -> None: ...

    def tell(self, event: Event) -> None:
        self.told.append(event)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]


@dataclass
class Evidence:
    """Looks that are made; what is adopted."""

    adopted: list[Diagnosis] = field(default_factory=list[Diagnosis])
    known: list[Diagnosis | None] = field(default_factory=list[Diagnosis | None])
    told_here: list[tuple[str | None, bool]] = field(default_factory=list[tuple[str | None, bool]])
    paces: list[SlowLook] = field(default_factory=list[SlowLook])

    def slow_looks(
        self, *_workers: object, pause: Callable[[float], bool], **_limits: object
    ) -> tuple[JobSnapshot, ...]:
        return () if pause(0.0) else tuple(JobSnapshot("run-7", float(at), 4, ()) for at in range(4))

    def judge_slow(
        self, incident: str, looks: Sequence[JobSnapshot], slow: SlowLook, **_called: object
    ) -> Diagnosis:
        self.paces.append(slow)
        assert [look.time for look in looks] == [0.0, 1.0, 2.0, 3.0]
        return found(incident, "RankNonCommSlow")

    def tells_of(self, diagnosis: Diagnosis, *, is_here: bool) -> None:
        self.told_here.append((diagnosis.incident, is_here))

    def judge_asked(self, incident: Incident, *, known: Diagnosis | None, **_called: object) -> Diagnosis:
        self.known.append(known)
        return found(incident.id)

    def snapshot(self, *_workers: object, **_limits: object) -> JobSnapshot:
        return JobSnapshot("run-7", 1.0, 4, ())

    def closer(self, seen: JobSnapshot) -> JobSnapshot:
        return seen

    def adopt(self, diagnosis: Diagnosis, _a: object, _b: object) -> None:
        self.adopted.append(diagnosis)

    adopt_asked = adopt


class Jobs(Collector):
    """Does a job at once, or keeps it."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.agent = agent

    def put(self, job: Callable[[], None], *, urgent: bool = False) -> None:
        if self.agent.jobs_wait is None:
            job()
        else:
            self.agent.jobs_wait.append(job)


class Agent:
    """One agent in a round of two; everything happens in the test's thread."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []
        self.evidence = Evidence()
        self.drivers: list[Driver] = []
        self.jobs_wait: list[Callable[[], None]] | None = None
        self.known: Diagnosis | None = None
        self.joint = JointInquiry(
            evidence=cast("EvidenceTaker", self.evidence),
            collector=Jobs(self),
            post=lambda message: message(),
            ended=dict,
            known=lambda: self.known,
            published=lambda opening, diagnosis, silent: self.tell(
                "published", (opening.incident, diagnosis.incident, round(silent))
            ),
            ruled=lambda ruling: self.tell("ruled", ruling.decision),
            say=lambda text: self.tell("said", text),
            make_driver=self._driver,
        )

    def _driver(self, _me: object, _connect: object, part: WholeJob) -> NodeDriver:
        self.drivers.append(Driver(part))
        return cast("NodeDriver", self.drivers[-1])

    @property
    def driver(self) -> Driver:
        return self.drivers[-1]

    def tell(self, what: str, value: object = None) -> None:
        self.told.append((what, value))

    def meets(self) -> None:
        self.joint.join(Meeting(ME, "run-7", 4, lambda: pytest.fail("nobody connects here")))
        self.joint.begin(cast("Launch", object()), cast("Observer", object()))

    def asks(self, opening: Opening = MINE) -> bool:
        return self.joint.ask(
            Question(
                opening,
                judged=lambda one: self.tell("judged", one.incident),
                goes_on=lambda reason: self.tell("goes on", reason),
                here=lambda: self.tell("here"),
            )
        )

    def wishes(self, opening: Opening = WISH) -> bool:
        return self.joint.wish(
            Question(
                opening,
                judged=lambda one: self.tell("granted", one.incident),
                goes_on=lambda reason: self.tell("again", reason),
                here=lambda: self.tell("alone"),
            )
        )

    def proposes(self, decision: Decision = RESTART) -> bool:
        return self.joint.propose(
            Proposal(
                decision, (), carry_out=lambda: self.tell("carry out"), postpone=lambda: self.tell("postpone")
            )
        )

    def is_asked(self, opening: Opening = MINE) -> None:
        self.driver.part.look(Look("a", opening))

    def learns(self, opening: Opening = MINE, verdict: str = "RankNonCommHang") -> None:
        diagnosis = found(opening.incident, verdict)
        self.driver.part.learn(Learn(opening, write_verdict(diagnosis)))

    def follows(self, decision: Decision | None = None, *, goes_on: bool = False) -> None:
        ruling = Ruling("mine", 1, "there", "because", decision, goes_on=goes_on)
        self.driver.part.follow(Follow(1, ruling))

    def heard(self) -> list[tuple[str, object]]:
        told, self.told = self.told, []
        return [one for one in told if one[0] != "said"]


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    made.meets()
    yield made
    made.joint.leave()


def test_alone_nobody_is_asked() -> None:
    agent = Agent()
    assert not agent.asks()
    assert not agent.proposes()


def test_what_is_asked_gets_the_verdict_of_the_job_once_and_it_is_kept_here(agent: Agent) -> None:
    assert agent.asks()
    (asked,) = agent.driver.of(Suspected)
    assert asked.opening == MINE
    agent.is_asked()
    assert agent.joint.is_open
    assert not agent.joint.is_judged
    agent.learns()
    assert agent.heard() == [("judged", "mine")]
    assert [one.incident for one in agent.evidence.adopted] == ["mine"]
    assert agent.joint.is_judged


def test_two_suspicions_are_one_and_its_verdict_answers_both(agent: Agent) -> None:
    assert agent.asks()
    agent.is_asked(THEIRS)
    agent.learns(THEIRS)
    assert agent.heard() == [("judged", "theirs")]


def test_a_verdict_that_nobody_here_asked_for_is_published(agent: Agent) -> None:
    agent.is_asked(THEIRS)
    agent.learns(THEIRS)
    assert agent.heard() == [("published", ("theirs", "theirs", 9))]


def test_a_healthy_job_is_ruled_to_be_well_and_nothing_is_kept(agent: Agent) -> None:
    agent.is_asked(THEIRS)
    agent.learns(THEIRS, "Healthy")
    (ruled,) = agent.driver.of(Proposed)
    assert (ruled.ruling.incident, ruled.ruling.decision) == ("theirs", None)
    assert (agent.heard(), agent.evidence.adopted) == ([], [])


def test_to_look_again_the_open_incident_is_closed_first(agent: Agent) -> None:
    agent.is_asked()
    agent.learns()
    agent.heard()
    assert agent.asks()
    assert agent.driver.of(Suspected) == []
    agent.follows()
    assert len(agent.driver.of(Suspected)) == 1
    agent.is_asked()
    agent.learns()
    assert agent.heard() == [("judged", "mine")]


@pytest.mark.parametrize(
    ("goes_on", "heard"),
    [(True, ("goes on", "because")), (False, ("here", None))],
    ids=["progress", "no verdict"],
)
def test_a_question_that_ends_without_a_verdict(
    agent: Agent, *, goes_on: bool, heard: tuple[str, object]
) -> None:
    agent.asks()
    agent.is_asked()
    agent.follows(goes_on=goes_on)
    assert agent.heard() == [heard]
    assert not agent.joint.is_open


def test_where_the_store_does_not_answer_this_node_judges_and_acts_itself(agent: Agent) -> None:
    agent.asks()
    agent.driver.part.alone(IsAlone("no answer for 10 s"))
    assert agent.heard() == [("here", None)]
    agent.is_asked()
    agent.learns()
    agent.heard()
    assert agent.proposes()
    agent.driver.part.alone(IsAlone("no answer for 10 s"))
    assert agent.heard() == [("carry out", None)]


def test_without_an_answer_in_time_this_node_judges_itself(agent: Agent) -> None:
    agent.asks()
    agent.joint.tick(time.monotonic() + 89, 0, works=False)
    assert agent.heard() == []
    agent.joint.tick(time.monotonic() + 91, 0, works=False)
    assert agent.heard() == [("here", None)]


def test_before_there_is_a_verdict_nothing_can_be_proposed(agent: Agent) -> None:
    agent.is_asked()
    assert not agent.proposes()


def test_the_own_proposal_is_carried_out_when_it_holds_and_anothers_when_that_does(agent: Agent) -> None:
    agent.is_asked()
    agent.learns()
    agent.heard()
    assert agent.proposes()
    (proposed,) = agent.driver.of(Proposed)
    assert (proposed.ruling.decision, proposed.ruling.incident, proposed.ruling.node) == (
        RESTART,
        "mine",
        "here",
    )
    agent.follows(RESTART)
    assert agent.heard() == [("carry out", None)]

    agent.is_asked()
    agent.learns()
    agent.heard()
    agent.proposes()
    other = replace(RESTART, reason="says there")
    agent.follows(other)
    assert agent.heard() == [("ruled", other)]


def test_a_proposal_is_postponed_where_the_job_goes_on(agent: Agent) -> None:
    agent.is_asked()
    agent.learns()
    agent.heard()
    agent.proposes()
    agent.follows(goes_on=True)
    assert agent.heard() == [("postpone", None)]


def test_a_restart_that_is_ruled_makes_a_question_void(agent: Agent) -> None:
    agent.is_asked()
    agent.learns()
    agent.heard()
    agent.asks()
    agent.follows(RESTART)
    assert agent.heard() == [("ruled", RESTART)]
    assert agent.driver.of(Suspected) == []


def test_progress_here_ends_what_is_open_and_is_told_once(agent: Agent) -> None:
    agent.joint.tick(1.0, 5, works=False)
    agent.joint.tick(2.0, 6, works=True)
    assert agent.driver.told == []  # nothing is open
    agent.is_asked(THEIRS)
    agent.driver.told.clear()
    agent.joint.tick(3.0, 6, works=False)
    assert agent.driver.of(Progressed) == []
    agent.joint.tick(4.0, 7, works=False)
    agent.joint.tick(5.0, 7, works=False)
    assert [one.reason for one in agent.driver.of(Progressed)] == ["node here goes on"]


def test_where_the_awaited_ranks_are_at_work_the_job_is_told_so_once(agent: Agent) -> None:
    agent.is_asked(THEIRS)
    agent.driver.told.clear()
    agent.joint.tick(3.0, 0, works=True)
    agent.joint.tick(4.0, 0, works=True)
    (told,) = agent.driver.of(Progressed)
    assert told.reason == "ranks on node here work, and are given more time"


def test_what_another_round_tells_is_void(agent: Agent) -> None:
    agent.asks()
    before = agent.driver.part
    agent.meets()
    before.learn(Learn(MINE, write_verdict(found())))
    assert agent.heard() == []
    assert not agent.joint.is_open


def test_a_node_without_workers_answers_that_it_has_none(agent: Agent) -> None:
    agent.joint.end()
    agent.is_asked()
    (taken,) = agent.driver.of(LookTaken)
    assert taken.which == "a"
    assert taken.parts


def test_an_incident_is_open_as_soon_as_it_is_heard_of(agent: Agent) -> None:
    agent.jobs_wait = []
    agent.driver.part.look(Look("a", THEIRS))
    assert agent.joint.is_open  # whatever else there is to do before the look
    assert agent.driver.of(LookTaken) == []


def test_workers_that_end_take_what_is_asked_of_them_along(agent: Agent) -> None:
    agent.asks()
    agent.joint.end()
    agent.driver.part.alone(IsAlone("no answer for 10 s"))
    agent.joint.tick(time.monotonic() + 91, 0, works=False)
    assert agent.heard() == []


def test_what_cannot_wait_for_the_others_is_judged_here(agent: Agent) -> None:
    agent.asks()
    agent.joint.give_up_asking()
    assert agent.heard() == [("here", None)]
    agent.joint.give_up_asking()
    assert agent.heard() == []


def test_who_wants_to_know_gets_the_verdict_of_all_nodes_and_nobody_else_hears_of_it(agent: Agent) -> None:
    assert agent.wishes()
    agent.is_asked(WISH)
    assert not agent.joint.is_open  # nothing will be ruled about anybody's workers
    agent.joint.tick(time.monotonic(), 5, works=True)
    assert agent.driver.of(Progressed) == []  # a job that goes on is looked at all the same
    agent.learns(WISH)
    assert not agent.joint.is_judged
    assert not agent.proposes()
    assert agent.heard() == [("granted", "wish")]
    assert [one.incident for one in agent.evidence.adopted] == ["wish"]
    (closed,) = agent.driver.of(Proposed)
    assert closed.ruling.decision is None
    agent.follows()
    assert agent.heard() == []


def test_what_another_node_wanted_to_know_is_not_told_here(agent: Agent) -> None:
    agent.is_asked(THEIR_WISH)
    agent.learns(THEIR_WISH)
    agent.follows()
    assert agent.told == []
    assert agent.evidence.adopted == []


def test_a_suspicion_ends_what_somebody_wanted_to_know_and_is_asked_then(agent: Agent) -> None:
    agent.is_asked(THEIR_WISH)
    agent.asks()
    assert agent.driver.of(Suspected) == []
    assert len(agent.driver.of(Progressed)) == 1
    agent.follows(goes_on=True)
    assert [one.opening for one in agent.driver.of(Suspected)] == [MINE]
    agent.is_asked()
    agent.learns()
    assert agent.heard() == [("judged", "mine")]


def test_a_suspicion_that_met_a_wish_on_its_way_does_not_become_one(agent: Agent) -> None:
    agent.asks()
    agent.is_asked(THEIR_WISH)  # that was opened first
    agent.learns(THEIR_WISH, "Healthy")
    assert agent.heard() == []
    agent.follows()
    assert [one.opening for one in agent.driver.of(Suspected)] == [MINE, MINE]


def test_a_suspicion_answers_a_wish_too_and_is_published(agent: Agent) -> None:
    agent.wishes()
    agent.is_asked(THEIRS)
    agent.learns(THEIRS)
    assert agent.heard() == [("granted", "theirs"), ("published", ("theirs", "theirs", 9))]
    assert [one.incident for one in agent.evidence.adopted] == ["theirs"]


def test_a_wish_that_ends_without_a_verdict_may_be_made_again(agent: Agent) -> None:
    agent.wishes()
    agent.is_asked(WISH)
    agent.follows(goes_on=True)
    assert agent.heard() == [("again", "because")]


def test_where_others_do_not_answer_who_wants_to_know_is_told_what_is_seen_here(agent: Agent) -> None:
    agent.wishes()
    agent.driver.part.alone(IsAlone("no answer for 10 s"))
    assert agent.heard() == [("alone", None)]
    agent.wishes()
    agent.joint.tick(time.monotonic() + 39, 0, works=False)
    assert agent.heard() == []
    agent.joint.tick(time.monotonic() + 41, 0, works=False)
    assert agent.heard() == [("alone", None)]


def test_who_leads_knows_what_was_told_of_the_present_silence(agent: Agent) -> None:
    def led() -> Diagnosis | None:
        agent.is_asked(WISH)
        agent.driver.part.judge(Judge(WISH, (), (), (), ()))
        return agent.evidence.known[-1]

    assert led() is None
    agent.learns(WISH)
    told = led()
    assert told is not None
    assert told.incident == "wish"
    agent.known = found("published")
    assert led() == agent.known
    agent.known = None
    agent.joint.tick(time.monotonic(), 1, works=False)
    assert led() is None  # it has moved since


# ---- what is slow ----


def test_looks_for_what_is_slow_are_all_taken_at_once_and_judged_by_who_leads(agent: Agent) -> None:
    assert agent.wishes(SLOW)
    agent.is_asked(SLOW)
    agent.driver.part.look(Look("b", SLOW))
    first, second = agent.driver.of(LookTaken)
    assert (first.which, second.which) == ("a", "b")
    for taken in (first, second):
        agent.driver.part.keep(Keep(taken.which, 0, taken.parts))
        agent.driver.part.keep(Keep(taken.which, 1, taken.parts))
    agent.driver.part.judge(Judge(SLOW, (), (), (), ()))
    (pace,) = agent.evidence.paces
    assert (pace.slowdown, pace.named) == (PACE.slowdown, PACE.named)
    agent.learns(SLOW, "RankNonCommSlow")
    assert agent.heard() == [("granted", "slow")]
    assert agent.evidence.told_here == [("slow", True)]
    (closed,) = agent.driver.of(Proposed)
    assert closed.ruling.decision is None


def test_of_two_agents_that_find_a_job_slow_one_sends_the_notices(agent: Agent) -> None:
    agent.wishes(SLOW)
    agent.is_asked(THEIR_SLOW)
    agent.learns(THEIR_SLOW, "RankNonCommSlow")
    assert agent.heard() == [("granted", "their-slow")]
    assert agent.evidence.told_here == [("their-slow", False)]
    assert [one.incident for one in agent.evidence.adopted] == ["their-slow"]


def test_where_nothing_is_slow_nothing_is_kept(agent: Agent) -> None:
    agent.wishes(SLOW)
    agent.is_asked(SLOW)
    agent.learns(SLOW, "Healthy")
    assert agent.heard() == [("granted", None)]
    assert (agent.evidence.adopted, agent.evidence.told_here) == ([], [])


def test_a_person_comes_before_what_is_slow_and_is_not_answered_by_it(agent: Agent) -> None:
    agent.wishes(SLOW)
    agent.is_asked(SLOW)
    agent.wishes(WISH)
    assert [one.opening for one in agent.driver.of(Suspected)] == [SLOW]
    (told,) = agent.driver.of(Progressed)
    assert told.reason == "somebody asks on node here, who comes first"
    agent.follows(goes_on=True)
    assert sorted(agent.heard()) == [("again", "because"), ("again", "because")]


def test_a_person_is_not_answered_by_looks_for_what_is_slow_that_were_opened_first(agent: Agent) -> None:
    agent.wishes(WISH)
    agent.is_asked(THEIR_SLOW)
    agent.learns(THEIR_SLOW, "RankNonCommSlow")
    assert agent.heard() == []
    agent.follows()
    assert agent.heard() == [("again", "because")]


def test_evidence_of_a_hang_ends_looks_for_what_is_slow_on_all_nodes(agent: Agent) -> None:
    agent.joint.give_way()
    assert agent.driver.of(Progressed) == []  # nothing is open
    agent.jobs_wait = []
    agent.is_asked(THEIR_SLOW)
    agent.joint.give_way()
    assert [one.reason for one in agent.driver.of(Progressed)] == [
        "node here suspects a hang, which comes first"
    ]
    jobs, agent.jobs_wait = agent.jobs_wait, None
    for job in jobs:
        job()  # ends at once, and says that nothing was seen
    (taken,) = agent.driver.of(LookTaken)
    (seen,) = unfold(taken.parts, Known())
    assert {rank.reason for rank in seen.ranks} == {"something else was looked at first"}


def test_one_agent_looks_every_so_often_for_all(agent: Agent) -> None:
    assert agent.joint.leads
    agent.joint.leave()
    assert agent.joint.leads
    agent.joint.join(Meeting(replace(ME, rank=1), "run-7", 4, lambda: pytest.fail("nobody connects here")))
    assert not agent.joint.leads
