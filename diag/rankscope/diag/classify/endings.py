"""Rules about ranks that have ended (row 1).

Only a code that is not 0 is a failure, or an exception without a code. A rank that ended with 0, or of which
nobody learned either, is to blame where the others wait for it and for nobody else: a rank that finished
early is no reason for a hang among those that go on. Source: DIAGNOSIS.md, "Naming the culprit".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rankscope.diag.classify.blame import Finding, calls, lower, victim_evidence
from rankscope.diag.classify.view import JobView, RankView, away_ranks, waiting_ranks
from rankscope.diag.classify.wording import end_phrase, ends_phrase, join, name_ranks, verb, wait_phrase
from rankscope.diag.model import Confidence, Evidence, ExitFacts, Kind, Location

_SIGTERM: Final = -15
_UNKNOWN: Final = ExitFacts(code=None)


def process_gone(job: JobView) -> Finding | None:
    """Row 1. The first to fail is the culprit; who died of it, or was terminated after it, is not.

    torchrun terminates the survivors with SIGTERM (-15) and direct gloo peers raise "Connection closed by
    peer" 14-68 ms later (measured): neither is a cause. A rank that left with 0 before may be.
    """
    gone = [view for view in job.ranks if view.gone]
    if not gone:
        return None
    failed = [view for view in gone if _has_failed(_end(view))]
    left = [view for view in gone if not _has_failed(_end(view))]
    if failed:
        before = _left_before(job, failed, left)
        return left_early(job, before, waiting_ranks(job), died=failed) if before else _failed(job, failed)
    if len(left) == job.latest.world_size:
        return _all_ended(left)
    awaited = _awaited(job, left)
    return left_early(job, awaited, waiting_ranks(job)) if awaited else None


def _failed(job: JobView, failed: Sequence[RankView]) -> Finding:
    first = _first_failures(job, failed)
    if job.of(first) and all(job.catalogue.is_consequence(_end(view).message) for view in job.of(first)):
        cut_off = _cut_off(job)
        if cut_off:
            return _lost_peer(job, failed, cut_off)
    waiting = waiting_ranks(job)
    ended = {view.rank: end_phrase(view.latest.exit) for view in failed}
    evidence = tuple(Evidence("exit", text, rank) for rank, text in ended.items())
    others = [rank for rank in ended if rank not in first]
    if not first:
        return Finding(
            "Exited", "dead", "info", "high", "1",
            f"{name_ranks(ended)} {verb(list(ended), 'was', 'were')} ended by SIGTERM from outside the job",
            evidence=evidence,
        )  # fmt: skip
    confidence: Confidence = "high" if len(first) == 1 else "low"
    if all(view.gone or not view.observed for view in job.ranks) and any(
        _end(view).code is None for view in job.of(first)
    ):
        confidence = lower(confidence, to="medium")  # nobody saw it end, and no other is known to live
    if all(job.catalogue.is_consequence(_end(view).message) for view in job.of(first)):
        confidence = lower(confidence, to="low" if job.unseen else "medium")  # the cause was not seen
    return Finding(
        verdict="Exited",
        kind="dead",
        severity="error",
        confidence=confidence,
        rule="1",
        summary=join(
            ends_phrase({rank: ended[rank] for rank in first}),
            f"{name_ranks(others)} ended after it" if others else "",
            wait_phrase(calls(waiting), for_whom=first),
        ),
        culprits=first,
        victims=dict.fromkeys([*others, *(view.rank for view in waiting)], first),
        location=next((place for view in job.of(first) if (place := _raised_at(job, view))), None),
        evidence=evidence + tuple(victim_evidence(waiting)),
    )


def _cut_off(job: JobView) -> list[int]:
    """Ranks of which nothing is known but that they may have ended: no stack, no exit, no process.

    Those that are proven to have ended, where there are such.
    """
    views = {view.rank: view for view in job.ranks}
    proven = [view.rank for view in job.ranks if view.gone and view.latest.exit is None]
    if proven:
        return proven
    return [
        rank
        for rank in range(job.latest.world_size)
        if rank not in views or not (views[rank].alive or views[rank].gone or views[rank].frozen)
    ]


def _lost_peer(job: JobView, failed: Sequence[RankView], cut_off: Sequence[int]) -> Finding:
    """All that failed died of a lost connection, and of the one that they lost nothing is known.

    It closed the connection, so its process ended first; killed by a signal, it leaves no message.
    """
    victims = [view.rank for view in failed]
    named = tuple(cut_off) if len(cut_off) == 1 else ()
    text = f"{name_ranks(victims)} ended because a connection was closed"
    if named:
        rest = f"rank {named[0]} is the only one of which no end and no stack is known: it ended first"
    else:
        rest = f"of {name_ranks(cut_off)} no end and no stack is known: one of them ended first"
    return Finding(
        verdict="Exited",
        kind="dead",
        severity="error",
        confidence="low",
        rule="1",
        summary=join(text, rest),
        culprits=named,
        victims=dict.fromkeys(victims, named),
        evidence=(
            *(Evidence("exit", end_phrase(view.latest.exit), view.rank) for view in failed),
            *(
                Evidence("tool", view.latest.reason, view.rank)
                for view in job.of(cut_off)
                if view.latest.reason
            ),
        ),
    )


def left_early(
    job: JobView, left: Sequence[RankView], waiting: Sequence[RankView], *, died: Sequence[RankView] = ()
) -> Finding:
    """Name ranks that ended without a failure while others needed them.

    Args:
        job: the job.
        left: those ranks, at least one; their code is 0 or unknown.
        waiting: ranks that wait for them.
        died: ranks that ended because of it.
    """
    ranks = tuple(view.rank for view in left)
    unknown = [view.rank for view in left if _end(view).code is None]
    known = [rank for rank in ranks if rank not in unknown]
    sure = not unknown and not job.unseen and (len(ranks) == 1 or not died)
    kind: Kind = "exit" if died or not unknown else "dead"
    return Finding(
        verdict="Exited",
        kind=kind,
        severity="warning",
        confidence="medium" if sure else "low",
        rule="1",
        summary=join(
            f"{name_ranks(known)} ended with exit code 0 before the others" if known else "",
            f"{name_ranks(unknown)} {verb(unknown, 'has', 'have')} ended before the others, "
            f"{verb(unknown, 'its exit code is', 'their exit codes are')} unknown"
            if unknown
            else "",
            f"{name_ranks(view.rank for view in died)} ended after {verb(ranks, 'it', 'them')}"
            if died
            else "",
            wait_phrase(calls(waiting), for_whom=ranks),
        ),
        culprits=ranks,
        victims=dict.fromkeys((view.rank for view in (*died, *waiting)), ranks),
        evidence=(
            *(Evidence("exit", end_phrase(view.latest.exit), view.rank) for view in (*left, *died)),
            *victim_evidence(waiting),
        ),
    )


def _all_ended(left: Sequence[RankView]) -> Finding:
    evidence = tuple(Evidence("exit", end_phrase(view.latest.exit), view.rank) for view in left)
    unknown = [view.rank for view in left if _end(view).code is None]
    if not unknown:
        return Finding("Healthy", "none", "none", "high", "1", "all ranks have finished", evidence=evidence)
    text = f"all ranks have ended; how {name_ranks(unknown)} did is not known"
    return Finding("Unknown", "none", "info", "low", "1", text, evidence=evidence)


def _end(view: RankView) -> ExitFacts:
    return view.latest.exit or _UNKNOWN


def _has_failed(end: ExitFacts) -> bool:
    """A code tells; without one the exception does that is the last word of its log."""
    return bool(end.message) if end.code is None else end.code != 0


def _raised_at(job: JobView, view: RankView) -> Location | None:
    """Where the error came from that a rank ended with."""
    frame = _end(view).frame
    if frame is None:
        return None
    return Location(
        function=frame.function,
        file=frame.file,
        line=frame.line,
        source=job.source_line(frame.file, frame.line),
        rank=view.rank,
    )


def _first_failures(job: JobView, failed: Sequence[RankView]) -> tuple[int, ...]:
    """Who ended first of those whose end is not plainly another's consequence; several when it is a tie."""
    own = [view for view in failed if _end(view).code != _SIGTERM]
    candidates = [view for view in own if not job.catalogue.is_consequence(_end(view).message)] or own
    ages = {view.rank: age for view in candidates if (age := _end(view).seconds_ago) is not None}
    if ages:
        oldest = max(ages.values())
        return tuple(sorted(rank for rank, age in ages.items() if age == oldest))
    killed = [view for view in candidates if (_end(view).code or 0) < 0]
    return tuple(sorted(view.rank for view in killed or candidates))


