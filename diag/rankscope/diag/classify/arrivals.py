"""When the ranks of a group came to its collectives, by their flight records.

A host that calls late holds up nobody while its device is not done with earlier work. Where records tell when
each collective began on the device, that is its arrival. Torch finds a start out together with the end, when
its watchdog looks: then a call is not late by less than its device was surely behind. It compares no clocks
and blames nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rankscope.diag.classify.demands import TOGETHER
from rankscope.diag.classify.slow_limits import LEAST_COLLECTIVES, WINDOWS_NS
from rankscope.diag.model import Collective

Calls = Mapping[int, Mapping[int, Collective]]
"""The collectives of one group: by rank, then by number."""
_MOST: Final = 2_000  # newest collectives of a group that are looked at: as many as torch keeps by default
_MOST_CALLS: Final = 400_000  # of all its ranks: 16,384 of them are still judged in a fraction of a second
_FOUND_TOGETHER_NS: Final = 1_000_000  # a start and an end that one look found out are microseconds apart
_LOOKS_EVERY_NS: Final = 150_000_000
"""Torch's watchdog sleeps 100 ms between two looks (``ProcessGroupNCCL.cpp``)."""
_MOST_STARTS: Final = 0.9
"""Of the collectives: in so many all ranks' starts were seen, so that they are compared."""
_LEAST_REPEATED: Final = 4
"""Times that an operation comes again, on average, from which its sizes tell steps apart."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When each rank called each collective that all of them called.

    Attributes:
        seqs: numbers, ascending.
        times: by rank, ns by its own clock, one a number.
        together: whether its members leave it together.
        likes: what tells the collectives of one step from each other, one a number.
        behind: by rank, by how many ns its device was at least behind its call, one a number; empty where the
            records do not tell it.
    """

    seqs: Sequence[int]
    times: Mapping[int, Sequence[int]]
    together: Sequence[bool]
    likes: Sequence[object]
    behind: Mapping[int, Sequence[int]] = field(default_factory=dict[int, Sequence[int]])

    @property
    def least(self) -> int:
        """Collectives that tell anything: so many steps."""
        return LEAST_COLLECTIVES * max(1, len(set(self.likes)))

    @property
    def span_ns(self) -> int:
        """From the first call to the last, by the clock on which that took longest."""
        return max(times[-1] - times[0] for times in self.times.values())

    def since(self, begin: int) -> Arrivals:
        """The part from an index on."""
        times = {rank: times[begin:] for rank, times in self.times.items()}
        behind = {rank: spans[begin:] for rank, spans in self.behind.items()}
        return Arrivals(self.seqs[begin:], times, self.together[begin:], self.likes[begin:], behind)

    def counts(self, ranks: Sequence[int], at: int, gap: int) -> bool:
        """Whether ranks that called so much later than the others held them up: their device was free."""
        return not self.behind or any(self.behind[rank][at] < gap for rank in ranks)


def arrivals_of(calls: Calls) -> Arrivals:
    """When the ranks of a group came to what all of them called; empty where that tells nothing."""
    ranks = sorted(calls)
    most = min(_MOST, _MOST_CALLS // len(ranks))
    common = sorted(set[int].intersection(*(set(of_rank) for of_rank in calls.values())))[-most:]
    if len(common) < LEAST_COLLECTIVES:
        return Arrivals((), {}, (), ())  # they tell nothing
    seqs = [seq for seq in common if all(calls[rank][seq].created_ns > 0 for rank in ranks)]
    began = [seq for seq in seqs if all(_start_was_seen(calls[rank][seq]) for rank in ranks)]
    on_device = len(began) >= _MOST_STARTS * len(seqs) > 0
    seqs = began if on_device else seqs
    columns = {rank: [calls[rank][seq] for seq in seqs] for rank in ranks}
    tells = not on_device and all(one.started_ns for of_rank in columns.values() for one in of_rank[:1])
    return Arrivals(
        seqs,
        {
            rank: [one.started_ns if on_device else one.created_ns for one in of_rank]
            for rank, of_rank in columns.items()
        },
        [all(calls[rank][seq].op in TOGETHER for rank in ranks) for seq in seqs],
        _likes(columns[ranks[0]]),
        {rank: list(map(_device_behind, of_rank)) for rank, of_rank in columns.items()} if tells else {},
    )


def _start_was_seen(call: Collective) -> bool:
    """Whether its start was found out before its end, and so when it began."""
    return 0 < call.started_ns < call.completed_ns - _FOUND_TOGETHER_NS


def _device_behind(call: Collective) -> int:
    """By how many ns the device was at least behind the call, whenever the watchdog looked; 0 if unknown."""
    return max(0, call.started_ns - call.created_ns - _LOOKS_EVERY_NS) if call.started_ns else 0


def _likes(calls: Sequence[Collective]) -> list[object]:
    """By operation and sizes: a step's collectives come again in the next; others say nothing."""
    found: list[object] = [(one.op, one.input_sizes) for one in calls]
    return found if len(set(found)) * _LEAST_REPEATED <= len(found) else [one.op for one in calls]


def windows(arrivals: Arrivals) -> Iterator[int]:
    """Where the windows begin, the longest first; none is shorter than the least that tells anything."""
    times = next(iter(arrivals.times.values()))
    longest = max(0, len(times) - arrivals.least)
    begins = (
        min(longest, next(at for at, time in enumerate(times) if times[-1] - time <= length))
        for length in WINDOWS_NS
    )
    yield from dict.fromkeys(begins)
