"""Looks of many nodes become the look of one job, which the rules judge. Pure.

A node that did not answer is in it: each of its ranks with the reason why it was not observed, and no stack.
Times are the leader's: what is told of moments on other hosts is shifted by how far their clocks are apart.
It must not know how looks travel, nor what the rules make of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankscope.agent.nodes.clock_offsets import Offset
from rankscope.agent.nodes.events import Missing
from rankscope.agent.nodes.folding import Known, unfold
from rankscope.agent.nodes.keys import Which
from rankscope.agent.nodes.messages import Member
from rankscope.diag.model import Evidence, FlightRecord, JobSnapshot, RankSnapshot

_NS: Final = 1_000_000_000
_WORTH_SAYING: Final = 0.1
"""Seconds that two clocks may be apart before it is said: less changes no order that the rules look at."""


@dataclass(slots=True)
class Merge:
    """The looks of one incident, as they arrive.

    Attributes:
        job: run id.
        world_size: ranks of the job.
    """

    job: str
    world_size: int
    _known: Known = field(default_factory=Known)
    _looks: dict[tuple[Which, int], JobSnapshot] = field(default_factory=dict[tuple[Which, int], JobSnapshot])
    _between: dict[int, tuple[JobSnapshot, ...]] = field(default_factory=dict[int, tuple[JobSnapshot, ...]])
    _unread: list[Missing] = field(default_factory=list[Missing])

    def keep(self, which: Which, rank: int, parts: Sequence[bytes]) -> None:
        """Take the look of the agent of a group rank."""
        read = unfold(parts, self._known)
        if not read:
            self._unread.append(Missing(which, rank, "its look cannot be read: another version, or damaged"))
            return
        self._looks[which, rank] = read[0]
        if which == "a":
            self._between[rank] = read[1:]

    def nodes(self) -> dict[int, str]:
        """Names of the nodes that answered, by group rank."""
        return {rank: one.node for (_, rank), look in self._looks.items() for one in look.ranks[:1]}

    def job_look(
        self,
        which: Which,
        *,
        missing: Iterable[Missing],
        members: Mapping[int, Member],
        offsets: Mapping[int, Offset | None],
    ) -> JobSnapshot:
        """The job's first or second look.

        Args:
            which: of the two.
            missing: who did not answer, and why.
            members: what is known of those agents, by group rank.
            offsets: how far clocks are apart from the leader's, by group rank.
        """
        mine = {rank: look for (one, rank), look in self._looks.items() if one == which}
        time, found = _at_one_time(mine, offsets)
        lost = [one for one in (*missing, *self._unread) if one.which == which]
        for absent in lost:
            member = members.get(absent.rank)
            if member is not None:
                for rank in member.ranks:
                    found.setdefault(rank, _not_seen(rank, member.node, absent.reason, time))
        unnamed = "; ".join(sorted({one.reason for one in lost if one.rank not in members}))
        for rank in range(self.world_size):
            found.setdefault(rank, _not_seen(rank, "", unnamed or "no agent told of it", time))
        return JobSnapshot(self.job, time, self.world_size, tuple(found[rank] for rank in sorted(found)))

    def between(self, offsets: Mapping[int, Offset | None]) -> tuple[JobSnapshot, ...]:
        """The looks between the two, oldest first; of a node that was too busy for all, fewer.

        Args:
            offsets: as in ``job_look``.
        """
        most = max(map(len, self._between.values()), default=0)
        looks: list[JobSnapshot] = []
        for at in range(most):
            mine = {rank: one[at] for rank, one in self._between.items() if at < len(one)}
            time, found = _at_one_time(mine, offsets)
            ranks = tuple(found[rank] for rank in sorted(found))
            looks.append(JobSnapshot(self.job, time, self.world_size, ranks))
        return tuple(looks)


def _at_one_time(
    looks: Mapping[int, JobSnapshot], offsets: Mapping[int, Offset | None]
) -> tuple[float, dict[int, RankSnapshot]]:
    """When the newest look was by the leader's clock, and all ranks as of then."""
    shifts = {rank: offset.seconds for rank, offset in offsets.items() if offset is not None}
    time = max((look.time + shifts.get(rank, 0.0) for rank, look in looks.items()), default=0.0)
    found: dict[int, RankSnapshot] = {}
    for rank, look in looks.items():
        later = time - (look.time + shifts.get(rank, 0.0))
        for one in look.ranks:
            found[one.rank] = aligned(one, shift=shifts.get(rank, 0.0), later=later)
    return time, found


def aligned(rank: RankSnapshot, *, shift: float, later: float) -> RankSnapshot:
    """A rank's snapshot by the leader's clock.

    Args:
        rank: as its own node saw it.
        shift: added to its node's clock, seconds.
        later: how much later the job's look is than this one, seconds: ages grow by it.
    """
    end = rank.exit
    if end is not None and end.seconds_ago is not None and later:
        end = msgspec.structs.replace(end, seconds_ago=end.seconds_ago + later)
    if not shift:
        return rank if end is rank.exit else msgspec.structs.replace(rank, exit=end)
    record = rank.record and _shifted(rank.record, round(shift * _NS))
    return msgspec.structs.replace(rank, time=rank.time + shift, exit=end, record=record)


def clock_evidence(members: Mapping[int, str], offsets: Mapping[int, Offset | None]) -> tuple[Evidence, ...]:
    """What is told of the clocks: those that are apart, and those that could not be compared.

    Args:
        members: node names, by group rank.
        offsets: how far clocks are apart from the leader's, by group rank.
    """
    told: list[Evidence] = []
    for rank, offset in sorted(offsets.items()):
        node = members.get(rank, f"of group rank {rank}")
        if offset is None:
            told.append(
                Evidence("clock", f"the clock of node {node} could not be compared with the leader's")
            )
        elif abs(offset.seconds) > offset.error + _WORTH_SAYING:
            fact = f"the clock of node {node} is {-offset.seconds:+.3f} s off the leader's"
            told.append(Evidence("clock", f"{fact}, within {offset.error:.3f} s; its times are corrected"))
    return tuple(told)


def _shifted(record: FlightRecord, by_ns: int) -> FlightRecord:
    entries = tuple(
        msgspec.structs.replace(
            one,
            created_ns=_later(one.created_ns, by_ns),
            started_ns=_later(one.started_ns, by_ns),
            completed_ns=_later(one.completed_ns, by_ns),
        )
        for one in record.entries
    )
    return msgspec.structs.replace(record, entries=entries)


def _later(moment: int, by_ns: int) -> int:
    return moment + by_ns if moment else 0  # 0 is not known


def _not_seen(rank: int, node: str, reason: str, time: float) -> RankSnapshot:
    where = f"could not observe node {node}" if node else "could not observe its node"
    return RankSnapshot(rank=rank, node=node, time=time, observed=False, reason=f"{where}, because {reason}")
