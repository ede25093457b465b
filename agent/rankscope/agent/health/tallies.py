"""What the agent counts for ``/metrics``: plain values on the status page.

So a server that is started again goes on where the last one was. Who counts, and what, is not known here.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import msgspec

CAPTURE_BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
"""Seconds: a look takes 50 ms for eight ranks, and is given up after 20 s."""
DETECTION_BOUNDS: Final = (5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Seconds: 15 and 60 are what is promised with and without steps, 600 is torch's own limit."""


class Durations(msgspec.Struct, frozen=True):
    """How long something took, each time.

    Attributes:
        bounds: seconds, rising.
        counts: how many took at most the bound beside them and more than the one before; one entry more, for
            those above the last.
        total: seconds in all.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    @classmethod
    def none(cls, bounds: tuple[float, ...]) -> Durations:
        """Nothing yet."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def plus(self, seconds: float) -> Durations:
        """One more; a negative one (a clock that was set) counts as none at all."""
        took = max(0.0, seconds)
        counts = list(self.counts)
        counts[bisect_left(self.bounds, took)] += 1
        return Durations(self.bounds, tuple(counts), self.total + took)


class IncidentTally(msgspec.Struct, frozen=True):
    """How many incidents of one class and kind there were."""

    verdict: str
    kind: str
    count: int


class Tallies(msgspec.Struct, frozen=True):
    """All that is counted.

    Attributes:
        incidents: by class and kind.
        restarts: by reason.
        detections: seconds from the last progress to a published verdict.
        captures: seconds for a look at all ranks of the node.
        timer_requests: timers set and released by workers.
    """

    incidents: tuple[IncidentTally, ...] = ()
    restarts: dict[str, int] = {}
    detections: Durations = Durations.none(DETECTION_BOUNDS)
    captures: Durations = Durations.none(CAPTURE_BOUNDS)
    timer_requests: int = 0
