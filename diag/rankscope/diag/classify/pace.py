"""Row S1 from stacks: over many looks at a job that moves, one rank spends the least time in communication.

Source: DIAGNOSIS.md, "Naming the culprit". One look cannot tell a slow rank from a stuck one; that ranks
leave their waits in between can, unless none does any more in the newest looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rankscope.diag.classify.activity import UNKNOWN
from rankscope.diag.classify.blame import Finding
from rankscope.diag.classify.kinds import Suspect, cause_of
from rankscope.diag.classify.position import read_position
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.wording import join, name_ranks
from rankscope.diag.model import Evidence

# Measured on a job of 3 ranks, one of which computes long: 6 of 8 looks outside, the others 8 of 8 inside.
LEAST_LOOKS: Final = 5
MOST_INSIDE: Final = 0.5  # share of looks that the slow rank is in communication
LEAST_INSIDE: Final = 0.75  # and each other one


def least_in_communication(job: JobView, *, stands: bool = False) -> Finding | None:
    """Row S1. The only rank mostly outside of communication, in a job whose ranks come and go there.

    Args:
        job: the job.
        stands: whether to judge one whose newest looks are alike for long.
    """
    if job.stretch.stands != stands or not job.paired or job.unseen:
        return None
    if any(view.gone or view.frozen for view in job.ranks):
        return None
    looks = {view.rank: _looks(job, view.rank) for view in job.ranks}
    if len(looks) < 2 or min(map(len, looks.values())) < LEAST_LOOKS:  # noqa: PLR2004 - a pair
        return None
    shares = {rank: sum(map(_inside, seen)) / len(seen) for rank, seen in looks.items()}
    slow = [rank for rank, share in shares.items() if share <= MOST_INSIDE]
    if len(slow) != 1 or any(shares[rank] < LEAST_INSIDE for rank in shares if rank != slow[0]):
        return None
    if not any(_comes_and_goes(seen) for seen in looks.values()):
        return None
    return _slow(job, slow[0], shares, looks[slow[0]])


def _looks(job: JobView, rank: int) -> list[Suspect]:
    """The rank at every look that shows its stack."""
    snapshots = job.stretch.history or [
        one for one in (job.earlier, *job.samples, job.latest) if one is not None
    ]
    found = [one for snapshot in snapshots for one in snapshot.ranks if one.rank == rank]
    looks = (
        Suspect(one, None, read_position(one, catalogue=job.catalogue, source_line=job.source_line), UNKNOWN)
        for one in found
    )
    return [one for one in looks if one.position is not None]


def _inside(one: Suspect) -> bool:
    return one.position is not None and one.position.waiting in ("communication", "store")


def _comes_and_goes(seen: Sequence[Suspect]) -> bool:
    """Whether a rank was inside and later outside: it left a wait."""
    inside = [_inside(one) for one in seen]
    return True in inside and False in inside[inside.index(True) :]


def _slow(job: JobView, rank: int, shares: dict[int, float], looks: Sequence[Suspect]) -> Finding:
    outside = next(one for one in reversed(looks) if not _inside(one))
    cause = cause_of(outside, catalogue=job.catalogue, source_line=job.source_line)
    others = [one for one in shares if one != rank]
    least = min(shares[one] for one in others)
    return Finding(
        verdict="RankNonCommSlow",
        kind=cause.kind,
        severity="info",
        confidence="low",
        rule="S1",
        summary=join(
            f"rank {rank} is slow: outside of communication in {100 * (1 - shares[rank]):.0f} % of"
            f" {len(looks)} looks, last in {cause.place}",
            f"{name_ranks(others)} in communication in {100 * least:.0f} % or more; the job moves",
        ),
        culprits=(rank,),
        victims=dict.fromkeys(others, (rank,)),
        location=cause.location,
        evidence=tuple(
            Evidence("stacks", f"in communication in {100 * share:.0f} % of the looks", one)
            for one, share in sorted(shares.items())
        ),
    )
