"""The entry point: a pair of job snapshots to a ``Diagnosis``.

Pure: the caller reads files and clocks. This module only puts the finding of a rule into the record.
"""

from __future__ import annotations

from typing import get_args

from rankscope.diag.classify.beside import threads_in_communication
from rankscope.diag.classify.blame import Finding
from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.doubts import would_change
from rankscope.diag.classify.looking import look
from rankscope.diag.classify.position import SourceLine
from rankscope.diag.classify.rules import apply_rules
from rankscope.diag.classify.slow_limits import SlowLook
from rankscope.diag.classify.unknown_frames import unknown_frames
from rankscope.diag.classify.view import JobView, RankView
from rankscope.diag.merge.groups import fold_others, fold_stacks
from rankscope.diag.model import (
    Diagnosis,
    Evidence,
    JobSnapshot,
    RankClass,
    RankFinding,
    RankSnapshot,
    RankState,
    Role,
    StackGroup,
    ThreadStack,
    UnknownFrame,
    Unobserved,
)
from rankscope.diag.ranks import fold_ranks

_CLASSES: dict[str, RankClass] = {name: name for name in get_args(RankClass)}


def diagnose(
    pair: tuple[JobSnapshot, JobSnapshot | None],
    *,
    catalogue: Catalogue,
    source_line: SourceLine,
    time: str,
    incident: str | None = None,
    samples: tuple[JobSnapshot, ...] = (),
    silent_seconds: float | None = None,
    overdue: bool = False,
    slow: SlowLook | None = None,
) -> Diagnosis:
    """Say what is wrong with a job.

    Args:
        pair: two snapshots some seconds apart, in order; ``None`` for the second when there is one only,
            which limits the confidence to medium.
        catalogue: what frames mean.
        source_line: text of a line of a file, ``None`` when it cannot be read.
        time: when, ISO 8601 UTC: it goes into the record as it is.
        incident: id of the incident it belongs to.
        samples: further snapshots of busy ranks in quick succession, which can tell an endless Python loop.
        silent_seconds: how long a watcher has seen no progress, ``None`` when nobody watched.
        overdue: whether that is ten times what the watcher gives to working ranks: even they are named
            then, with low confidence.
        slow: given when the looks were taken to find out what is slow; the slow rules judge none else of a
            live job.

    Returns:
        The diagnosis. With verdict ``Unknown`` nobody is a culprit; ranks that are only suspected have that
        ``state`` and are named in the summary. Never raises on odd snapshots.
    """
    job = look(
        *pair,
        catalogue=catalogue,
        source_line=source_line,
        samples=samples,
        silent_seconds=silent_seconds,
        overdue=overdue,
        slow=slow,
    )
    found = apply_rules(job)
    views = {view.rank: view for view in job.ranks}
    everyone = sorted({*range(job.latest.world_size), *views})
    findings = tuple(_rank_finding(rank, views.get(rank), found) for rank in everyone)
    observed = [view.rank for view in job.ranks if view.observed]
    culprits = found.culprits if found.verdict != "Unknown" else ()
    return Diagnosis(
        job=job.latest.job,
        time=time,
        world_size=job.latest.world_size,
        observed=fold_ranks(observed),
        verdict=found.verdict,
        kind=found.kind,
        severity=found.severity,
        confidence=found.confidence,
        culprits=culprits,
        nodes=tuple(sorted({views[rank].latest.node for rank in culprits if rank in views} - {""})),
        summary=found.summary,
        location=found.location,
        rule=found.rule,
        evidence=(*found.evidence, *_beside(job, found), *_history(job)),
        ranks=findings,
        stacks=_stacks(job),
        unobserved=tuple(
            Unobserved(one.rank, one.reason or "no stack was taken")
            for one in findings
            if not one.observed and one.state != "exited"
        ),
        incident=incident,
        unknown_frames=_unknown(job),
        would_change=would_change(job, found),
        since_step=found.since_step,
    )


def _no_source(_file: str, _line: int) -> str | None:
    return None


def communicating_ranks(
    snapshot: JobSnapshot, catalogue: Catalogue, *, source_line: SourceLine = _no_source
) -> frozenset[int]:
    """Ranks whose deciding thread waits in communication, in set-up or on the store.

    Args:
        snapshot: one look.
        catalogue: what frames mean.
        source_line: text of a line of a file; by frames alone without it.
    """
    job = look(snapshot, None, catalogue=catalogue, source_line=source_line)
    return frozenset(view.rank for view in job.ranks if view.waiting is not None)


def _unknown(job: JobView) -> tuple[UnknownFrame, ...]:
    places = ((view.rank, view.position) for view in job.ranks if view.position is not None)
    return unknown_frames(places, job.catalogue)


def _stacks(job: JobView) -> tuple[StackGroup, ...]:
    """Deciding threads first, rarest first; then all other threads."""
    deciding = {view.rank: view.position.thread for view in job.ranks if view.position is not None}

    def decide(rank: RankSnapshot) -> ThreadStack | None:
        return deciding.get(rank.rank)

    ranks = job.latest.ranks
    return fold_stacks(ranks, decide=decide) + fold_others(ranks, decide=decide)


def _rank_finding(rank: int, view: RankView | None, found: Finding) -> RankFinding:
    if view is None:
        return RankFinding(
            rank, "", 0, "unobserved", "bystander", observed=False, reason="no snapshot of this rank"
        )
    role = _role(rank, found)
    return RankFinding(
        rank=rank,
        node=view.latest.node,
        pid=view.latest.pid,
        state=_state(view, role, found),
        role=role,
        rank_class=_CLASSES.get(found.verdict) if role == "culprit" else None,
        waits_for=found.victims.get(rank, ()) if role == "victim" or found.kind == "order_deadlock" else (),
        position=view.call,
        observed=view.observed,
        reason=view.latest.reason or (None if view.observed else _unread(view)),
    )


def _history(job: JobView) -> tuple[Evidence, ...]:
    """What looks before those that are judged show."""
    stretch = job.stretch
    if not stretch.before:
        return ()
    text = f"the job moved between earlier looks of {len(stretch.history)}"
    if stretch.length > 1:
        text += f"; between the newest {stretch.length} no wait ended or began"
    return (Evidence("snapshot", text),)


def _beside(job: JobView, found: Finding) -> tuple[Evidence, ...]:
    """Other threads in collectives, where something is wrong."""
    return threads_in_communication(job) if found.verdict.endswith("Hang") or found.rule == "none" else ()


def _unread(view: RankView) -> str | None:
    """Why a rank of which threads were read is not seen."""
    threads = view.latest.threads
    if not threads or view.gone:
        return None
    if any(thread.is_cut for thread in threads if thread.is_main):
        return "its dump was cut off inside of its main thread"
    return "its dump does not show its main thread: it was cut off, or its tool left it out"


def _role(rank: int, found: Finding) -> Role:
    if rank in found.culprits:
        return "culprit" if found.verdict != "Unknown" else "bystander"
    return "victim" if rank in found.victims else "bystander"


def _state(view: RankView, role: Role, found: Finding) -> RankState:
    if view.gone:
        return "exited"
    if view.rank in found.culprits:
        if found.verdict.endswith("Slow"):
            return "slow"
        return "suspected" if found.verdict == "Unknown" else "hung"
    if view.frozen:
        return "hung"
    if not view.observed:
        return "unobserved"
    return "waiting" if role == "victim" else "running"
