"""One agent's part in an incident of the whole job: its looks go out, and as leader it judges those of all.

Between the protocol's thread (``driver``), which must not wait, and whoever takes and judges looks, who may:
both are given, and done one after the other by ``put``. It must not know how a look is taken, what the rules
make of it, or what is done about a verdict.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from rankscope.agent.nodes.clock_offsets import clocks_within, offset_of
from rankscope.agent.nodes.events import (
    Alone,
    Event,
    Follow,
    Judge,
    Judged,
    Keep,
    Learn,
    Look,
    LookTaken,
    Missing,
)
from rankscope.agent.nodes.folding import fold_look
from rankscope.agent.nodes.keys import Which
from rankscope.agent.nodes.limits import look_bytes
from rankscope.agent.nodes.merging import Merge, clock_evidence
from rankscope.agent.nodes.messages import Member, Opening, decode
from rankscope.agent.nodes.verdicts import read_verdict, write_verdict
from rankscope.diag.model import Diagnosis, Evidence, JobSnapshot
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.unhurried import without_collector

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Hands:
    """What is done by others; ``take`` and ``judge`` may take long, the rest returns soon.

    Attributes:
        opened: is told that an incident is open, before any look at it.
        put: does a job after those that were put before, in a thread of its own.
        take: looks at the own ranks: the look, and what was seen in quick succession between it and the next.
        unseen: the look that says of every own rank why it was not observed.
        judge: the diagnosis of looks at the whole job, oldest first, whose clocks are within so many seconds
            (``None`` where that is not known), with what else is to be told of it.
        learned: is told the verdict of the whole job.
        followed: is told how the incident ends.
        alone: is told that the store does not answer.
    """

    opened: Callable[[Opening], None]
    put: Callable[[Callable[[], None]], None]
    take: Callable[[Which, Opening], tuple[JobSnapshot, ...]]
    unseen: Callable[[str], JobSnapshot]
    judge: Callable[[Opening, tuple[JobSnapshot, ...], float | None, tuple[Evidence, ...]], Diagnosis]
    learned: Callable[[Opening, Diagnosis], None]
    followed: Callable[[Follow], None]
    alone: Callable[[str], None]


class WholeJob:
    """What the protocol of one agent asks for (``driver.Owner``).

    Args:
        me: this agent.
        job: run id.
        world_size: ranks of the job.
        hands: what others do.

    Attributes:
        tell: gives the protocol an event; set before it starts.
    """

    def __init__(self, me: Member, *, job: str, world_size: int, hands: Hands) -> None:
        self._me = me
        self._job = job
        self._world_size = world_size
        self._hands = hands
        self._merge = Merge(job, world_size)
        self.tell: Callable[[Event], None] = _nobody

    def look(self, asked: Look) -> None:
        """Have a look taken."""
        if asked.which == "a":
            self._merge = Merge(self._job, self._world_size)
            self._hands.opened(asked.opening)
        self._hands.put(lambda: self._take(asked))

    def _take(self, asked: Look) -> None:
        try:
            seen, *between = self._hands.take(asked.which, asked.opening)
        except Exception as error:
            # The others must hear of it: silence would be a node that is gone.
            logger.exception("rankscope could not take a snapshot for the job's incident")
            seen, between = self._hands.unseen(f"the capture failed: {error!r}"), []
        parts = fold_look(seen, look_bytes(self._me.size), between=between)
        self.tell(LookTaken(time.monotonic(), asked.which, parts, asked.opening))

    def keep(self, kept: Keep) -> None:
        """Unpack an agent's look."""
        with without_collector():
            self._merge.keep(kept.which, kept.rank, kept.parts)

    def judge(self, asked: Judge) -> None:
        """Have the verdict found."""
        merge = self._merge
        self._hands.put(lambda: self._judge(asked, merge))

    def _judge(self, asked: Judge, merge: Merge) -> None:
        try:
            with without_collector():
                diagnosis = self._diagnosis(asked, merge)
        except Exception:
            # Another agent may lead next; what failed here may not fail there.
            logger.exception("rankscope could not judge the job's incident")
            return
        self.tell(Judged(time.monotonic(), write_verdict(diagnosis), asked.opening))

    def _diagnosis(self, asked: Judge, merge: Merge) -> Diagnosis:
        read = {rank: decode(data, Member) for rank, data in asked.rosters if data}
        members = {rank: member for rank, member in read.items() if member is not None}
        offsets = {
            rank: offset_of(asked.own_marks, marks) for rank, marks in asked.marks if rank != self._me.rank
        }
        a, b = (
            merge.job_look(which, missing=asked.missing, members=members, offsets=offsets)
            for which in ("a", "b")
        )
        told = (*silent_evidence(asked.missing, members), *clock_evidence(merge.nodes(), offsets))
        looks = (a, *merge.between(offsets), b)
        return self._hands.judge(asked.opening, looks, clocks_within(offsets.values()), told)

    def learn(self, learned: Learn) -> None:
        """Hand on the verdict; one of another version is nobody's."""
        diagnosis = read_verdict(learned.verdict)
        if diagnosis is not None:
            self._hands.learned(learned.opening, diagnosis)

    def follow(self, follow: Follow) -> None:
        """Hand on how it ends; the looks of all ranks of the job are not needed any more."""
        self._merge = Merge(self._job, self._world_size)
        self._hands.followed(follow)

    def alone(self, alone: Alone) -> None:
        """Hand on that this agent is on its own."""
        self._hands.alone(alone.reason)


def silent_evidence(missing: tuple[Missing, ...], members: dict[int, Member]) -> tuple[Evidence, ...]:
    """One piece of evidence for each node whose second look is not there."""
    told: list[Evidence] = []
    for one in missing:
        if one.which == "b":
            member = members.get(one.rank)
            name = f"node {member.node}" if member else f"the node of group rank {one.rank}"
            ranks = f": ranks {fold_ranks(member.ranks)}" if member else ""
            told.append(Evidence("node", f"could not observe {name}, because {one.reason}{ranks}"))
    return tuple(told)


def _nobody(_event: Event) -> None:
    """Until the protocol is there."""
