"""The inquiry into one silence: its looks, its verdict, and what is told of them. Lives in the watch thread.

Looks and judgements are jobs of the collector's thread, whose answers come back through ``post``. It does not
decide when to look (``watchdog.detector``) nor what a look means (``diag.classify``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from rankscope.agent.evidence.looker import Samples
from rankscope.agent.evidence.taker import EvidenceTaker, Incident
from rankscope.agent.nodes.messages import Opening
from rankscope.agent.observing.observer import Observer
from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.joint import JointInquiry
from rankscope.agent.watching.joint_looks import CAPTURE_TIMEOUT
from rankscope.agent.watching.questions import Question
from rankscope.agent.watching.reporter import Reporter
from rankscope.agent.workers.model import Launch
from rankscope.diag.model import Diagnosis, ExitFacts, JobSnapshot
from rankscope.watchdog.observations import (
    ActDue,
    Captured,
    Cleared,
    Confirmed,
    Diagnosed,
    Event,
    JudgedAgain,
    JudgedForAll,
    Postponed,
    Recovered,
    Sampled,
    Suspected,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")
Look = Literal["a", "b", "sampled"]
_LASTING: Final = 2.0
"""Seconds that workers must go on for before a recovery is told."""
_HANGS: Final = ("RankCommHang", "RankNonCommHang", "Exited")


@dataclass(frozen=True, slots=True)
class _GoesOn:
    """What was published seems to be over; it is told at a moment, monotonic seconds."""

    diagnosis: Diagnosis
    recovered: Recovered
    told_at: float


class Inquiry:
    """What is known of the present silence.

    Args:
        evidence: takes and judges snapshots.
        reporter: is told.
        collector: does the jobs.
        joint: asks the other nodes of the job, where there are some.
        post: runs a function in the watch thread.
        tell: gives an event to the detector, and carries out what it says.
        new_incident: makes an incident's id.
        ended: ranks that have ended, and how.

    Attributes:
        incident: id of the incident, ``""`` for none.
        judging: whether a verdict is being worked out here; asking whether that of the whole job is awaited.
    """

    def __init__(
        self,
        *,
        evidence: EvidenceTaker,
        reporter: Reporter,
        collector: Collector,
        joint: JointInquiry,
        post: Callable[[Callable[[], None]], None],
        tell: Callable[[Event], None],
        new_incident: Callable[[], str],
        ended: Callable[[], dict[int, ExitFacts]],
    ) -> None:
        self._evidence = evidence
        self._reporter = reporter
        self._collector = collector
        self._joint = joint
        self._post = post
        self._tell = tell
        self._new_incident = new_incident
        self._ended = ended
        self._cycle = 0
        self._workers: tuple[Launch, Observer] | None = None
        self._forget()

    def _forget(self) -> None:
        self.incident = ""
        self.judging = self.asking = self._stored = False
        self._due: ActDue | None = None
        self._snapshots: dict[Look, JobSnapshot] = {}
        self._samples = Samples()
        self._diagnosis: Diagnosis | None = None
        self._recovered: Recovered | None = None
        self._recovering: _GoesOn | None = None

    def begin(self, launch: Launch, observer: Observer) -> None:
        """New workers run: all before is void."""
        self._cycle += 1
        self._workers = launch, observer
        self._forget()

    def end(self) -> None:
        """The workers are being stopped; answers that are still to come are void. What was seen stays."""
        ends = self._ended().values()
        if self._workers is not None and [end.code for end in ends] == [0] * len(self._workers[0].workers):
            self._tell_recovery()  # they are done
        self._recovering = None
        self._cycle += 1
        self._workers = None
        self.judging = self.asking = False

    @property
    def first_look(self) -> JobSnapshot | None:
        """The snapshot that opened the suspicion, if it was taken."""
        return self._snapshots.get("a")

    @property
    def stored_incident(self) -> str:
        """Id of the incident if it has evidence on disk, else ``""``."""
        return self.incident if self._stored else ""

    @property
    def published(self) -> Diagnosis | None:
        """What was found of the present silence, ``None`` when nothing was."""
        return self._diagnosis

    # What the detector asks for.

    def suspected(self, suspected: Suspected) -> None:
        """A suspicion is opened, or the same silence gone over again."""
        if not suspected.again or not self.incident:
            self._diagnosis = self._recovered = None
            self._stored = False
            self.incident = self._new_incident()
        first = self._snapshots.get("sampled") if suspected.sampled else None
        self._snapshots = {"a": first} if first is not None else {}
        if not suspected.sampled:
            self._samples = Samples()
        self._reporter.on_suspected(self.incident, suspected)

    def cleared(self, cleared: Cleared) -> None:
        """The suspicion is dropped."""
        self._reporter.on_cleared(self.incident, cleared)

    def look(self, which: Look, *, samples_of: tuple[int, ...]) -> None:
        """Take a snapshot, and look at some working ranks in quick succession."""
        if self._workers is None:
            return
        launch, observer = self._workers
        cycle = self._cycle

        def take() -> None:
            samples = Samples()
            try:
                exits = self._ended()
                snapshot = self._evidence.snapshot(launch, observer, timeout=CAPTURE_TIMEOUT, exits=exits)
                if which == "b":
                    snapshot = self._evidence.closer(snapshot)
                communicating = self._evidence.communicating(snapshot)
                if samples_of:
                    pause = self._collector.pause
                    samples = self._evidence.samples(launch, observer, samples_of, pause=pause)
            except Exception as error:
                # The detector must hear of it, or it would wait for this snapshot for ever.
                logger.exception("rankscope could not take a snapshot")
                snapshot = self._evidence.unseen(launch, f"the capture failed: {error!r}")
                communicating = frozenset()
            self._answer(cycle, lambda: self._taken(which, snapshot, communicating, samples))

        self._collector.put(take)

    def confirmed(self, confirmed: Confirmed) -> None:
        """Nothing moved: work out the verdict."""
        first = self._snapshots.get("a")
        if first is None:
            return
        incident = Incident(
            self.incident,
            first,
            self._snapshots.get("b"),
            time.monotonic() - confirmed.since,
            samples=self._samples.looks,
            overdue=confirmed.overdue,
            kept=confirmed.clock == "timer",
        )
        self.asking = True
        question = Question(
            self._joint.opening(
                self.incident, confirmed.reason, incident.silent_seconds or 0.0, overdue=confirmed.overdue
            ),
            judged=self._in_this_cycle(lambda found: self._judged(found, confirmed)),
            goes_on=self._in_this_cycle(lambda reason: self._goes_on(reason, confirmed)),
            here=lambda: self._judge_here(incident, confirmed),
        )
        # A worker's own timer asks for a signal to that worker: evidence of it is enough, and must be quick.
        if confirmed.clock == "timer" or not self._joint.ask(question):
            self._judge_here(incident, confirmed)

    def _in_this_cycle(self, message: Callable[[T], None]) -> Callable[[T], None]:
        cycle = self._cycle
        return lambda value: message(value) if cycle == self._cycle else None

    def _goes_on(self, reason: str, confirmed: Confirmed) -> None:
        """The job goes on on another node: this silence is none of a hang's."""
        self.asking = False
        self._due = None
        self._reporter.on_cleared(self.incident, Cleared(reason, time.monotonic() - confirmed.since))
        self._tell(Diagnosed(hang=False, confidence="high", healthy=True))

    def _judge_here(self, incident: Incident, confirmed: Confirmed) -> None:
        cycle = self._cycle
        self.asking, self.judging = False, True

        def judge() -> None:
            try:
                diagnosis = self._evidence.judge(incident)
            except Exception as error:  # a job's edge; the detector must hear of it
                logger.exception("rankscope could not diagnose an incident")
                diagnosis = self._evidence.not_judged(incident, f"the diagnosis failed: {error!r}")
            self._answer(cycle, lambda: self._judged(diagnosis, confirmed))

        self._collector.put(judge)

    def recovered(self, recovered: Recovered) -> None:
        """What was published is over, if that lasts: a rank that dies ends the wait of the others too."""
        if self._diagnosis is None:
            # The diagnosis is still being worked out: it is told first.
            self._recovered = recovered
        else:
            self._recovering = _GoesOn(self._diagnosis, recovered, time.monotonic() + _LASTING)
        self._diagnosis = None

    def tick(self, now: float) -> None:
        """Tell of a recovery that has lasted."""
        if self._recovering is not None and now >= self._recovering.told_at:
            self._tell_recovery()

    def _tell_recovery(self) -> None:
        told, self._recovering = self._recovering, None
        if told is not None:
            self._reporter.on_recovered(told.diagnosis, told.recovered)

    def act_due(self, due: ActDue) -> None:
        """It has lasted long enough to be acted on: by a verdict of now, where the job has other nodes."""
        if self.asking:
            self._due = due  # once there is a verdict
            return
        if self._diagnosis is None:
            return
        if self._joint.is_here and not self._joint.is_judged:
            question = Question(
                self._joint.opening(self.incident, f"no progress for {due.gap:.0f} s", due.gap),
                judged=self._in_this_cycle(self._judged_again),
                goes_on=self._in_this_cycle(lambda _reason: self._tell(Postponed())),
                here=lambda: self._report_due(due),
            )
            if self._joint.ask(question):
                return
        self._report_due(due)

    def _judged_again(self, diagnosis: Diagnosis) -> None:
        if diagnosis.verdict == "Healthy":
            self._tell(Postponed())
            return
        self._diagnosis = diagnosis
        self._tell(JudgedAgain(hang=diagnosis.verdict in _HANGS, confidence=diagnosis.confidence))

    def _report_due(self, due: ActDue) -> None:
        if self._diagnosis is not None:
            seen = any(_shows_progress(snapshot) for snapshot in self._snapshots.values())
            self._reporter.on_act_due(self._diagnosis, due, progress_seen=seen)

    def judged_for_all(self, opening: Opening, diagnosis: Diagnosis, *, silent: float) -> None:
        """The whole job was judged because of what another node saw."""
        before = self._diagnosis
        if self._workers is not None:  # else they are done, and it is told for the others
            self.incident = opening.incident
            self._diagnosis, self._stored, self._recovered = diagnosis, True, None
            self._tell(JudgedForAll(hang=diagnosis.verdict in _HANGS, confidence=diagnosis.confidence))
        if not _says_the_same(before, diagnosis):
            reason = f"{opening.reason} (on {opening.node})"
            since = time.monotonic() - silent
            self._reporter.on_diagnosed(diagnosis, Confirmed(reason, since, (), (), "none"))

    # Answers of the collector.

    def _answer(self, cycle: int, message: Callable[[], None]) -> None:
        def deliver() -> None:
            if cycle == self._cycle:
                message()

        self._post(deliver)

    def _taken(
        self, which: Look, snapshot: JobSnapshot, communicating: frozenset[int], samples: Samples
    ) -> None:
        self._snapshots[which] = snapshot
        if samples.looks:
            self._samples = samples
        now = time.monotonic()
        if which == "sampled":
            self._tell(Sampled(now, communicating, samples.loops, samples.library_loops))
        else:
            self._tell(Captured(now, which, communicating))

    def _judged(self, diagnosis: Diagnosis, confirmed: Confirmed) -> None:
        self.judging = self.asking = False
        healthy = diagnosis.verdict == "Healthy"
        self._stored = not healthy or confirmed.clock == "timer"
        before = self._diagnosis
        if not healthy:
            self._diagnosis = diagnosis
            self.incident = diagnosis.incident or self.incident  # another node's, where both suspected it
        hang = diagnosis.verdict in _HANGS
        self._tell(Diagnosed(hang=hang, confidence=diagnosis.confidence, healthy=healthy))
        if not _says_the_same(before, diagnosis):
            self._reporter.on_diagnosed(diagnosis, confirmed)
        recovered, self._recovered = self._recovered, None
        if recovered is not None and not healthy:
            self.recovered(recovered)
        due, self._due = self._due, None
        if due is not None and not healthy and recovered is None:
            self._report_due(due)


def _says_the_same(before: Diagnosis | None, now: Diagnosis) -> bool:
    """Whether a second look at the same incident came to the same end."""
    fields = ("incident", "verdict", "kind", "culprits", "severity")
    return before is not None and all(getattr(before, name) == getattr(now, name) for name in fields)


def _shows_progress(snapshot: JobSnapshot) -> bool:
    """Whether any rank ever made a step or completed a collective."""
    known = (rank.progress for rank in snapshot.ranks if rank.progress)
    return any(
        progress.step > 0
        or progress.user_step is not None
        or any(group.completed > 0 for group in progress.groups)
        for progress in known
    )
