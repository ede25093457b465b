"""Rules about ranks that cannot run: ended, stopped, frozen in the kernel (rows 1 and 2).

Sources: DIAGNOSIS.md, "Naming the culprit" and decisions 2 and 3. They look at exits and process states and
only name what waits for those ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rankscope.diag.classify.activity import FROZEN_STATES
from rankscope.diag.classify.blame import Finding, activity_evidence, calls, pair_evidence, victim_evidence
from rankscope.diag.classify.view import JobView, RankView, away_ranks, waiting_ranks
from rankscope.diag.classify.wording import end_phrase, join, name_ranks, verb, wait_phrase
from rankscope.diag.model import Evidence, Location

_SIGTERM: Final = -15


def process_gone(job: JobView) -> Finding | None:
    """Row 1. The first to end is the culprit; who died of it, or was terminated after it, is not.

    torchrun terminates the survivors with SIGTERM (-15) and direct gloo peers raise "Connection closed by
    peer" 14-68 ms later (measured): neither is a cause.
    """
    gone = [view for view in job.ranks if view.gone]
    failed = [view for view in gone if view.latest.exit is None or view.latest.exit.code != 0]
    waiting = waiting_ranks(job)
    if not failed:
        return _left_early(job, gone, waiting)
    first = _first_failures(job, failed)
    ended = {view.rank: end_phrase(view.latest.exit) for view in failed}
    evidence = tuple(Evidence("exit", text, rank) for rank, text in ended.items())
    others = [rank for rank in ended if rank not in first]
    if not first:
        return Finding(
            "Exited", "dead", "info", "high", "1",
            f"{name_ranks(ended)} {verb(list(ended), 'was', 'were')} ended by SIGTERM from outside the job",
            evidence=evidence,
        )  # fmt: skip
    after = f"{name_ranks(others)} ended after it" if others else ""
    return Finding(
        verdict="Exited",
        kind="dead",
        severity="error",
        confidence="high" if len(first) == 1 else "low",
        rule="1",
        summary=join(
            *(f"rank {rank} {ended[rank]}" for rank in first),
            after,
            wait_phrase(calls(waiting), for_whom=first),
        ),
        culprits=first,
        victims=dict.fromkeys([*others, *(view.rank for view in waiting)], first),
        location=next((place for view in job.of(first) if (place := _raised_at(job, view))), None),
        evidence=evidence + tuple(victim_evidence(waiting)),
    )


def _raised_at(job: JobView, view: RankView) -> Location | None:
    """Where the error came from that a rank ended with."""
    frame = view.latest.exit.frame if view.latest.exit is not None else None
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
    facts = {view.rank: view.latest.exit for view in failed}
    own = [rank for rank, end in facts.items() if end is None or end.code != _SIGTERM]
    causes = [
        rank for rank in own if (end := facts[rank]) is None or not job.catalogue.is_consequence(end.message)
    ]
    candidates = causes or own
    ages = {
        rank: end.seconds_ago for rank in candidates if (end := facts[rank]) and end.seconds_ago is not None
    }
    if ages:
        oldest = max(ages.values())
        return tuple(sorted(rank for rank, age in ages.items() if age == oldest))
    killed = [rank for rank in candidates if (end := facts[rank]) and end.code is not None and end.code < 0]
    return tuple(sorted(killed or candidates))


def _left_early(job: JobView, gone: Sequence[RankView], waiting: Sequence[RankView]) -> Finding | None:
    if not gone:
        return None
    left = tuple(view.rank for view in gone)
    evidence = tuple(Evidence("exit", end_phrase(view.latest.exit), view.rank) for view in gone)
    if len(left) == job.latest.world_size:
        return Finding("Healthy", "none", "none", "high", "1", "all ranks have finished", evidence=evidence)
    if not waiting or away_ranks(job) or job.progress:
        return None
    return Finding(
        verdict="Exited",
        kind="exit",
        severity="warning",
        confidence="medium",
        rule="1",
        summary=join(
            f"{name_ranks(left)} ended with exit code 0 before the others",
            wait_phrase(calls(waiting), for_whom=left),
        ),
        culprits=left,
        victims=dict.fromkeys((view.rank for view in waiting), left),
        evidence=evidence + tuple(victim_evidence(waiting)),
    )


def all_stopped(job: JobView) -> Finding | None:
    """Decision 2: every rank stopped by a signal is somebody's wish, nobody's fault."""
    states = [view.frozen for view in job.ranks]
    if not states or set(states) - {"T", "t"} or len(states) < job.latest.world_size:
        return None
    return Finding(
        "RankNonCommHang", "frozen", "info", "high" if job.paired else "medium", "2",
        "the job is stopped by a signal: all ranks are in state T",
        evidence=tuple(activity_evidence(job.ranks)),
    )  # fmt: skip


def frozen_ranks(job: JobView) -> Finding | None:
    """Row 2. A rank that cannot run (T, t, D in both snapshots) is the culprit, whatever its stack shows."""
    frozen = [view for view in job.ranks if view.frozen]
    if not frozen:
        return None
    waiting = waiting_ranks(job)
    causes = {view.rank: job.cause(view) for view in frozen}
    culprits = tuple(causes)
    what = {
        view.rank: FROZEN_STATES.get(view.frozen or "", "a process whose main thread has ended")
        for view in frozen
    }
    places = [
        f"rank {rank} is {what[rank]}" + (f" in {cause.place}" if cause.location else "")
        for rank, cause in causes.items()
    ]
    evidence = [Evidence("/proc", _state_text(view), view.rank) for view in frozen]
    if len(frozen) > 1 and len(frozen) == job.latest.world_size:
        culprits = ()
    return Finding(
        verdict="RankNonCommHang",
        kind="frozen" if culprits else "storage",
        severity="warning",
        confidence="high" if job.paired else "medium",
        rule="2",
        summary=join(
            *places[:4],
            f"{len(places) - 4} more likewise" if len(places) > 4 else "",  # noqa: PLR2004 - a line's worth
            "no minority: all ranks" if not culprits else "",
            wait_phrase(calls(waiting), for_whom=culprits),
        ),
        culprits=culprits,
        victims=dict.fromkeys((view.rank for view in waiting), culprits),
        location=next((cause.location for cause in causes.values() if cause.location), None),
        evidence=(
            *evidence,
            *(fact for cause in causes.values() for fact in cause.evidence),
            *victim_evidence(waiting),
            *pair_evidence(job),
        ),
    )


def _state_text(view: RankView) -> str:
    facts = view.latest.facts
    wchan = f", in the kernel's {facts.wchan}" if facts and facts.wchan and facts.wchan != "0" else ""
    return f"state {view.frozen} ({FROZEN_STATES.get(view.frozen or '', 'ended')}){wchan}"
