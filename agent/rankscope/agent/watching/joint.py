"""The watch's part in incidents of the whole job, where it has several nodes.

Between the inquiry, which asks for a verdict, the session, which proposes what to do, and the protocol of the
round (``nodes``), whose thread calls back. What must be asked is asked in the watch thread; looks and
judgements are jobs of the collector's. It must not know how agents agree, nor what a ruling means.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from rankscope.agent.evidence.taker import EvidenceTaker
from rankscope.agent.nodes.driver import NodeDriver
from rankscope.agent.nodes.events import Progressed, Proposed, Suspected
from rankscope.agent.nodes.meeting import Meeting
from rankscope.agent.nodes.messages import Member, Opening, Ruling
from rankscope.agent.nodes.store_link import Store
from rankscope.agent.nodes.whole_job import Hands, WholeJob
from rankscope.agent.observing.observer import Observer
from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.joint_looks import JointLooks
from rankscope.agent.watching.questions import AskedQuestion, OpenIncident, Proposal, Question
from rankscope.agent.watching.wishes import Wishes
from rankscope.agent.workers.model import Launch
from rankscope.diag.classify import SlowLook
from rankscope.diag.model import Decision, Diagnosis, ExitFacts

_PATIENCE: Final = 90.0
"""Seconds for the job's verdict; then this agent judges what it sees itself."""
_LEAVE_TIMEOUT: Final = 0.5
_ENDING: Final = ("restart", "isolate", "fail")
_PROGRESS: Final = "node {} goes on"
_WORKS: Final = "ranks on node {} work, and are given more time"
_WELL: Final = "nothing is wrong with the job"
_ANEW: Final = "it is gone over again"
_FIRST: Final = "node {} suspects a hang, which comes first"
_PERSON_FIRST: Final = "somebody asks on node {}, who comes first"
_ANSWERED: Final = "somebody wanted to know, and does"


