"""Rule about who has not arrived: ranks wait in rendezvous, ``init_process_group`` or on the store (row 11).

Source: DIAGNOSIS.md, "Naming the culprit". Where all wait for one key of the store, nobody has not arrived:
that is a place that all share, row 10.
"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diag.classify.blame import (
    Finding,
    blame,
    calls,
    pair_evidence,
    unseen_phrase,
    victim_evidence,
)
from rankscope.diag.classify.comparison import site
from rankscope.diag.classify.things import thing_evidence, thing_of
from rankscope.diag.classify.view import JobView, RankView, away_ranks, waiting_ranks
from rankscope.diag.classify.wording import NO_MINORITY, join, name_ranks, verb, wait_phrase
from rankscope.diag.model import Confidence, Evidence, Kind


def start_up(job: JobView) -> Finding | None:
    """Row 11. Ranks wait in rendezvous, ``init_process_group`` or on the store: who has not arrived?

    Where all wait for one key of the store, nobody has not arrived: that is row 10.
    """
    waiting = waiting_ranks(job)
    if not waiting or any(view.waiting != "store" for view in waiting):
        return None
    starting = any(view.position and view.position.label == "startup" for view in waiting)
    kind: Kind = "startup" if starting else "store_wait"
    away = away_ranks(job)
    if away:
        # Communicators are set up at their first use, too: whoever waits for its GPU is past the start.
        past = all(view.position is not None and view.position.label == "gpu_wait" for view in away)
        return blame(job, away, waiting, rule="11", kind=kind if starting and not past else None)
    missing = tuple(view.rank for view in job.ranks if view.gone)
    if starting and missing and not job.unseen:
        return _never_came(job, waiting, missing)
    together = not starting and not job.unseen and len({site(view)[1:] for view in waiting}) == 1
    cause = job.cause(waiting[0])
    rest = unseen_phrase(job)
    thing = thing_of(job, waiting[0], kind)
    return Finding(
        verdict="RankNonCommHang" if not job.unseen or job.paired else "Unknown",
        kind=kind,
        severity="warning",
        confidence=_of_all(job, waiting) if together else "low",
        rule="10" if together else "11",
        summary=join(
            wait_phrase(calls(waiting), for_whom=()) + (f" for {thing}" if thing else ""),
            f"{rest}: it may not have arrived" if rest else "",
            "" if rest else NO_MINORITY if together else "no minority: all ranks are there",
        ),
        victims=dict.fromkeys((view.rank for view in waiting), ()),
        location=cause.location,
        evidence=(*victim_evidence(waiting), *thing_evidence(waiting[0], thing), *pair_evidence(job)),
    )


def _never_came(job: JobView, waiting: Sequence[RankView], missing: tuple[int, ...]) -> Finding:
    """Row 11. Ranks without a process, while all others are in a set-up that needs them."""
    return Finding(
        verdict="RankNonCommHang",
        kind="startup",
        severity="warning",
        confidence="medium" if job.paired else "low",
        rule="11",
        summary=join(
            f"{name_ranks(missing)} {verb(missing, 'has', 'have')} no process: ended, or never started",
            wait_phrase(calls(waiting), for_whom=missing),
        ),
        culprits=missing,
        victims=dict.fromkeys((view.rank for view in waiting), missing),
        evidence=(
            *(
                Evidence("process", view.latest.reason or "it has ended", view.rank)
                for view in job.of(missing)
            ),
            *victim_evidence(waiting),
            *pair_evidence(job),
        ),
    )


def _of_all(job: JobView, views: Sequence[RankView]) -> Confidence:
    """How sure a common cause is, where all wait quietly in a job that was seen to move."""
    return "medium" if job.rhythm_known and all(view.activity.level == "quiet" for view in views) else "low"