def _left_before(job: JobView, failed: Sequence[RankView], left: Sequence[RankView]) -> list[RankView]:
    """Ranks that left before others died of a lost connection, when no failure has a cause of its own."""
    own = [_end(view) for view in failed if _end(view).code != _SIGTERM]
    if not own or not all(job.catalogue.is_consequence(end.message) for end in own):
        return []
    began = max((end.seconds_ago for end in own if end.seconds_ago is not None), default=0.0)
    return [view for view in left if (age := _end(view).seconds_ago) is None or age >= began]


def _awaited(job: JobView, left: Sequence[RankView]) -> list[RankView]:
    """Ranks that left and that all others wait for, as far as sequence numbers can tell.

    A live rank that waits for nobody, or cannot run, may be the one that is waited for: the next rules look.
    """
    live = [view for view in job.ranks if not view.gone]
    waiting = waiting_ranks(job)
    if not waiting or away_ranks(job) or any(view.frozen for view in live):
        return []
    if job.progress is not None or job.entered_new:
        return []
    if all(view.position and view.position.label == "startup" for view in waiting):
        left = [view for view in left if _end(view).code is not None]  # it may never have begun: row 11
    ranks = {view.rank for view in waiting}
    held = [one for one in job.waits.open if ranks.intersection(one.waiting)]
    return [view for view in left if not held or any(one.may_await(view.rank) for one in held)]
