"""The wait-for graph of the ranks as a finding tells it: edge by edge, its ends, and its circles.

Edges come from sequence numbers (collectives are AND-waits: everyone in one waits for everyone who is not)
and from sends and receives whose peer is known. Source: DIAGNOSIS.md, "Naming the culprit", rows 4 and 5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from rankscope.diag.classify.blame import Finding, calls, lower, pair_evidence, victim_evidence
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.waits import OpenCollective, Waits
from rankscope.diag.classify.wording import join, name_ranks, verb, wait_phrase
from rankscope.diag.model import Confidence, Evidence

_SHOWN: Final = 6  # edges of a circle in a summary
_LISTED: Final = 64  # edges in the evidence: beyond it nobody reads


def graph_evidence(job: JobView, waits: Waits) -> list[Evidence]:
    """One line for each edge, ranks of one edge together, and where all chains end."""
    lines = [*seq_evidence(job), *peer_evidence(job)][:_LISTED]
    ends = waits.sinks()
    if ends and any(rank in waits.edges for targets in waits.edges.values() for rank in targets):
        lines.append(Evidence("wait-for graph", f"every chain of waits ends at {name_ranks(ends)}"))
    return lines


def seq_evidence(job: JobView) -> list[Evidence]:
    """One line for each open collective that some member has not entered."""
    return [
        Evidence(
            _teller(job, one),
            f"{name_ranks(one.absent)} {verb(one.absent, 'has', 'have')} not entered collective {one.seq}"
            f" of group {one.group}, {name_ranks(one.waiting)} {verb(one.waiting, 'waits', 'wait')} in it",
        )
        for one in job.missing
    ]


def _teller(job: JobView, one: OpenCollective) -> str:
    on_page = any(view.latest.progress and view.latest.progress.groups for view in job.of(one.waiting))
    return "progress page" if on_page else job.told_by(one.waiting)


def peer_evidence(job: JobView) -> list[Evidence]:
    """One line for each rank whose peer is known."""
    return [
        Evidence(
            "local variables" if view.position is not None else job.told_by((view.rank,)),
            f"{view.call} of rank {view.rank} waits for {name_ranks(job.peers[view.rank])}",
            view.rank,
        )
        for view in job.of(job.peers)
    ]


def order_deadlock(
    job: JobView, waits: Waits, circle: Collection[int], *, guessed: Sequence[Evidence] = ()
) -> Finding:
    """Row 5. Ranks that wait for each other in a circle, edge by edge.

    Args:
        job: the job.
        waits: with all edges.
        circle: the ranks that wait for each other.
        guessed: why some of the edges are believed that nothing shows, which lowers the confidence.
    """
    ranks = tuple(sorted(circle))
    inside = {rank: tuple(sorted(waits.edges[rank].intersection(ranks))) for rank in ranks}
    edges = [
        f"{name_ranks(sources)} {verb(sources, 'waits', 'wait')} for {name_ranks(targets)}"
        for targets, sources in _folded(inside.items())
    ]
    others = [view for view in job.of(waits.edges) if view.rank not in circle]
    causes = [job.cause(view) for view in job.of(ranks)]
    confidence: Confidence = "high" if job.paired and job.rhythm_known else "medium"
    return Finding(
        verdict="RankNonCommHang",
        kind="order_deadlock",
        severity="warning",
        confidence=lower(confidence) if guessed else confidence,
        rule="5",
        summary=join(
            "a circle of waits: " + ", ".join(edges[:_SHOWN]) + ", ..." * (len(edges) > _SHOWN),
            wait_phrase(calls(others), for_whom=ranks),
        ),
        culprits=ranks,
        victims={**inside, **dict.fromkeys((view.rank for view in others), ranks)},
        location=next((cause.location for cause in causes if cause.location), None),
        evidence=(
            *(Evidence("wait-for graph", edge) for edge in edges[:_LISTED]),
            *guessed,
            *victim_evidence(job.of(ranks)),
            *seq_evidence(job)[:_LISTED],
            *peer_evidence(job)[:_LISTED],
            *pair_evidence(job),
        ),
    )


def _folded(
    edges: Iterable[tuple[int, tuple[int, ...]]],
) -> list[tuple[tuple[int, ...], list[int]]]:
    """Ranks by whom they wait for, in the order of the first."""
    found: dict[tuple[int, ...], list[int]] = {}
    for rank, targets in edges:
        found.setdefault(targets, []).append(rank)
    return list(found.items())
