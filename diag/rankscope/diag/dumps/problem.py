"""Something that was lost on the way from files to a job: silence about it is a fault."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was not understood, or left out.

    Attributes:
        where: the input, as it was named; ``""`` for all of them.
        what: what it is.
        count: how often.
    """

    where: str
    what: str
    count: int = 1
