"""The slow rules S1 to S3, in this order, for looks that were taken to find out what is slow.

Source: DIAGNOSIS.md, "Naming the culprit". A job that moves and of which none of them fires is healthy: that
it could be faster is not said. The limits are in ``slow_limits``.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.diag.classify.blame import Finding
from rankscope.diag.classify.kinds import recorded_location
from rankscope.diag.classify.lateness import late_fact, latest_rank
from rankscope.diag.classify.pace import RankLooks, all_looks, rank_looks, share_evidence
from rankscope.diag.classify.records import last_call
from rankscope.diag.classify.slow_alike import common_cause
from rankscope.diag.classify.slow_link import slow_link
from rankscope.diag.classify.slow_rank import slow_rank
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.waits import advanced
from rankscope.diag.classify.wording import join, name_ranks
from rankscope.diag.model import Confidence, Evidence


def slow_job(job: JobView) -> Finding | None:
    """Rows S1 to S3. A job that moves, looked at to find out what is slow; ``None`` for all others."""
    if job.slow is None or any(view.gone or view.frozen for view in job.ranks):
        return None
    looks = rank_looks(job)
    if not _moves(job, looks):
        return None
    return slow_rank(job, looks) or slow_link(job, looks) or common_cause(job, looks) or _well(job, looks)


def _moves(job: JobView, looks: Mapping[int, RankLooks]) -> bool:
    """Whether it still moved in the second half of the looks: one that has come to a stop is no slow one."""
    snapshots = all_looks(job)
    if advanced(snapshots[(len(snapshots) - 1) // 2].ranks, job.latest.ranks) is not None:
        return True
    return any(one.left_a_wait(since=len(one.looks) // 2) for one in looks.values())


def _well(job: JobView, looks: Mapping[int, RankLooks]) -> Finding:
    how = f": rank {job.progress[0]}, {job.progress[1]}" if job.progress else ": ranks leave their waits"
    return Finding(
        "Healthy", "none", "none", "high" if job.progress else "medium", "0",
        f"the job makes progress{how}; no rank and no link holds it up by far",
        evidence=share_evidence(looks),
    )  # fmt: skip


def straggler(job: JobView) -> Finding | None:
    """Row S1, where flight records are all there is and every collective in them has ended."""
    if job.waits.open or any(view.seen or view.gone for view in job.ranks):
        return None
    late = latest_rank(job)
    if late is None:
        return None
    view = next(view for view in job.ranks if view.rank == late.rank)
    nodes = {one.latest.node for one in job.ranks}
    confidence: Confidence = "medium" if len(nodes) == 1 and nodes != {""} and not job.unseen else "low"
    last = last_call(view.latest.record)
    victims = [one.rank for one in job.ranks if one.rank in job.told.groups[late.key] and one is not view]
    return Finding(
        verdict="RankNonCommSlow",
        kind="none",
        severity="info",
        confidence=confidence,
        rule="S1",
        summary=join(
            f"rank {late.rank} is late: it keeps {name_ranks(victims)} waiting for {1000 * late.gap:.0f} ms"
            f" in {late.times} of {late.of} collectives of group {job.told.title(late.key)},"
            f" {100 * late.share:.0f} % of the time; no rank hangs",
        ),
        culprits=(late.rank,),
        victims=dict.fromkeys(victims, (late.rank,)),
        location=recorded_location(last, late.rank, job.catalogue) if last is not None else None,
        evidence=(
            Evidence("flight record", late_fact(late), late.rank),
            Evidence("flight record", "times of calls are wall clock: one host, or synchronised clocks"),
        ),
    )
