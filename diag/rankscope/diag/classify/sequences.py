"""Rules about sequence numbers: who has not entered the collective that others wait in (rows 4, 5, 6).

Source: DIAGNOSIS.md, "Naming the culprit". The numbers say who is waited for; the stacks of those ranks say
what they do.
"""

from __future__ import annotations

from dataclasses import replace

from rankscope.diag.classify.blame import Finding, blame, calls, lower, pair_evidence, victim_evidence
from rankscope.diag.classify.endings import left_early
from rankscope.diag.classify.view import JobView, away_ranks, waiting_ranks
from rankscope.diag.classify.wording import join, name_ranks, verb, wait_phrase
from rankscope.diag.model import Confidence, Evidence, Kind


def missing_from_collective(job: JobView) -> Finding | None:
    """Rows 4 and 5. Members wait at seq k, others have not entered it: walk to where the waits end."""
    if not job.waits.edges or job.entered_new:
        return None
    circle = job.waits.cycle()
    if circle:
        return _order_deadlock(job, circle)
    victims = [view for view in job.of(job.waits.edges) if view.alive]
    ends_at = job.of(job.waits.sinks())
    sinks = [view for view in ends_at if view.alive]
    gone = [view for view in ends_at if view.gone]
    if victims and gone and not sinks:
        return left_early(job, gone, victims)
    if not victims or not sinks:
        return None  # nothing was read from their processes: the numbers may be old
    away = [view for view in sinks if view.waiting is None]
    if not away and away_ranks(job):
        return None  # P2P and store waits carry no sequence numbers: the stacks go on from here
    whole = all(one.complete for one in job.missing)
    at_most: Confidence = "high" if whole and not gone else "medium"
    kind: Kind | None = None
    if not away:
        # They stand in another wait: a different way through the program, or a set-up the others are past.
        store = all(view.waiting == "store" for view in sinks)
        kind = "store_wait" if store else "desync"
        at_most = lower(at_most, to="medium" if store else "low")
    named = away or sinks
    victims = [view for view in victims if view not in named]
    found = blame(
        job,
        named,
        victims,
        rule="4",
        at_most=at_most,
        kind=kind,
        evidence=seq_evidence(job),
        numbered=job.paired,
    )
    ends, named_ranks = job.waits.ends(), set(found.culprits)
    waits = {
        view.rank: tuple(rank for rank in ends[view.rank] if rank in named_ranks) or found.culprits
        for view in victims
    }
    return replace(found, victims=waits)


def seq_evidence(job: JobView) -> list[Evidence]:
    """One line for each open collective that some member has not entered."""
    return [
        Evidence(
            "progress page",
            f"{name_ranks(one.absent)} {verb(one.absent, 'has', 'have')} not entered collective {one.seq}"
            f" of group {one.group}, {name_ranks(one.waiting)} {verb(one.waiting, 'waits', 'wait')} in it",
        )
        for one in job.missing
    ]


def _order_deadlock(job: JobView, circle: tuple[int, ...]) -> Finding:
    edges = [f"rank {rank} waits for rank {circle[(at + 1) % len(circle)]}" for at, rank in enumerate(circle)]
    others = [view for view in job.of(job.waits.edges) if view.rank not in circle]
    causes = [job.cause(view) for view in job.of(circle)]
    return Finding(
        verdict="RankNonCommHang",
        kind="order_deadlock",
        severity="warning",
        confidence="high" if job.paired and job.rhythm_known else "medium",
        rule="5",
        summary=join(
            "a circle of waits: " + ", ".join(edges[:6]), wait_phrase(calls(others), for_whom=circle)
        ),
        culprits=tuple(sorted(circle)),
        victims={
            **{rank: (circle[(at + 1) % len(circle)],) for at, rank in enumerate(circle)},
            **dict.fromkeys((view.rank for view in others), tuple(sorted(circle))),
        },
        location=next((cause.location for cause in causes), None),
        evidence=(*seq_evidence(job), *pair_evidence(job)),
    )


def entered_not_finished(job: JobView) -> Finding | None:
    """Row 6. Everyone entered k, some finished it, and all stacks are in communication."""
    if not job.paired or job.entered_new or job.waits.edges or away_ranks(job) or job.unseen:
        return None
    for one in job.waits.open:
        if one.done and one.complete and not one.absent:
            return Finding(
                verdict="RankCommHang",
                kind="network",
                severity="error",
                confidence="medium",
                rule="6",
                summary=f"everyone entered collective {one.seq} of group {one.group},"
                f" {name_ranks(one.waiting)} did not finish it",
                culprits=one.waiting,
                evidence=(*victim_evidence(waiting_ranks(job)), *pair_evidence(job)),
            )
    return None
