"""Row S3: all ranks are slow alike, in one kind of place: a common cause, and no culprit.

Source: DIAGNOSIS.md, row S3. That a step takes longer on all ranks is no fault by itself (longer sequences, a
deeper model from some epoch on): the place must say that something outside of the program is waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from rankscope.diag.classify.blame import Finding
from rankscope.diag.classify.kinds import Cause
from rankscope.diag.classify.pace import (
    RankLooks,
    are_enough,
    causes_outside,
    common_place,
    share_evidence,
)
from rankscope.diag.classify.slow_limits import COMMON_ALONE, COMMON_SHARE, NEARLY, Slowdown
from rankscope.diag.classify.slow_rank import pace_evidence
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.wording import KIND_WORDS, NO_MINORITY, join
from rankscope.diag.model import Confidence, Kind

_OUTSIDE: Final[frozenset[Kind]] = frozenset(
    {"storage", "data_loading", "checkpoint", "network", "lock", "store_wait", "child_process", "compile"}
)
"""Kinds of places at which something outside of the training program is waited for."""


def common_cause(job: JobView, looks: Mapping[int, RankLooks]) -> Finding | None:
    """Row S3, of a job that moves, in which nobody is late and no link is slow."""
    if job.unseen or not are_enough(looks):
        return None
    causes = {rank: causes_outside(job, one) for rank, one in looks.items()}
    shares = {rank: _kinds(causes[rank], of=len(one.looks)) for rank, one in looks.items()}
    kinds: set[Kind] = {kind for one in shares.values() for kind in one}
    if not kinds:
        return None
    in_order: list[Kind] = sorted(kinds)
    kind = max(in_order, key=lambda one: min(share.get(one, 0.0) for share in shares.values()))
    least = min(share.get(kind, 0.0) for share in shares.values())
    slowdown = job.slowdown
    needed = COMMON_ALONE if slowdown is None else max(COMMON_SHARE, slowdown.extra_share / NEARLY)
    if least < needed or (slowdown is not None and not _grew_outside(slowdown, looks)):
        return None
    cause = common_place([one for of_rank in causes.values() for one in of_rank if one.kind == kind])
    if cause is None:
        return None
    is_sure = slowdown is not None and least * slowdown.now >= slowdown.before
    confidence: Confidence = "medium" if is_sure else "low"
    since = f" since step {slowdown.since_step}" if slowdown is not None else ""
    return Finding(
        verdict="RankNonCommSlow",
        kind=kind,
        severity="info",
        confidence=confidence,
        rule="S3",
        summary=join(
            f"all ranks are slow alike{since}: each spends {100 * least:.0f} % of its time or more in"
            f" {cause.place}, {KIND_WORDS[kind]}",
            NO_MINORITY,
        ),
        location=cause.location,
        evidence=(*pace_evidence(job), *cause.evidence, *share_evidence(looks)),
    )


def _grew_outside(slowdown: Slowdown, looks: Mapping[int, RankLooks]) -> bool:
    """Whether every rank spends more outside of communication than a whole step took before."""
    return all((1 - one.share) * slowdown.now >= slowdown.before for one in looks.values())


def _kinds(causes: Sequence[Cause], *, of: int) -> dict[Kind, float]:
    """Share of so many looks in each kind of place that waits for something outside of the program."""
    counts = Counter(cause.kind for cause in causes)
    return {kind: count / of for kind, count in counts.items() if kind in _OUTSIDE}
