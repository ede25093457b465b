"""Rules that end the suspicion: something advanced, moved, or simply works (row 0, decision 6).

Source: DIAGNOSIS.md, "Noticing". An unchanged stack confirms nothing, a changed one excuses.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diag.classify.blame import Finding, activity_evidence, suspect
from rankscope.diag.classify.position import same_place
from rankscope.diag.classify.view import JobView, RankView, away_ranks, waiting_ranks
from rankscope.diag.classify.wording import name_ranks, verb
from rankscope.diag.model import Confidence, Evidence, Severity, Verdict


def something_advanced(job: JobView) -> Finding | None:
    """Row 0. A step or a completed collective between the snapshots: no hang."""
    progress = job.progress
    if progress is None:
        return None
    rank, how = progress
    return Finding(
        "Healthy", "none", "none", "high", "0",
        f"the job makes progress: rank {rank}, {how}",
        evidence=(Evidence("progress page", how, rank),),
    )  # fmt: skip


def moved_before(job: JobView) -> Finding | None:
    """Row 0. The newest looks are alike, but so were some before, and then the job moved."""
    if not job.stretch.may_be_chance:
        return None
    newest, before = job.stretch.length, job.stretch.before
    text = f"the job moved between earlier looks; the newest {newest} are alike"
    if before > 1:
        text += f", as {before} in a row were before it moved on"
    return _moves("Unknown", "low", text, waiting_ranks(job))


def still_moving(job: JobView) -> Finding | None:
    """Row 0 without a page. A rank that left a wait finished it; any other move leaves it open."""
    if not job.paired:
        return None
    seen = [view for view in job.ranks if view.seen and view.before is not None]
    left = [view for view in seen if _left_wait(view)]
    arrived = [view for view in seen if _entered_wait(view)]
    moved = [view for view in seen if view.waiting is None and view.moved]
    stirred = [view for view in seen if view.waiting is not None and view.activity.stirred]
    if left:
        text = f"{name_ranks(view.rank for view in left)} left a wait between the snapshots"
        return _moved(job, "medium", text, left)
    if _all_went_on(job, seen):
        return _moved(job, "medium", "every rank stands elsewhere than at the look before", seen)
    if stirred and moved:
        waits = f"waits of {name_ranks(view.rank for view in stirred)} end and begin again"
        text = f"{waits}, {name_ranks(view.rank for view in moved)} moved"
        return _moved(job, "low", text, [*stirred, *moved])
    if arrived:
        text = (
            f"{name_ranks(view.rank for view in arrived)} entered a wait between the snapshots: not yet still"
        )
        return _moves("Unknown", "low", text, arrived)
    return None


def _all_went_on(job: JobView, seen: Sequence[RankView]) -> bool:
    """Whether every rank moved, one of them out of a wait or a backward, and one stands in none now.

    Where all have come to one wait by now, it may be the one that does not end.
    """
    if job.unseen or len(seen) < job.latest.world_size or not all(view.moved for view in seen):
        return False
    left = any(
        view.before is not None and view.before.waiting is not None and not _in_a_wait(view) for view in seen
    )
    return left and any(view.waiting is None for view in seen)


def _in_a_wait(view: RankView) -> bool:
    return view.position is not None and view.position.waiting is not None


def _moved(job: JobView, confidence: Confidence, text: str, views: Sequence[RankView]) -> Finding:
    """Health, unless a collective stayed open over the pair: then what moved does not tell."""
    still = job.static_open
    if still is None:
        return _moves("Healthy", confidence, text, views)
    return _moves(
        "Unknown", "low", f"{text}; collective {still.seq} of group {still.group} stayed open", views
    )


def _moves(verdict: Verdict, confidence: Confidence, text: str, views: Sequence[RankView]) -> Finding:
    severity: Severity = "none" if verdict == "Healthy" else "info"
    return Finding(
        verdict, "none", severity, confidence, "0", text,
        evidence=tuple(activity_evidence(views)),
    )  # fmt: skip


def _sure(view: RankView) -> bool:
    return view.position is not None and view.position.waiting in ("communication", "store")


def _entered_wait(view: RankView) -> bool:
    if view.before is None or view.position is None or view.before.waiting is not None or not _sure(view):
        return False
    return view.latest.facts is not None or not same_place(view.before, view.position)


def _left_wait(view: RankView) -> bool:
    before, now = view.before, view.position
    if before is None or now is None or before.waiting not in ("communication", "store"):
        return False
    if not same_place(before, now):
        return True
    # In one place, only what the kernel says of it may differ, and only where both looks tell as much: C++
    # frames show waits that Python frames do not.
    alike = before.has_native == now.has_native
    return alike and view.latest.facts is not None and now.waiting != before.waiting


def nobody_waits(job: JobView) -> Finding | None:
    """Decision 6. Nobody waits and somebody works: an evaluation, warm-up or compilation, no hang."""
    away = away_ranks(job)
    if not away or waiting_ranks(job):
        return None
    active = [view for view in away if view.activity.level in ("busy", "ticking")]
    if not active:
        return None
    works = any(view.moved for view in active) or len(active) == job.latest.world_size
    if works and job.static_open is None:
        ranks = [view.rank for view in active]
        return Finding(
            "Healthy", "none", "none", "low", "0",
            f"no rank waits for another, {name_ranks(ranks)} {verb(ranks, 'is', 'are')} active",
            evidence=tuple(activity_evidence(active)),
        )  # fmt: skip
    absent = {rank for one in job.missing for rank in one.absent}
    return suspect(job, [view for view in active if view.rank in absent] or active, (), rule="0")
