"""Row 7 from records alone: calls that were made long after an operation began prove how long nothing ended.

One dump shows one moment, and every job has moments in which all ranks wait. But a rank that queued further
operations while the oldest stayed open tells the time that went by: where that is much longer than this job
ever took from one call to the next, it is no healthy moment. What is longer is said by the job itself, as for
a watcher (DIAGNOSIS.md, "Noticing": three times the longest, 30 s at least; half an hour for a job that has
hardly begun). A host is never that far ahead of its device in a job that moves: the times between its calls
contain the steps that it waited for. Clocks of hosts are taken to be right to a few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rankscope.diag.classify.blame import Finding, calls, pair_evidence, victim_evidence
from rankscope.diag.classify.view import JobView, RankView
from rankscope.diag.classify.wording import wait_phrase
from rankscope.diag.model import Collective, Evidence
from rankscope.watchdog.limits import ACT_AFTER_HIGH, BUSY_CEILING, BUSY_FACTOR, BUSY_FLOOR, WARM_UP_GAPS


@dataclass(frozen=True, slots=True)
class _Stillness:
    """How long nothing ended, and the longest time from one call to the next before, seconds."""

    seconds: float
    usual: float


def stood_still(job: JobView) -> Finding | None:
    """Row 7. Everyone waits, nobody is missing, and the records themselves prove that it lasts."""
    if job.unseen or job.entered_new or job.waits.edges or job.peers:
        return None
    if any(view.seen or view.gone or view.frozen or not view.waits for view in job.ranks):
        return None
    if not all(one.complete and not one.absent for one in job.waits.open):
        return None
    still = _stillness(job.ranks)
    if still is None:
        return None
    waiting = calls(job.ranks)
    lasted = f"nothing ended for {still.seconds:.0f} s, while ranks called further operations"
    usual = f"before, they were at most {_shown(still.usual)} apart"
    return Finding(
        verdict="RankCommHang",
        kind="network",
        severity="error" if still.seconds >= ACT_AFTER_HIGH else "warning",
        confidence="low",
        rule="7",
        summary=f"{wait_phrase(waiting, for_whom=())} and none leaves it: {lasted}; no rank stands out",
        victims=dict.fromkeys(waiting, ()),
        evidence=(
            *victim_evidence(job.ranks),
            Evidence("flight record", f"{lasted}; {usual}"),
            *pair_evidence(job),
        ),
    )


def _stillness(ranks: Sequence[RankView]) -> _Stillness | None:
    """``None`` where the records do not prove more than the job's own longest pauses."""
    opened = [view.inside.created_ns for view in ranks if view.inside is not None]
    if not opened or min(opened) <= 0:
        return None
    entries = [view.latest.record.entries if view.latest.record is not None else () for view in ranks]
    ended = (_last_sign(one) for of_rank in entries for one in of_rank if one.is_completed)
    since = max(*opened, *ended, 0)
    until = max((one.created_ns for of_rank in entries for one in of_rank), default=0)
    gaps = [gap for of_rank in entries for gap in _gaps(of_rank, until=since)]
    usual = max(gaps, default=0) / 1e9
    limit = min(BUSY_CEILING, max(BUSY_FLOOR, BUSY_FACTOR * usual))
    seconds = (until - since) / 1e9
    if seconds < (limit if len(gaps) >= WARM_UP_GAPS * len(ranks) else BUSY_CEILING):
        return None
    return _Stillness(seconds, usual)


def _last_sign(one: Collective) -> int:
    return max(one.created_ns, one.started_ns, one.completed_ns)


def _gaps(entries: Iterable[Collective], *, until: int) -> list[int]:
    """Times from one call to the next, in ns, of those that were made before."""
    times = [one.created_ns for one in entries if 0 < one.created_ns <= until]
    return [after - before for before, after in pairwise(times)]


def _shown(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"
