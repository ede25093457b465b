"""One agent's looks for incidents of the whole job, and its verdict where it leads.

It must not know what opened an incident, nor what becomes of it.
"""

from __future__ import annotations

import dataclasses
import threading
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
from rankscope.diag.model import SLOW, Diagnosis, Evidence, ExitFacts, JobSnapshot, RankSnapshot
from rankscope.diag.slow_looks import KEPT_ENTRIES

CAPTURE_TIMEOUT: Final = 20.0
"""Seconds a snapshot may take."""
_MOST_OPERATIONS: Final = 200_000
"""Of all ranks together, in looks for what is slow: each is 0.3 KB where they are judged."""
_FEWEST_OPERATIONS: Final = 64
_STOPPED: Final = "something else was looked at first"


class JointLooks:
    """Looks at the own ranks, and judges those of all.

    Args:
        evidence: takes and judges snapshots.
        ended: ranks that have ended, and how.
        known: what is told of the present silence, if anything is.
        pause: waits so many seconds, unless something urgent comes or the event is set; answers whether to
            stop.

    Attributes:
        workers: those that run, ``None`` where none do.
    """

    def __init__(
        self,
        evidence: EvidenceTaker,
        ended: Callable[[], dict[int, ExitFacts]],
        known: Callable[[], Diagnosis | None],
        pause: Callable[[float, threading.Event], bool],
    ) -> None:
        self._evidence = evidence
        self._pause = pause
        self._give_way = threading.Event()
        self._ended = ended
        self._known = known
        self.workers: tuple[Launch, Observer] | None = None
        self._looks: dict[Which, JobSnapshot] = {}
        self._judged: Diagnosis | None = None

    def give_way(self) -> None:
        """Other looks come first: one that lasts ends at once (any thread)."""
        self._give_way.set()

    def opened(self) -> None:
        """A look is about to be asked for."""
        self._give_way.clear()

    def take(self, meeting: Meeting, which: Which, opening: Opening) -> tuple[JobSnapshot, ...]:
        """Look at the ranks of this node; between the two looks for what is slow there are more."""
        if which == "a":
            self._looks = {}
        workers = self.workers
        if workers is None:
            return (self.absent(meeting, "no workers run on it"),)
        if opening.slow is not None:
            return self._take_slow(meeting, which, *workers)
        snapshot = self._evidence.snapshot(*workers, timeout=CAPTURE_TIMEOUT, exits=self._ended())
        if which == "b":
            snapshot = self._evidence.closer(snapshot)
        self._looks[which] = snapshot
        return (snapshot,)

    def _take_slow(
        self, meeting: Meeting, which: Which, launch: Launch, observer: Observer
    ) -> tuple[JobSnapshot, ...]:
        """All of them at once; the last one is told as the second look."""
        if which == "b":
            return (self._looks.get("b") or self.absent(meeting, _STOPPED),)
        looks = self._evidence.slow_looks(
            launch,
            observer,
            pause=lambda seconds: self._pause(seconds, self._give_way),
            kept_entries=min(KEPT_ENTRIES, max(_FEWEST_OPERATIONS, _MOST_OPERATIONS // meeting.world_size)),
        )
        if not looks:
            return (self.absent(meeting, _STOPPED),)
        self._looks = {"a": looks[0], "b": looks[-1]}
        return looks[:-1]

    def absent(self, meeting: Meeting, reason: str) -> JobSnapshot:
        """The look that says of each rank here why it was not observed, and how it ended if it did."""
        exits, node, now = self._ended(), meeting.me.node, time.time()
        ranks = tuple(
            RankSnapshot(rank, node=node, time=now, observed=False, reason=reason, exit=exits.get(rank))
            for rank in meeting.me.ranks
        )
        return JobSnapshot(meeting.job, now, meeting.world_size, ranks)

    def judge(
        self,
        opening: Opening,
        looks: tuple[JobSnapshot, ...],
        clocks_within: float | None,
        told: tuple[Evidence, ...],
    ) -> Diagnosis:
        """The diagnosis of looks at the whole job; stored with them unless all is well."""

        def with_told(found: Diagnosis) -> Diagnosis:
            return msgspec.structs.replace(found, evidence=(*found.evidence, *told))

        silent = opening.silent or None
        incident = Incident(opening.incident, looks[0], looks[-1], silent, overdue=opening.overdue)
        if opening.slow is not None:
            slow = dataclasses.replace(opening.slow, clocks_within=clocks_within)
            self._judged = self._evidence.judge_slow(opening.incident, looks, slow, called=with_told)
        elif opening.asked:
            self._judged = self._evidence.judge_asked(incident, known=self._known(), called=with_told)
        else:
            self._judged = self._evidence.judge(incident, called=with_told)
        return self._judged

    def forget(self) -> None:
        """The incident is over: what was seen is not needed any more."""
        self._looks = {}

    def keep_asked(self, found: Diagnosis) -> None:
        """Store what was asked for here, with the own looks, where that is not done yet."""
        self._evidence.adopt_asked(found, self._looks.get("a"), self._looks.get("b"))

    def keep_slow(self, found: Diagnosis, *, is_told_here: bool) -> None:
        """Store what is slow, if anything is; of all agents that asked, one sends the notices."""
        if found.verdict in SLOW:
            self.keep_asked(found)
            self._evidence.tells_of(found, is_here=is_told_here)

    def keep(self, found: Diagnosis) -> None:
        """Store the job's verdict with the own looks, unless it is this agent's own, or all is well."""
        own = self._judged
        if found.verdict == "Healthy":
            return
        # The verdict may have been cut to size on its way.
        if own is None or (own.incident, own.time) != (found.incident, found.time):
            self._evidence.adopt(found, self._looks.get("a"), self._looks.get("b"))
