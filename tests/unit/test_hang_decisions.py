"""What is done about a hang: by this node alone, by the whole job, and on the node that is to blame."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.classify_factory import a_job, judge
from tests.rules_factory import loading, waiting

from rankscope.agent.deciding.hang_decisions import HangDecisions
from rankscope.agent.deciding.restart_clock import RestartClock
from rankscope.agent.nodes.messages import Ruling
from rankscope.agent.observing.trained import Trained
from rankscope.agent.records.replay import Asked
from rankscope.agent.watching.questions import Proposal
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag.model import Decision, Diagnosis

ISOLATE = Decision("isolate", "there leaves", "now", "one", culprits=(2,), exit_code=75)
RESTART = Decision("restart", "all again", "now", "one", culprits=(2,))


class Job:
    """A node with ranks 0 and 1, and who decides and agrees in its tests."""

    def __init__(self, decision: Decision, *, name: str = "here", agrees: bool = False) -> None:
        self.decision = decision
        self.agrees = agrees
        self.is_ended = False
        self.kept: list[tuple[Decision, Asked | None]] = []
        self.proposed: list[Proposal] = []
        self.said: list[str] = []
        self.tells: list[tuple[str, bool]] = []
        self.ranks = Launch((WorkerRef(0, 0, 1, 1), WorkerRef(1, 1, 2, 2)), restart_count=0, world_size=4)
        us = cast("Any", self)
        self.hangs = HangDecisions(
            us,
            watch=us,
            current=us,
            clock=RestartClock(None),
            node=lambda: name,
            tells=lambda incident, is_here: self.tells.append((incident, is_here)),
            say=self.said.append,
        )

    def consider_hang(self, *_about: object, **_how: object) -> tuple[Decision, Asked]:
        return self.decision, Asked("hang")

    def decided(self, decision: Decision, asked: Asked | None) -> Decision | None:
        if self.is_ended:
            return None
        self.kept.append((decision, asked))
        return decision

    def propose(self, proposal: Proposal) -> bool:
        self.proposed.append(proposal)
        return self.agrees

    def postpone(self) -> None: ...

    def ended(self) -> dict[int, Any]:
        return {}

    def decide(self, diagnosis: Diagnosis) -> Decision | None:
        self.hangs.decide(diagnosis, 200.0, Trained(), progress_seen=True)
        return self.hangs.take_due()


def a_hang(node: str = "there") -> Diagnosis:
    look = a_job(*waiting(0, 1, 3, seq=7), loading(2).at(6))
    found = judge(look, look)
    return replace(found, confidence="high", severity="error", nodes=(node,), incident="one")


def test_alone_it_is_decided_and_waits_for_the_main_thread_once() -> None:
    job = Job(RESTART)
    assert job.decide(a_hang()) == RESTART
    assert job.hangs.take_due() is None
    assert job.kept == [(RESTART, Asked("hang"))]


def test_with_other_nodes_nothing_is_decided_before_they_agree() -> None:
    job = Job(RESTART, agrees=True)
    assert job.decide(a_hang()) is None
    assert job.kept == []
    (proposal,) = job.proposed
    proposal.carry_out()
    assert job.hangs.waiting() is not None
    assert job.hangs.take_due() == RESTART
    assert job.hangs.waiting() is None


@pytest.mark.parametrize("agrees", [True, False])
def test_where_another_node_is_to_blame_this_one_starts_again_without_it(*, agrees: bool) -> None:
    job = Job(ISOLATE, agrees=agrees)
    due = job.decide(a_hang())
    assert job.proposed[0].leaving == ("there",)
    if agrees:
        job.proposed[0].carry_out()
        due = job.hangs.take_due()
    assert due is not None
    assert (due.action, due.exit_code, due.reason) == ("restart", None, "there leaves")
    assert job.kept == [(due, None)]  # the policy was not asked about a restart


@pytest.mark.parametrize(
    ("name", "culprits", "action"), [("there", (1,), "isolate"), ("there", (2,), "restart")]
)
def test_a_node_leaves_by_name_and_only_with_a_culprit_of_its_own(
    name: str, culprits: tuple[int, ...], action: str
) -> None:
    """Hosts may have one name: a copy of a container, a host that lost its own."""
    job = Job(ISOLATE, name=name)
    decision = replace(ISOLATE, culprits=culprits)
    job.hangs.follow(Ruling("one", 1, "there", "because", decision, leaving=("there",)))
    due = job.hangs.take_due()
    assert due is not None
    assert due.action == action


def test_a_ruling_that_comes_after_the_workers_end_was_decided_is_void() -> None:
    job = Job(RESTART)
    job.is_ended = True
    job.hangs.follow(Ruling("one", 1, "there", "because", RESTART))
    assert job.hangs.take_due() is None
    job.hangs.follow(Ruling("one", 1, "there", "nothing"))
    assert job.kept == []


def test_workers_that_are_held_are_let_go_by_another_decision() -> None:
    job = Job(Decision("hold", "look at it", "now", "one"))
    assert job.decide(a_hang()) is None
    held = job.hangs.held
    assert held is not None
    assert "rank 0: 1, rank 1: 2" in job.said[-1]
    job.hangs.follow(Ruling("one", 1, "there", "because", RESTART))
    now: Decision | None = job.hangs.held
    assert now is None
    job.hangs.forget()
    assert job.hangs.take_due() is None


def test_once_the_workers_are_being_stopped_nothing_waits_to_be_carried_out() -> None:
    """Else the agent would be taken for stuck while it does just that."""
    job = Job(RESTART)
    job.hangs.follow(Ruling("one", 1, "there", "because", RESTART))
    assert job.hangs.waiting() is not None
    job.hangs.close()
    assert job.hangs.waiting() is None
    job.hangs.follow(Ruling("one", 1, "there", "because", RESTART))
    assert job.hangs.waiting() is None
    assert len(job.kept) == 1
    job.hangs.forget()
    job.hangs.follow(Ruling("one", 1, "there", "because", RESTART))
    assert job.hangs.take_due() == RESTART


def test_whoever_decides_tells_of_it_whoever_has_judged() -> None:
    here, there = Job(RESTART, agrees=True), Job(RESTART)
    here.decide(a_hang())
    assert here.tells == []  # another node's proposal may hold
    here.proposed[0].carry_out()
    assert here.tells == [("one", True)]
    there.hangs.follow(Ruling("one", 1, "there", "because", RESTART))
    assert there.tells == [("one", False)]
