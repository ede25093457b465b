"""Where what is known of all ranks comes from: this node's agent, the others, and what they have stored.

Of two sources that know a rank the first one counts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from rankscope.agent.health.api import questions
from rankscope.agent.health.api.answers import RankEntry, RanksAnswer, SuspicionNow
from rankscope.agent.health.api.reading import Reading
from rankscope.agent.health.api.refusal import NoAnswerError
from rankscope.agent.health.status import PageView, WorkerHealth
from rankscope.diag.store.events import iso_time

_NS: Final = 1e-9
_RATE_SECONDS: Final = 10.0
_ELSEWHERE_SECONDS: Final = 5.0
"""For which what was read of other nodes is used again: they say no more than who was started."""


class RankSource(Protocol):
    """Knows some of the ranks."""

    @property
    def world_size(self) -> int:
        """How many ranks the job has, as far as it knows; 0 when it cannot tell."""
        ...

    async def ranks(self) -> Sequence[RankEntry]:
        """What it knows now; empty when it cannot tell. Never raises."""
        ...


@dataclass(slots=True)
class _Steps:
    """Steps of one process: when they were told (ns), and how many."""

    told: deque[tuple[int, int]] = field(default_factory=lambda: deque[tuple[int, int]](maxlen=64))


class ThisNode:
    """The ranks of the agent that this server belongs to, from its status page."""

    def __init__(self, view: Callable[[], PageView | None]) -> None:
        self.world_size = 0
        self._view = view
        self._steps: dict[tuple[int, int], _Steps] = {}

    async def ranks(self) -> Sequence[RankEntry]:
        """The workers as the agent last published them."""
        view = self._view()
        if view is None or view.status is None:
            return ()
        status = view.status
        late = max(0.0, (time.monotonic_ns() - view.published_ns) * _NS)
        entries = [self._entry(one, status.node, late, view.published_ns) for one in status.workers]
        known = {(one.rank, one.pid) for one in status.workers}
        self._steps = {key: past for key, past in self._steps.items() if key in known}
        return entries

    def _entry(self, one: WorkerHealth, node: str, late: float, published_ns: int) -> RankEntry:
        since = one.seconds_since_progress
        return RankEntry(
            rank=one.rank,
            node=node,
            local_rank=one.local_rank,
            pid=one.pid,
            state=one.state,
            step=one.step,
            seconds_since_progress=None if since is None else round(since + late, 3),
            steps_per_second=self._rate(one, published_ns),
            where=one.where,
        )

    def _rate(self, one: WorkerHealth, published_ns: int) -> float | None:
        if one.step is None:
            return None
        told = self._steps.setdefault((one.rank, one.pid), _Steps()).told
        if not told or published_ns > told[-1][0]:
            told.append((published_ns, one.step))
        while len(told) > 1 and (told[-1][0] - told[0][0]) * _NS > _RATE_SECONDS:
            told.popleft()
        seconds = (told[-1][0] - told[0][0]) * _NS
        return round(max(0, told[-1][1] - told[0][1]) / seconds, 3) if seconds >= 1.0 else None


class StoredElsewhere:
    """The ranks of other nodes, as their agents have stored who they started."""

    def __init__(self, reading: Reading, node: str) -> None:
        self._reading = reading
        self._node = node
        self._kept = questions.Others()
        self._until = 0.0

    @property
    def world_size(self) -> int:
        """As the agents have stored it."""
        return self._kept.world_size

    async def ranks(self) -> Sequence[RankEntry]:
        """What is stored; what was known before when it cannot be read."""
        if time.monotonic() < self._until:
            return self._kept.ranks
        try:
            data = await self._reading.ask(questions.ReadOthers(self._node))
            self._kept = msgspec.json.decode(data, type=questions.Others)
        except (NoAnswerError, msgspec.DecodeError):
            pass
        self._until = time.monotonic() + _ELSEWHERE_SECONDS
        return self._kept.ranks


class AllRanks:
    """All ranks of the job.

    Args:
        view: the status page now, ``None`` once the agent has ended.
        sources: who knows ranks, the best one first: that of this node.
    """

    def __init__(self, view: Callable[[], PageView | None], sources: Sequence[RankSource]) -> None:
        self._view = view
        self._sources = sources

    async def answer(self, *, of_node: bool = False) -> RanksAnswer:
        """What all of them know, as one answer.

        Args:
            of_node: whether only this node's ranks are wanted.
        """
        found: dict[int, RankEntry] = {}
        for source in self._sources[:1] if of_node else self._sources:
            for entry in await source.ranks():
                found.setdefault(entry.rank, entry)
        view = self._view()
        status = view.status if view is not None else None
        suspected = status.suspected if status is not None else None
        return RanksAnswer(
            job=status.job if status is not None else "",
            time=iso_time(time.time()),
            phase=view.phase.name if view is not None else "ended",
            world_size=max(max(found, default=-1) + 1, *(source.world_size for source in self._sources)),
            restart_count=status.restart_count if status is not None else 0,
            suspected=SuspicionNow(suspected.reason, suspected.ranks) if suspected is not None else None,
            ranks=tuple(found[rank] for rank in sorted(found)),
        )
