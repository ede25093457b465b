"""Small builders of slow jobs: records of a rhythm, looks at stacks, connections between ranks."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from tests.classify_factory import ARank, a_job, a_rank, user
from tests.records_factory import START

from rankscope.diag.classify import Slowdown, SlowLook, diagnose, load_catalogue
from rankscope.diag.classify.lateness import Lateness, lateness
from rankscope.diag.model import Collective, Connection, Diagnosis, FlightRecord, JobSnapshot, RecordedGroup

SECOND = 1_000_000_000
KEY = ("0", 1)
Calls = Mapping[int, Mapping[int, Collective]]
Draws = Callable[[random.Random], float]
"""Seconds that a rank computes in a step."""


def steady(chance: random.Random) -> float:
    """A tenth of a second, more or less."""
    return 0.1 * chance.uniform(0.95, 1.05)


@dataclass(frozen=True)
class Rhythm:
    """How the ranks of a job come to its collectives.

    Attributes:
        ranks: how many.
        hosts: over how many they are spread, evenly; their clocks differ.
        steps: how many.
        own: seconds of computing in a step.
        buckets: collectives a step.
        in_flight: whether the next bucket is called before the last is over, as DDP does.
        spread: whether the buckets come all along the step, and not in a row at its end.
        late: extra seconds of a step by rank, from step ``since`` on.
        once: extra seconds of rank 0 by step.
        one_clock: whether the times of all hosts are by one clock.
    """

    ranks: int = 4
    hosts: int = 1
    steps: int = 100
    own: Draws = steady
    buckets: int = 1
    in_flight: bool = False
    spread: bool = False
    late: Mapping[int, float] = field(default_factory=dict[int, float])
    since: int = 0
    once: Mapping[int, float] = field(default_factory=dict[int, float])
    one_clock: bool = False

    def node(self, rank: int) -> str:
        """The host of a rank."""
        return f"host-{rank * self.hosts // self.ranks}"

    @property
    def nodes(self) -> dict[int, str]:
        """The host of every rank."""
        return {rank: self.node(rank) for rank in range(self.ranks)}

    def calls(self, seed: int = 1) -> Calls:
        """What the flight records of all ranks say."""
        chance = random.Random(seed)
        apart = 0 if self.one_clock else 3600
        ahead = {self.node(rank): int(chance.uniform(-apart, apart) * SECOND) for rank in range(self.ranks)}
        now, number = [0.0] * self.ranks, 0
        found: dict[int, dict[int, Collective]] = {rank: {} for rank in range(self.ranks)}
        for step in range(self.steps):
            own = [self._own(chance, rank, step) for rank in range(self.ranks)]
            for bucket in range(self.buckets):
                number += 1
                for rank, seconds in enumerate(own):
                    now[rank] += seconds / self.buckets if self.spread else seconds * (bucket == 0) + 0.0005
                    at = now[rank] + chance.uniform(0, 0.0003)
                    clock = START + int(at * SECOND) + ahead[self.node(rank)]
                    found[rank][number] = Collective(
                        "0",
                        number,
                        "all_reduce",
                        is_completed=True,
                        input_sizes=((64 + bucket,),),
                        created_ns=clock,
                    )
                if not self.in_flight or bucket == self.buckets - 1:
                    now = [max(now) + 0.003] * self.ranks
        return found

    def _own(self, chance: random.Random, rank: int, step: int) -> float:
        seconds = self.own(chance)
        if step >= self.since:
            seconds += self.late.get(rank, 0.0)
        return seconds + (self.once.get(step, 0.0) if rank == 0 else 0.0)

    def lateness(self, seed: int = 1) -> Lateness | None:
        """Who is late."""
        return lateness(KEY, self.calls(seed), self.nodes)


def records_of(rhythm: Rhythm, seed: int = 1) -> list[FlightRecord]:
    """One record a rank."""
    calls = rhythm.calls(seed)
    members = tuple(range(rhythm.ranks))
    found: list[FlightRecord] = []
    for rank in members:
        newest = max(calls[rank])
        group = RecordedGroup("0", "default_pg", members, newest, -1, newest)
        found.append(FlightRecord((group,), tuple(calls[rank].values()), True, "2.10"))
    return found


def looks_of(
    *ranks: Sequence[ARank], seconds: float = 0.5, nodes: Mapping[int, str] | None = None
) -> tuple[JobSnapshot, ...]:
    """One look for each time at which all ranks are given: a sequence a rank, oldest first."""
    looks = [a_job(*at, seconds=seconds * number) for number, at in enumerate(zip(*ranks, strict=True))]
    if nodes is None:
        return tuple(looks)
    placed = [
        msgspec.structs.replace(
            look, ranks=tuple(msgspec.structs.replace(one, node=nodes[one.rank]) for one in look.ranks)
        )
        for look in looks
    ]
    return tuple(placed)


def with_records(
    looks: Sequence[JobSnapshot], first: Sequence[FlightRecord], last: Sequence[FlightRecord]
) -> tuple[JobSnapshot, ...]:
    """The looks with flight records in the first and the last."""

    def put(look: JobSnapshot, records: Sequence[FlightRecord]) -> JobSnapshot:
        ranks = tuple(
            msgspec.structs.replace(one, record=record)
            for one, record in zip(look.ranks, records, strict=True)
        )
        return msgspec.structs.replace(look, ranks=ranks)

    return (put(looks[0], first), *looks[1:-1], put(looks[-1], last))


def inside(rank: int, step: int = 0) -> ARank:
    """In all_reduce, after so many steps."""
    return a_rank(rank).waiting_in().but(step=step)


def outside(rank: int, function: str = "crunch", line: int = 8, step: int = 0) -> ARank:
    """In the user's own function."""
    return a_rank(rank).stuck_in(user(function, line)).but(step=step)


def judge_slow(
    *looks: JobSnapshot, slowdown: Slowdown | None = None, named: Collection[int] = ()
) -> Diagnosis:
    """Find out what is slow."""
    return diagnose(
        (looks[0], looks[-1]),
        catalogue=load_catalogue(),
        source_line=lambda _file, _line: None,
        time="2026-11-29T16:40:00Z",
        samples=tuple(looks[1:-1]),
        slow=SlowLook(slowdown, frozenset(named)),
    )


def connected(look: JobSnapshot, pairs: Mapping[tuple[int, int], tuple[int, int, int]]) -> JobSnapshot:
    """The look with a connection for each pair of ranks.

    Args:
        look: without connections.
        pairs: of the first rank's end: bytes not acknowledged, retries; of the second's: bytes unread.
    """
    of_rank: dict[int, list[Connection]] = {}
    for (one, other), (sent, retries, unread) in pairs.items():
        ends = (f"10.0.0.{one + 1}:{4000 + other}", f"10.0.0.{other + 1}:{5000 + one}")
        of_rank.setdefault(one, []).append(Connection(ends[0], ends[1], sent, 0, retries))
        of_rank.setdefault(other, []).append(Connection(ends[1], ends[0], 0, unread, 0))
    ranks = tuple(
        msgspec.structs.replace(rank, connections=tuple(of_rank.get(rank.rank, ()))) for rank in look.ranks
    )
    return msgspec.structs.replace(look, ranks=ranks)
