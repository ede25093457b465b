"""How far the clocks of two nodes are apart, from counts on a shared counter. Pure.

Counting is atomic: what got the smaller number happened first, on whatever host. A mark of another agent that
lies between two of one's own, by number, happened between those two moments: so its clock shows there what
ours showed in between. The bounds of all its marks are cut; what is left is as wide as the marks are apart.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rankscope.agent.nodes.messages import Mark


@dataclass(frozen=True, slots=True)
class Offset:
    """What is added to another node's clock to have the own one.

    Attributes:
        seconds: best estimate.
        error: it may be wrong by so much, seconds, either way.
    """

    seconds: float
    error: float

    def __str__(self) -> str:
        """As a person reads it."""
        return f"{self.seconds:+.3f} s (within {self.error:.3f} s)"


def clocks_within(offsets: Collection[Offset | None]) -> float | None:
    """By how much any two clocks may be apart once all are corrected, seconds.

    Args:
        offsets: of each other node from the one that all are corrected to.

    Returns:
        ``None`` where one could not be compared.
    """
    errors = [one.error for one in offsets if one is not None]
    return sum(heapq.nlargest(2, errors)) if len(errors) == len(offsets) else None


def offset_of(own: Sequence[Mark], theirs: Sequence[Mark]) -> Offset | None:
    """Compare two agents' clocks.

    Args:
        own: marks of the clock that is the measure, any order.
        theirs: marks of the other.

    Returns:
        The offset, ``None`` where the marks do not enclose each other, or contradict (a clock was set
        meanwhile).
    """
    ordered = sorted(own, key=lambda mark: mark.count)
    counts = [mark.count for mark in ordered]
    least, most = float("-inf"), float("inf")
    for mark in theirs:
        place = bisect.bisect(counts, mark.count)
        if place:
            least = max(least, ordered[place - 1].began - mark.ended)
        if place < len(ordered):
            most = min(most, ordered[place].ended - mark.began)
    if not least <= most or float("inf") in (most, -least):
        return None
    return Offset((least + most) / 2, (most - least) / 2)
