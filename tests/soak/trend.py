"""Whether something grows: a robust slope over samples, held against what is allowed. Pure.

The slope is Theil and Sen's, the median of the slopes of all pairs: a saw-tooth, a burst or a single jump of
an allocator moves it little, while a leak moves most of its pairs, however small each of its steps is.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEAST_SAMPLES: Final = 12
"""With fewer a slope says nothing."""
MOST_SAMPLES: Final = 400
"""All pairs of so many are looked at; of more samples every n-th is."""
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Trend:
    """How a quantity went.

    Attributes:
        level: its median.
        slope: its growth a second.
        seconds: from the first sample to the last.
    """

    level: float
    slope: float
    seconds: float

    @property
    def growth(self) -> float:
        """By how much it grew while it was looked at, by its slope."""
        return self.slope * self.seconds

    @property
    def growth_an_hour(self) -> float:
        """By how much it would grow in an hour."""
        return self.slope * _HOUR


@dataclass(frozen=True, slots=True)
class Allowance:
    """By how much something may grow and count as flat.

    Attributes:
        once: whatever the time: caches that fill late, the noise of an allocator.
        an_hour: in addition, with the time.
    """

    once: float
    an_hour: float = 0.0

    def of(self, seconds: float) -> float:
        """What is allowed in this time."""
        return self.once + self.an_hour * seconds / _HOUR

    def permits(self, trend: Trend) -> bool:
        """Whether it does not grow, as far as this allows to say."""
        return trend.growth <= self.of(trend.seconds)


def trend_of(times: Sequence[float], values: Sequence[float]) -> Trend:
    """The trend of samples.

    Args:
        times: of the samples, in seconds, rising.
        values: what was found at each.

    Raises:
        ValueError: they are too few.
    """
    if len(times) < LEAST_SAMPLES:
        raise ValueError(f"{len(times)} samples allow no trend, {LEAST_SAMPLES} do")
    every = -(-len(times) // MOST_SAMPLES)
    points = list(zip(times, values, strict=True))[::every]
    slopes = [
        (value - before) / (time - earlier)
        for at, (earlier, before) in enumerate(points)
        for time, value in points[at + 1 :]
    ]
    return Trend(statistics.median(values), statistics.median(slopes), times[-1] - times[0])
