"""What is on a report: a diagnosis and what is stored beside it, put together into one document. Pure.

It decides nothing and counts nothing anew: every number is one that ``diag analyze --json`` or ``diag history
--json`` has. What a page cannot hold is left out and counted.
"""

from __future__ import annotations

from typing import Final

from rankscope.diag.history.model import JobHistory
from rankscope.diag.merge.groups import split_stacks
from rankscope.diag.model import SLOW, Decision, Diagnosis, JobSnapshot, Location, UnknownFrame
from rankscope.diag.ranks import unfold_ranks
from rankscope.diag.report.html.document import Fact, Head, OddFrame, Page, Place, RankSet
from rankscope.diag.report.html.rank_parts import (
    idle_of,
    progress_by_rank,
    ranks_part,
    reasons_part,
    rows_part,
)
from rankscope.diag.report.html.shown import LONGEST_SET, Indexed, IndexedSets, rank_set, shown
from rankscope.diag.report.html.stack_parts import MOST_OTHERS, stacks_part, tree_part
from rankscope.diag.report.html.timeline_part import decided_part, timeline_part
from rankscope.diag.report.html.wait_part import waits_part

MOST_EVIDENCE: Final = 200
_MOST_NODES: Final = 20
_MOVING: Final = ("Healthy", *SLOW)
"""Verdicts of jobs that make steps: how long ago the last one was says nothing."""


def page_data(
    diagnosis: Diagnosis,
    *,
    made: str,
    look: JobSnapshot | None = None,
    decision: Decision | None = None,
    history: JobHistory | None = None,
) -> Page:
    """The document of a report.

    Args:
        diagnosis: what was found.
        made: when the page is made, ISO 8601, UTC.
        look: the last look that it was found in: steps, and seconds since them; ``None`` when not stored.
        decision: what was decided about it.
        history: what the job has been through, ``None`` when nothing is stored of it.
    """
    frames, sets = Indexed(), IndexedSets()
    culprits = frozenset(diagnosis.culprits)
    progress = progress_by_rank(look)
    compared, others = split_stacks(diagnosis.stacks)
    rows, rows_left_out = rows_part(diagnosis.ranks, progress, sets)
    incident = diagnosis.incident
    return Page(
        made=made,
        head=_head(diagnosis, [idle_of(one) for one in progress.values()]),
        decided=decided_part(decision, history, incident),
        stacks=stacks_part(compared, culprits=culprits, frames=frames, sets=sets),
        others=stacks_part(others, culprits=frozenset(), frames=frames, sets=sets, most=MOST_OTHERS),
        tree=tree_part(compared, culprits=culprits, frames=frames, sets=sets),
        waits=waits_part(diagnosis.ranks, sets),
        ranks=ranks_part(diagnosis.ranks, progress),
        rows=rows,
        rows_left_out=rows_left_out,
        unobserved=reasons_part(((one.rank, one.reason) for one in diagnosis.unobserved), sets),
        limits=reasons_part(
            ((one.rank, one.reason) for one in diagnosis.ranks if one.observed and one.reason), sets
        ),
        evidence=tuple(
            Fact(shown(one.source, 100), shown(one.fact), one.rank)
            for one in diagnosis.evidence[:MOST_EVIDENCE]
        ),
        evidence_left_out=max(0, len(diagnosis.evidence) - MOST_EVIDENCE),
        odd_frames=tuple(
            OddFrame(_odd(one), sets.of_text(one.ranks)) for one in diagnosis.unknown_frames[:50]
        ),
        timeline=timeline_part(history, incident) if history is not None else None,
        frames=frames.values,
        sets=sets.values,
    )


def _head(diagnosis: Diagnosis, idle: list[float | None]) -> Head:
    known = [seconds for seconds in idle if seconds is not None]
    return Head(
        job=shown(diagnosis.job, 400),
        time=shown(diagnosis.time, 40),
        verdict=diagnosis.verdict,
        kind=diagnosis.kind,
        severity=diagnosis.severity,
        confidence=diagnosis.confidence,
        summary=shown(diagnosis.summary),
        culprits=rank_set(diagnosis.culprits),
        nodes=tuple(shown(node, 200) for node in diagnosis.nodes[:_MOST_NODES]),
        node_count=len(diagnosis.nodes),
        location=_place(diagnosis.location),
        world_size=diagnosis.world_size,
        observed=_observed(diagnosis.observed),
        rule=shown(diagnosis.rule, 100),
        would_change=shown(diagnosis.would_change),
        incident=diagnosis.incident and shown(diagnosis.incident, 100),
        stopped_for=None if diagnosis.verdict in _MOVING else min(known, default=None),
    )


def _observed(folded: str) -> RankSet:
    try:
        return rank_set(unfold_ranks(folded))
    except ValueError:  # a damaged record
        return RankSet(shown(folded, LONGEST_SET), 0)


def _place(location: Location | None) -> Place | None:
    if location is None:
        return None
    source = location.source.strip() if location.source else None
    return Place(
        function=shown(location.function),
        file=shown(location.file),
        line=location.line,
        source=source and shown(source),
        rank=location.rank,
    )


def _odd(frame: UnknownFrame) -> str:
    return shown(f"{frame.function} ({frame.file})" if frame.file else frame.function)
