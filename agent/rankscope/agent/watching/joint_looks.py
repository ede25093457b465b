"""One agent's looks for incidents of the whole job, and its verdict where it leads.

It must not know what opened an incident, nor what becomes of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from rankscope.agent.evidence.taker import EvidenceTaker, Incident
from rankscope.agent.nodes.keys import Which
from rankscope.agent.nodes.meeting import Meeting
from rankscope.agent.nodes.messages import Opening
from rankscope.agent.observing.observer import Observer
from rankscope.agent.workers.model import Launch
from rankscope.diag.model import Diagnosis, Evidence, ExitFacts, JobSnapshot, RankSnapshot

CAPTURE_TIMEOUT: Final = 20.0
"""Seconds a snapshot may take."""


class JointLooks:
    """Looks at the own ranks, and judges those of all.

    Args:
        evidence: takes and judges snapshots.
        ended: ranks that have ended, and how.
        known: what is told of the present silence, if anything is.

    Attributes:
        workers: those that run, ``None`` where none do.
    """

    def __init__(
        self,
        evidence: EvidenceTaker,
        ended: Callable[[], dict[int, ExitFacts]],
        known: Callable[[], Diagnosis | None],
    ) -> None:
        self._evidence = evidence
        self._ended = ended
        self._known = known
        self.workers: tuple[Launch, Observer] | None = None
        self._looks: dict[Which, JobSnapshot] = {}
        self._judged: Diagnosis | None = None

    def take(self, meeting: Meeting, which: Which) -> JobSnapshot:
        """Look at the ranks of this node."""
        if which == "a":
            self._looks = {}
        workers = self.workers
        if workers is None:
            return self.absent(meeting, "no workers run on it")
        snapshot = self._evidence.snapshot(*workers, timeout=CAPTURE_TIMEOUT, exits=self._ended())
        if which == "b":
            snapshot = self._evidence.closer(snapshot)
        self._looks[which] = snapshot
        return snapshot

    def absent(self, meeting: Meeting, reason: str) -> JobSnapshot:
        """The look that says of each rank here why it was not observed, and how it ended if it did."""
        exits, node, now = self._ended(), meeting.me.node, time.time()
        ranks = tuple(
            RankSnapshot(rank, node=node, time=now, observed=False, reason=reason, exit=exits.get(rank))
            for rank in meeting.me.ranks
        )
        return JobSnapshot(meeting.job, now, meeting.world_size, ranks)

    def judge(
        self, opening: Opening, a: JobSnapshot, b: JobSnapshot, told: tuple[Evidence, ...]
    ) -> Diagnosis:
        """The diagnosis of two looks at the whole job; stored with them unless all is well."""

        def with_told(found: Diagnosis) -> Diagnosis:
            return msgspec.structs.replace(found, evidence=(*found.evidence, *told))

        silent = opening.silent or None
        incident = Incident(opening.incident, a, b, silent, overdue=opening.overdue)
        if opening.asked:
            self._judged = self._evidence.judge_asked(incident, known=self._known(), called=with_told)
        else:
            self._judged = self._evidence.judge(incident, called=with_told)
        return self._judged

    def forget(self) -> None:
        """The incident is over: what was seen is not needed any more."""
        self._looks = {}

    def keep_asked(self, found: Diagnosis) -> None:
        """Store what a person has asked for here, with the own looks, where that is not done yet."""
        self._evidence.adopt_asked(found, self._looks.get("a"), self._looks.get("b"))

    def keep(self, found: Diagnosis) -> None:
        """Store the job's verdict with the own looks, unless it is this agent's own, or all is well."""
        own = self._judged
        if found.verdict == "Healthy":
            return
        # The verdict may have been cut to size on its way.
        if own is None or (own.incident, own.time) != (found.incident, found.time):
            self._evidence.adopt(found, self._looks.get("a"), self._looks.get("b"))
