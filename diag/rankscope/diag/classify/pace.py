"""What many looks at stacks say of each rank: how much of its time is communication, and what the rest is.

Source: DIAGNOSIS.md, "Naming the culprit", row S1. One look cannot tell a slow rank from a stuck one; that
ranks leave their waits in between can, unless none does any more in the newest looks.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rankscope.diag.classify.activity import UNKNOWN
from rankscope.diag.classify.blame import Finding
from rankscope.diag.classify.kinds import Cause, Suspect, cause_of
from rankscope.diag.classify.slow_limits import (
    LEAST_DIFFERENCE,
    LEAST_INSIDE,
    LEAST_LOOKS,
    LEAST_SIGMAS,
    LEAST_SLOW_LOOKS,
    MOST_INSIDE,
)
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.wording import join, name_ranks
from rankscope.diag.model import Evidence, JobSnapshot, Location

_Function = tuple[str, str]
"""Name and file."""


@dataclass(frozen=True, slots=True)
class RankLooks:
    """One rank at every look that shows its stack, oldest first.

    Attributes:
        inside: whether it was in communication.
    """

    rank: int
    looks: tuple[Suspect, ...]
    inside: tuple[bool, ...]

    @property
    def share(self) -> float:
        """Share of the looks that it was in communication."""
        return sum(self.inside) / len(self.inside) if self.inside else 0.0

    @property
    def outside(self) -> tuple[Suspect, ...]:
        """The looks that it was elsewhere."""
        return tuple(one for one, inside in zip(self.looks, self.inside, strict=True) if not inside)

    def left_a_wait(self, *, since: int = 0) -> bool:
        """Whether it was inside and later outside, both at looks from ``since`` on."""
        inside = self.inside[since:]
        return True in inside and False in inside[inside.index(True) :]


def all_looks(job: JobView) -> tuple[JobSnapshot, ...]:
    """Every look at the job, oldest first."""
    if job.stretch.history:
        return job.stretch.history
    return tuple(one for one in (job.earlier, *job.samples, job.latest) if one is not None)


def rank_looks(job: JobView) -> dict[int, RankLooks]:
    """Every rank at every look."""
    found: dict[int, list[Suspect]] = {view.rank: [] for view in job.ranks}
    for snapshot in all_looks(job):
        for one in snapshot.ranks:
            position = job.reader.position(one)
            if position is not None and one.rank in found:
                found[one.rank].append(Suspect(one, None, position, UNKNOWN))
    return {rank: RankLooks(rank, tuple(looks), tuple(map(_inside, looks))) for rank, looks in found.items()}


def _inside(one: Suspect) -> bool:
    """Whether it waits for others; a backward or a wait for the GPU that does not run is one."""
    if one.position is None:
        return False
    if one.position.waiting == "perhaps":
        return one.position.thread.active is False
    return one.position.waiting is not None


def are_enough(looks: Mapping[int, RankLooks]) -> bool:
    """Whether there are several ranks to compare, each seen often enough."""
    return len(looks) > 1 and all(len(one.looks) >= LEAST_SLOW_LOOKS for one in looks.values())


def least_inside(looks: Mapping[int, RankLooks]) -> int | None:
    """The rank that is in communication less than each other one, by more than chance; ``None`` for none."""
    if not are_enough(looks):
        return None
    slow, *others = sorted(looks.values(), key=lambda one: one.share)
    return slow.rank if all(_is_less(slow, one) for one in others) else None


def _is_less(slow: RankLooks, other: RankLooks) -> bool:
    """Difference of two shares against its standard error, with half a look added on either side."""
    difference = other.share - slow.share
    if difference < LEAST_DIFFERENCE:
        return False
    variance = 0.0
    for one in (slow, other):
        count = len(one.looks) + 1
        share = (sum(one.inside) + 0.5) / count
        variance += share * (1 - share) / count
    return difference >= LEAST_SIGMAS * math.sqrt(variance)


def causes_outside(job: JobView, looks: RankLooks) -> tuple[Cause, ...]:
    """What a rank does at the looks that it is not in communication.

    One that runs at a line of the user's own code computes there: it comes back, so it is in no endless loop.
    """
    causes = (cause_of(one, catalogue=job.catalogue, source_line=job.source_line) for one in looks.outside)
    return tuple(replace(one, kind="user_code") if one.kind == "python_loop" else one for one in causes)


def more_than_others(job: JobView, ranks: Collection[int], looks: Mapping[int, RankLooks]) -> Cause | None:
    """What some ranks do that the others do less: all do the ordinary part of a step."""
    own = [cause for rank in ranks if rank in looks for cause in causes_outside(job, looks[rank])]
    count = sum(len(looks[rank].looks) for rank in ranks if rank in looks)
    if not own or not count:
        return None
    others = [
        (Counter(map(_function, causes_outside(job, one))), len(one.looks))
        for rank, one in looks.items()
        if rank not in ranks and one.looks
    ]

    def excess(where: _Function) -> float:
        usual = statistics.median(times[where] / of for times, of in others) if others else 0.0
        return here[where] / count - usual

    here = Counter(map(_function, own))
    return _shown(own, max(here, key=excess))


def common_place(causes: Sequence[Cause]) -> Cause | None:
    """Where most of them are, shown as at the newest of those."""
    if not causes:
        return None
    return _shown(causes, Counter(map(_function, causes)).most_common(1)[0][0])


def _shown(causes: Sequence[Cause], where: _Function) -> Cause:
    """The newest cause in a function, at the line, and of the kind, that it is at most."""
    of_it = [one for one in causes if _function(one) == where]
    line, kind = Counter((_line(one), one.kind) for one in of_it).most_common(1)[0][0]
    return next(one for one in reversed(of_it) if (_line(one), one.kind) == (line, kind))


def _line(cause: Cause) -> int:
    return cause.location.line if cause.location else 0


def _function(cause: Cause) -> _Function:
    where: Location | None = cause.location
    return (where.function, where.file) if where else (cause.place, "")


def share_evidence(looks: Mapping[int, RankLooks]) -> tuple[Evidence, ...]:
    """How much of the looks each rank is in communication."""
    return tuple(
        Evidence("stacks", f"in communication in {100 * one.share:.0f} % of {len(one.looks)} looks", rank)
        for rank, one in sorted(looks.items())
        if one.looks
    )


def least_in_communication(job: JobView, *, stands: bool = False) -> Finding | None:
    """Row S1 of whole looks in dumps. The only rank mostly outside, in a job whose ranks come and go.

    Args:
        job: the job.
        stands: whether to judge one whose newest looks are alike for long.
    """
    if job.slow is not None or job.stretch.stands != stands or not job.paired or job.unseen:
        return None
    if any(view.gone or view.frozen for view in job.ranks):
        return None
    if len(all_looks(job)) < LEAST_LOOKS:
        return None
    looks = rank_looks(job)
    if len(looks) < 2 or min(len(one.looks) for one in looks.values()) < LEAST_LOOKS:  # noqa: PLR2004 - a pair
        return None
    slow = [one for one in looks.values() if one.share <= MOST_INSIDE]
    others = [one for one in looks.values() if one not in slow]
    if len(slow) != 1 or any(one.share < LEAST_INSIDE for one in others):
        return None
    if not any(one.left_a_wait() for one in looks.values()):
        return None
    return _slow(job, slow[0], looks)


def _slow(job: JobView, slow: RankLooks, looks: Mapping[int, RankLooks]) -> Finding | None:
    cause = more_than_others(job, (slow.rank,), looks)
    if cause is None:
        return None
    others = [rank for rank in looks if rank != slow.rank]
    least = min(looks[rank].share for rank in others)
    return Finding(
        verdict="RankNonCommSlow",
        kind=cause.kind,
        severity="info",
        confidence="low",
        rule="S1",
        summary=join(
            f"rank {slow.rank} is slow: outside of communication in {100 * (1 - slow.share):.0f} % of"
            f" {len(slow.looks)} looks, mostly in {cause.place}",
            f"{name_ranks(others)} in communication in {100 * least:.0f} % or more; the job moves",
        ),
        culprits=(slow.rank,),
        victims=dict.fromkeys(others, (slow.rank,)),
        location=cause.location,
        evidence=share_evidence(looks),
    )
