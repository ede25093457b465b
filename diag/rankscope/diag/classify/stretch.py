"""Which looks of many are judged as one: the newest stretch in which no wait ended or began.

Source: DIAGNOSIS.md, "Noticing": what moved is no hang, and what moved before a hang is its history
(``dump_traceback_later(repeat=True)`` prints healthy looks first). Only dumps come with whole looks between
the pair's; a live job has process facts for that. It blames nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rankscope.diag.classify.deciding import Reader
from rankscope.diag.classify.position import Position, same_place
from rankscope.diag.classify.waits import advanced, entered
from rankscope.diag.model import JobSnapshot

Pair = tuple[JobSnapshot, JobSnapshot | None]
_Places = dict[int, tuple[int, Position]]  # process and position by rank

# A job that moves shows the same waits in several looks in a row, by chance or in a long step: the newest
# stretch must be longer than that. Measured on a slow job of 3 ranks: 5 intervals in a row after 1.
_LEAST_LOOKS: Final = 3
_LONGER: Final = 6  # times as many intervals as the longest stretch before it has


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is judged.

    Attributes:
        pair: first and last look of the newest stretch; the two newest when something moved between them.
        samples: the looks between them.
        history: every look, in order.
        length: number of looks of the stretch, 1 when something moved between the newest two.
        before: the longest stretch before it, 0 when nothing ever moved.
    """

    pair: Pair
    samples: tuple[JobSnapshot, ...] = ()
    history: tuple[JobSnapshot, ...] = ()
    length: int = 0
    before: int = 0

    @property
    def may_be_chance(self) -> bool:
        """Whether the job stood about as long before, and moved again."""
        least = max(_LEAST_LOOKS, _LONGER * (self.before - 1) + 1)
        return self.before > 0 and 1 < self.length < least

    @property
    def stands(self) -> bool:
        """Whether the job moved, and now stands for good."""
        return self.before > 0 and self.length > 1 and not self.may_be_chance


def newest_stretch(pair: Pair, samples: tuple[JobSnapshot, ...], *, reader: Reader) -> Stretch:
    """Choose among the looks of a dump; those of a live job are left as they are.

    Args:
        pair: first and last look.
        samples: looks between them.
        reader: reads where ranks stand.
    """
    first, last = pair
    if last is None or not samples or not _are_whole(first, *samples, last):
        return Stretch(pair, samples)
    looks = (first, *samples, last)
    places = [_places(look, reader) for look in looks]
    moved = [
        _moved(now, then) or entered(old.ranks, new.ranks) or advanced(old.ranks, new.ranks) is not None
        for (now, then), (old, new) in zip(pairwise(places), pairwise(looks), strict=True)
    ]
    *before, length = _runs(moved)
    start = len(looks) - max(length, 2)
    return Stretch((looks[start], last), looks[start + 1 : -1], looks, length, max(before, default=0))


def _are_whole(*looks: JobSnapshot) -> bool:
    """Whether they are dumps of the job: without process facts, and of more than a few suspects."""
    return all(rank.facts is None for look in looks for rank in look.ranks)


def _places(look: JobSnapshot, reader: Reader) -> _Places:
    found = ((rank, reader.position(rank)) for rank in look.ranks)
    return {rank.rank: (rank.pid, position) for rank, position in found if position is not None}


def _moved(before: _Places, after: _Places) -> bool:
    """Whether a rank left a wait or entered one, or is another process than before."""
    for rank in before.keys() & after.keys():
        (pid, old), (new_pid, new) = before[rank], after[rank]
        if pid != new_pid:
            return True
        waits = old.waiting is not None or new.waiting is not None
        if waits and not same_place(old, new):
            return True
    return False


def _runs(moved: Sequence[bool]) -> list[int]:
    """Numbers of looks between which nothing moved, in order."""
    runs = [1]
    for one in moved:
        if one:
            runs.append(1)
        else:
            runs[-1] += 1
    return runs
