"""What a soak saw in which nothing is wrong, and the same with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from tests.soak.line import MIB
from tests.soak.samples import (
    Captures,
    Ending,
    Gauges,
    LastCount,
    Notices,
    Observed,
    RankLook,
    Requests,
    Sample,
    Streams,
)

SECONDS: Final = 60
RANKS: Final = 8
_STEPS: Final = 4_000
"""A second."""
_NS: Final = 1_000_000_000


def gauges(pid: int, *, mib: float = 50.0, threads: int = 4, descriptors: int = 20) -> Gauges:
    memory = int(mib * MIB)
    return Gauges(pid, memory, memory, memory // 2, threads, descriptors, 0.0)


def look(second: float, *, step_ms: float = 1.0) -> RankLook:
    count = int(_STEPS * second) + 10
    return RankLook(count, count + 1, int(count * step_ms * 1e6), 0, count + 1, 0.5)


def own_look(second: int, *, step_ms: float = 1.0) -> RankLook:
    count = int(_STEPS * second) + 10
    return RankLook(count, count, int(count * step_ms * 1e6), 0)


def sample(second: int) -> Sample:
    return Sample(
        at=float(second),
        ours={"agent": gauges(1, mib=240), "health server": gauges(2), "notices": gauges(3)},
        workers={rank: gauges(10 + rank) for rank in range(RANKS)},
        control={rank: gauges(30 + rank, mib=40, threads=3) for rank in range(2)},
        steps={rank: look(second) for rank in range(RANKS)},
        control_steps={rank: own_look(second) for rank in range(2)},
        passing=second % 2,
        zombies=0,
        files=30,
        records=1000 * second,
    )


def observed() -> Observed:
    return Observed(
        seconds=SECONDS,
        warm_up=20.0,
        is_long=False,
        samples=[sample(second) for second in range(SECONDS)],
        last_counts=[LastCount(rank, 2_500, 2_500) for rank in range(RANKS)],
        events={"job.started": 1, "cycle.started": 1, "message": 30, "cycle.ended": 1, "job.ended": 1},
        missing=[],
        requests=Requests(6_000, 60.0, {"/livez 200": 3_000, "/metrics 200": 3_000}, 0, 0.002, 0.009),
        captures=Captures("POST /v1/analyze", {"Healthy": 6}, []),
        streams=Streams(20, 60, []),
        notices=Notices(30, 30, 30),
        ending=Ending(0, 0, [], [], []),
    )


def with_samples(change: Callable[[int, Sample], Sample]) -> Observed:
    """The same, each sample changed."""
    seen = observed()
    samples = [change(second, one) for second, one in enumerate(seen.samples)]
    return msgspec.structs.replace(seen, samples=samples)


def with_gauges(name: str, value: Callable[[int], Gauges]) -> Observed:
    """The same, one process of ours changed; ``worker 3`` is one of the ranks."""

    def change(second: int, one: Sample) -> Sample:
        group, _, rank = name.partition(" ")
        if group == "worker":
            return msgspec.structs.replace(one, workers={**one.workers, int(rank): value(second)})
        return msgspec.structs.replace(one, ours={**one.ours, name: value(second)})

    return with_samples(change)
