"""Whether processes stay, and whether what they hold grows. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tests.soak.line import MIB, Line, shown
from tests.soak.samples import Gauges, Sample
from tests.soak.trend import Allowance, Trend, trend_of

MEMORY: Final = Allowance(once=1.5 * MIB, an_hour=4 * MIB)
"""With nothing leaking a process grows by up to 0.1 MiB in half a minute after the warm-up."""
COUNT: Final = Allowance(once=1.5)
"""Of descriptors, threads and files: as many as come and go with connections, and no more with the time."""
_GAUGES: Final[Mapping[str, tuple[Callable[[Gauges], float], Allowance]]] = {
    "memory": (lambda one: float(one.rss), MEMORY),
    "anonymous memory": (lambda one: float(one.anonymous), MEMORY),
    "descriptors": (lambda one: float(one.descriptors), COUNT),
    "threads": (lambda one: float(one.threads), COUNT),
}
"""Pss is left out: it moves when other people's processes map or leave the same libraries."""


def same_processes(samples: Sequence[Sample]) -> Iterator[Line]:
    """Helpers and ranks are the same from first to last."""
    pids: dict[str, set[int]] = {}
    missing: set[str] = set()
    names = {name for sample in samples for name in _named(sample)}
    for sample in samples:
        named = _named(sample)
        missing |= names - named.keys()
        for name, one in named.items():
            pids.setdefault(name, set()).add(one.pid)
    changed = sorted(missing | {name for name, several in pids.items() if len(several) > 1})
    yield Line(
        "processes", ", ".join(changed) or f"{len(names)} from first to last", "none ends", ok=not changed
    )
    zombies = statistics.median(sample.zombies for sample in samples)
    yield Line("children that nobody asked after", f"{zombies:g}", "0", ok=zombies == 0)


def _named(sample: Sample) -> dict[str, Gauges]:
    return {
        **sample.ours,
        **{f"worker {rank}": one for rank, one in sample.workers.items()},
        **{f"control {rank}": one for rank, one in sample.control.items()},
    }


def growth(samples: Sequence[Sample]) -> Iterator[Line]:
    times = [sample.at for sample in samples]
    lasting = sorted(set.intersection(*(set(sample.ours) for sample in samples)))
    for name in lasting:
        for what, (gauge, allowance) in _GAUGES.items():
            values = [gauge(sample.ours[name]) for sample in samples]
            yield _flat(f"{name}: {what}", trend_of(times, values), allowance)
    for what, (gauge, allowance) in _GAUGES.items():
        yield _workers_growth(samples, what, gauge, allowance)
    files = [float(sample.files) for sample in samples]
    yield _flat("files in the run-time and temporary folders", trend_of(times, files), COUNT)
    passing = [float(sample.passing) for sample in samples]
    yield _flat("other processes of the agent", trend_of(times, passing), COUNT)
    records = trend_of(times, [float(sample.records) for sample in samples])
    yield Line("records", f"{shown(records.level)}, {shown(records.growth_an_hour)}/h", "none", ok=True)


def _workers_growth(
    samples: Sequence[Sample], what: str, gauge: Callable[[Gauges], float], allowance: Allowance
) -> Line:
    """The worker that grows most, less what those of the control grow in the median."""
    times = [sample.at for sample in samples]
    ranks = sorted(set.intersection(*(set(sample.workers) for sample in samples)))
    beside = [_median(sample.control, gauge) for sample in samples]
    if not ranks:
        return Line(f"workers: {what}", "no worker was there all the time", "flat", ok=False)
    trends = {
        rank: trend_of(
            times, [gauge(sample.workers[rank]) - more for sample, more in zip(samples, beside, strict=True)]
        )
        for rank in ranks
    }
    rank = max(ranks, key=lambda one: trends[one].growth)
    return _flat(f"worker {rank} less the control: {what}", trends[rank], allowance)


def _median(processes: Mapping[int, Gauges], gauge: Callable[[Gauges], float]) -> float:
    return statistics.median([gauge(one) for one in processes.values()] or [0.0])


def _flat(name: str, trend: Trend, allowance: Allowance) -> Line:
    allowed = allowance.of(trend.seconds)
    return Line(
        name,
        f"{shown(trend.level)}, {shown(trend.growth, signed=True)}",
        f"<= {shown(allowed, signed=True)} in {trend.seconds:.0f} s",
        ok=allowance.permits(trend),
    )