class JointInquiry:
    """One agent in the incidents of its job.

    Args:
        evidence: takes and judges snapshots.
        collector: does the jobs.
        post: runs a function in the watch thread.
        ended: ranks that have ended, and how.
        known: what is published of the present silence, if anything is.
        published: is told a verdict that nobody here has asked for, and for how long there was no progress.
        ruled: is told a ruling with a decision that another node has proposed.
        say: shows a line.
        make_driver: makes what runs the protocol.
    """

    def __init__(
        self,
        *,
        evidence: EvidenceTaker,
        collector: Collector,
        post: Callable[[Callable[[], None]], None],
        ended: Callable[[], dict[int, ExitFacts]],
        known: Callable[[], Diagnosis | None],
        published: Callable[[Opening, Diagnosis, float], None],
        ruled: Callable[[Ruling], None],
        say: Callable[[str], None],
        make_driver: Callable[[Member, Callable[[], Store], WholeJob], NodeDriver] = NodeDriver,
    ) -> None:
        self._make_driver = make_driver
        self._known = known
        self._looks = JointLooks(evidence, ended, self._told, collector.pause)
        self._collector = collector
        self._post = post
        self._published = published
        self._ruled = ruled
        self._say = say
        self._moves = 0
        self._answered: tuple[Diagnosis, int] | None = None
        self._meeting: Meeting | None = None
        self._driver: NodeDriver | None = None
        self._part: WholeJob | None = None
        self._forget()

    def _forget(self) -> None:
        self._asked: AskedQuestion | None = None
        self._wishes = Wishes()
        self._proposal: tuple[Proposal, float] | None = None
        self._open: OpenIncident | None = None

    # Rounds and workers (the watch thread).

    def join(self, meeting: Meeting) -> None:
        """A round begins."""
        self.leave()
        self._meeting = meeting
        hands = self._hands(meeting)
        self._part = WholeJob(meeting.me, job=meeting.job, world_size=meeting.world_size, hands=hands)
        self._driver = self._make_driver(meeting.me, meeting.connect, self._part)
        self._part.tell = self._driver.tell
        self._driver.start()

    def leave(self) -> None:
        """The round is over: whatever was open in it is void."""
        driver, self._driver = self._driver, None
        self._meeting = None
        self._forget()
        if driver is not None:
            driver.stop(_LEAVE_TIMEOUT)
        if self._part is not None:
            # Else a cycle would keep the round's store as garbage, which a forked worker must not collect.
            self._part.tell = _nobody
            self._part = None

    def begin(self, launch: Launch, observer: Observer) -> None:
        """New workers run."""
        self._answered = None
        self._looks.workers = launch, observer

    def end(self) -> None:
        """The workers are being stopped, or have ended; others may still ask how."""
        self._asked = self._proposal = None
        self._wishes.take_all()
        self._looks.give_way()
        self._looks.workers = None

    # What the watch asks.

    @property
    def is_here(self) -> bool:
        """Whether there are other agents to ask."""
        return self._driver is not None

    @property
    def is_open(self) -> bool:
        """Whether a suspicion of the job is open (any thread)."""
        return (opened := self._open) is not None and not opened.opening.asked

    @property
    def is_judged(self) -> bool:
        """Whether the open suspicion has a verdict, so that something can be proposed."""
        return self._open is not None and self._open.is_judged and not self._open.opening.asked

    @property
    def leads(self) -> bool:
        """Whether this agent does what one of them is enough for, also where it is the only one."""
        return self._meeting is None or self._meeting.me.rank == 0

    def opening(
        self,
        incident: str,
        reason: str,
        silent: float,
        *,
        overdue: bool = False,
        asked: bool = False,
        slow: SlowLook | None = None,
    ) -> Opening:
        """What this agent opens an incident with."""
        node, rank = self.named
        return Opening(incident, rank, node, reason, time.time(), round(silent, 3), overdue, asked, slow)

    def ask(self, question: Question) -> bool:
        """Ask for the verdict of the whole job; ``False`` where nobody can be asked."""
        if self._driver is None:
            return False
        self._asked = AskedQuestion(question, time.monotonic() + _PATIENCE)
        if self._open is not None and self._open.opening.asked:
            self._put_first(self._asked)
        elif self.is_judged:
            self._rule(_ANEW)  # looks are taken anew once that is closed
        else:
            self._send(self._asked)
        return True

    def wish(self, question: Question) -> bool:
        """Ask where nobody suspects anything: a suspicion goes before it, and a person before what is slow.

        The answer is told to nobody else who has not asked as well.
        """
        if self._driver is None:
            return False
        now = time.monotonic()
        self._wishes.add(question, now)
        if question.opening.slow is None and self._looks_for_what_is_slow:
            self._end_looks(_PERSON_FIRST)
        else:
            self._driver.tell(Suspected(now, question.opening))
        return True

    def give_way(self) -> None:
        """Evidence of a hang is wanted here: looks for what is slow end at once, on all nodes."""
        if self._looks_for_what_is_slow:
            self._end_looks(_FIRST)

    @property
    def _looks_for_what_is_slow(self) -> bool:
        return self._open is not None and self._open.opening.slow is not None

    def _put_first(self, asked: AskedQuestion) -> None:
        """End what was only to be known: a suspicion is sent once that is closed."""
        asked.is_sent = False
        self._end_looks(_FIRST)

    def _end_looks(self, reason: str) -> None:
        self._looks.give_way()
        if self._driver is not None:
            self._driver.tell(Progressed(time.monotonic(), reason.format(self.named[0])))

    def _told(self) -> Diagnosis | None:
        """What is known of the present silence; also where a person has asked before (any thread)."""
        answered = self._answered
        return self._known() or (answered[0] if answered and answered[1] == self._moves else None)

    def propose(self, proposal: Proposal) -> bool:
        """Propose what to do about the open incident; ``False`` where nobody need be asked."""
        if self._driver is None or not self.is_judged:
            return False
        self._proposal = proposal, time.monotonic() + _PATIENCE
        self._rule(proposal.decision.reason, decision=proposal.decision, leaving=proposal.leaving)
        return True

    def tick(self, now: float, moves: int, *, works: bool) -> None:
        """Time has passed.

        Args:
            now: ``time.monotonic()``.
            moves: signs of progress that were seen of the workers here so far.
            works: whether workers here that others wait for work, and are to be given more time.
        """
        self._moves = moves
        if self._asked is not None and now > self._asked.until:
            self._judge_here()
        for late in self._wishes.overdue(now):
            late.here()
        if self._proposal is not None and now > self._proposal[1]:
            self._act_alone()
        opened = self._open
        if self._driver is None or opened is None or opened.opening.asked:
            return
        if moves != opened.moves or (works and not opened.is_said_to_work):
            opened.moves, opened.is_said_to_work = moves, works
            self._driver.tell(Progressed(now, (_WORKS if works else _PROGRESS).format(self.named[0])))

    @property
    def named(self) -> tuple[str, int]:
        """This agent's node and group rank, as the others know it."""
        return (self._meeting.me.node, self._meeting.me.rank) if self._meeting is not None else ("", 0)

    def _send(self, asked: AskedQuestion) -> None:
        if self._driver is not None:
            asked.is_sent = True
            self._driver.tell(Suspected(time.monotonic(), asked.question.opening))

    def _rule(self, reason: str, *, decision: Decision | None = None, leaving: tuple[str, ...] = ()) -> None:
        if self._driver is None or self._meeting is None or self._open is None:
            return
        me = self._meeting.me
        ruling = Ruling(self._open.opening.incident, me.rank, me.node, reason, decision, leaving)
        self._driver.tell(Proposed(time.monotonic(), ruling))

    def give_up_asking(self) -> None:
        """What is asked cannot wait for the others: what is seen here must do."""
        self._judge_here()

    def _judge_here(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.question.here()

    def _act_alone(self) -> None:
        proposal, self._proposal = self._proposal, None
        if proposal is not None:
            proposal[0].carry_out()

    # What the protocol asks for: its own thread, or the collector's.

    def _hands(self, meeting: Meeting) -> Hands:
        def here(message: Callable[[], None]) -> None:
            """In the watch thread, unless that has gone to another round."""
            self._post(lambda: message() if self._meeting is meeting else None)

        def opened(opening: Opening) -> None:
            self._looks.opened()
            here(lambda: self._opened(opening))

        return Hands(
            opened=opened,
            put=self._collector.put,
            take=lambda which, opening: self._looks.take(meeting, which, opening),
            unseen=lambda reason: self._looks.absent(meeting, reason),
            judge=self._looks.judge,
            learned=lambda opening, found: here(lambda: self._learned(opening, found, here)),
            followed=lambda follow: here(lambda: self._followed(follow.ruling)),
            alone=lambda reason: here(lambda: self._alone(reason)),
        )

    # What the protocol tells (the watch thread).

    def _opened(self, opening: Opening) -> None:
        self._open = OpenIncident(opening, time.monotonic(), self._moves)
        asked = self._asked
        if opening.asked:
            if asked is not None:
                self._put_first(asked)
        elif asked is None or asked.question.opening.incident != opening.incident:
            self._say(
                f"{opening.node} suspects a hang ({opening.reason}): the ranks of all nodes are looked at"
            )

    def _learned(
        self, opening: Opening, found: Diagnosis, here: Callable[[Callable[[], None]], None]
    ) -> None:
        now = time.monotonic()
        self._open = self._open or OpenIncident(opening, now, self._moves)
        self._open.is_judged = True
        silent = opening.silent + now - self._open.since
        self._grant(opening, found, here)
        if opening.asked:
            if opening.slow is None:
                self._answered = (found, self._moves) if found.incident else None
            self._rule(_ANSWERED)
            return
        if found.verdict == "Healthy":
            self._rule(_WELL)
        asked = self._asked
        if asked is not None and asked.is_sent:
            self._asked = None
            tell = partial(asked.question.judged, found)
        elif found.verdict != "Healthy":
            tell = partial(self._published, opening, found, silent)
        else:
            return

        def keep() -> None:
            self._looks.keep(found)  # a slow disk must not keep the watch
            here(tell)

        self._collector.put(keep)

    def _grant(self, opening: Opening, found: Diagnosis, here: Callable[[Callable[[], None]], None]) -> None:
        """Answer who only wanted to know; what is new of it is stored where it was asked for."""
        wished = self._wishes.answered_by(opening)
        if wished is None:
            return
        if found.verdict == "Healthy":
            found = replace(found, incident=None)  # nothing of it is stored

        def keep() -> None:
            if opening.slow is not None:
                self._looks.keep_slow(found, is_told_here=opening.rank == self.named[1])
            elif opening.asked:
                self._looks.keep_asked(found)
            here(partial(wished.judged, found))

        self._collector.put(keep)

    def _followed(self, ruling: Ruling) -> None:
        self._open = None
        self._looks.give_way()
        self._looks.forget()
        proposal, self._proposal = self._proposal, None
        if proposal is not None and ruling.decision == proposal[0].decision:
            proposal[0].carry_out()
        elif ruling.decision is not None:
            self._ruled(ruling)
        elif proposal is not None:
            proposal[0].postpone()
        self._go_on_asking(ruling)
        for wished in self._wishes.take_all():
            wished.goes_on(ruling.reason)

    def _go_on_asking(self, ruling: Ruling) -> None:
        asked = self._asked
        if asked is None:
            return
        if ruling.decision is not None and ruling.decision.action in _ENDING:
            self._asked = None  # and so do the workers
        elif not asked.is_sent:
            self._send(asked)  # what was open is closed now
        elif ruling.goes_on:
            self._asked = None
            asked.question.goes_on(ruling.reason)
        else:
            self._judge_here()

    def _alone(self, reason: str) -> None:
        self._open = None
        if self._asked is not None or self._proposal is not None:
            self._say(f"{reason}: this node acts on what it sees itself")
        self._judge_here()
        for wished in self._wishes.take_all():
            wished.here()
        self._act_alone()


def _nobody(_event: object) -> None:
    """Whom a part tells that belongs to no round any more."""
