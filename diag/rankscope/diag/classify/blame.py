"""From sinks to a finding: how sure it is, and what it says.

Which of the ranks that others wait for are called hung at all is decided in ``sinks``; here it is put into
words, with the evidence. Source: DIAGNOSIS.md, "Naming the culprit".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rankscope.diag.classify.kinds import Cause
from rankscope.diag.classify.loops import in_one_c_call
from rankscope.diag.classify.sinks import named_sinks, waits_for_device
from rankscope.diag.classify.view import JobView, RankView
from rankscope.diag.classify.wording import busy_phrase, join, name_ranks, stuck_phrase, verb, wait_phrase
from rankscope.diag.model import Confidence, Evidence, Kind, Location, Severity, Verdict
from rankscope.watchdog.limits import ALIVE_AGAIN_AFTER

_LOWER: Final[dict[Confidence, Confidence]] = {"high": "medium", "medium": "low", "low": "low"}
_ORDER: Final[dict[Confidence, int]] = {"low": 0, "medium": 1, "high": 2}
_SHOWN: Final = 16  # ranks whose evidence is listed one by one


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found.

    Attributes:
        rule: its row in DIAGNOSIS.md.
        culprits: those named; with verdict ``Unknown`` they are suspects.
        victims: ranks that wait, and for whom.
        location: the first culprit's line, or the common place.
        is_tie: whether it names every side of one, as likely as each other.
        since_step: the step since which the culprits are slow, ``None`` when that is not known.
    """

    verdict: Verdict
    kind: Kind
    severity: Severity
    confidence: Confidence
    rule: str
    summary: str
    culprits: tuple[int, ...] = ()
    victims: Mapping[int, tuple[int, ...]] = field(default_factory=dict[int, tuple[int, ...]])
    location: Location | None = None
    evidence: tuple[Evidence, ...] = ()
    is_tie: bool = False
    since_step: int | None = None


def lower(confidence: Confidence, *, to: Confidence | None = None) -> Confidence:
    """One level less, or at most ``to``."""
    if to is None:
        return _LOWER[confidence]
    return min(confidence, to, key=_ORDER.__getitem__)


def blame(
    job: JobView,
    sinks: Sequence[RankView],
    victims: Sequence[RankView],
    *,
    rule: str,
    at_most: Confidence = "high",
    kind: Kind | None = None,
    evidence: Sequence[Evidence] = (),
    numbered: bool = False,
    proven: bool = False,
) -> Finding:
    """Name the sinks, or say that they are suspected only.

    Args:
        job: the job.
        sinks: the ranks waited for, at least one, by rank.
        victims: the ranks that wait.
        rule: the row that fired.
        at_most: what the evidence of the rule can carry.
        kind: takes the place of a kind that says only ``user_code``.
        evidence: the rule's own.
        numbered: whether sequence numbers show that the victims' waits did not end. Without them, victims
            that sleep and wake excuse a sink that ticks: a slow data loader looks the same.
        proven: whether records show every member of what is open, and the sinks missing from it.
    """
    excused = not numbered and any(view.activity.stirred for view in victims)
    named = named_sinks(job, sinks, excused=excused, proven=proven)
    if named is None:
        return suspect(job, sinks, victims, rule=rule, evidence=evidence)
    confidence = lower(named.confidence, to=at_most)
    if not job.rhythm_known:
        confidence = lower(confidence, to="medium")
    if not numbered and any(view.gone for view in job.ranks):
        confidence = lower(confidence, to="medium")  # they may wait for the one that has ended
    if job.unseen:
        confidence = lower(confidence)
    loop = named.manner == "loops"
    causes = {
        view.rank: _as_loop(job, view) if loop else _with_kind(job.cause(view), kind) for view in named.ranks
    }
    if any(cause.kind == "child_process" for cause in causes.values()):
        # A command that the rank runs (an upload, a conversion) may be waiting for a network by right.
        confidence = lower(confidence, to="medium")
    return Finding(
        verdict="RankNonCommHang",
        kind=causes[named.ranks[0].rank].kind,
        severity="info" if named.is_at_work else severity_of(job, alive=named.is_alive),
        confidence=confidence,
        rule=rule,
        summary=join(
            stuck_phrase(
                {rank: (cause.place, cause.kind) for rank, cause in causes.items()},
                without_task=ranks_without_task(named.ranks),
            ),
            wait_phrase(calls(victims), for_whom=list(causes)),
            unseen_phrase(job),
        ),
        culprits=tuple(causes),
        victims=dict.fromkeys((view.rank for view in victims), tuple(causes)),
        location=causes[named.ranks[0].rank].location,
        evidence=(
            *(fact for cause in list(causes.values())[:_SHOWN] for fact in cause.evidence),
            *activity_evidence(named.ranks[:_SHOWN]),
            *victim_evidence(victims),
            *evidence,
            *pair_evidence(job),
        ),
    )


def ranks_without_task(views: Sequence[RankView]) -> list[int]:
    """Those whose worker waits for its next task: it has returned from its last, or was given none."""
    return [view.rank for view in views if view.position is not None and view.position.label == "no_task"]


def severity_of(job: JobView, *, alive: bool) -> Severity:
    """A rank that polls or loops may be at honest work; a watcher soon knows whether that ends by itself."""
    silent = job.silent_seconds
    return "info" if alive and silent is not None and silent < ALIVE_AGAIN_AFTER else "warning"


def suspect(
    job: JobView,
    sinks: Sequence[RankView],
    victims: Sequence[RankView],
    *,
    rule: str,
    evidence: Sequence[Evidence] = (),
) -> Finding:
    """Say who is waited for without calling it a hang: it works, or moved."""
    causes = {view.rank: job.cause(view) for view in sinks}
    return Finding(
        verdict="Unknown",
        kind=causes[sinks[0].rank].kind,
        severity="info",
        confidence="low",
        rule=rule,
        summary="suspected, not confirmed: "
        + join(
            busy_phrase(
                {rank: (cause.place, cause.kind) for rank, cause in causes.items()},
                seconds=silence(job, sinks),
                on_device=[view.rank for view in sinks if waits_for_device(view)],
            ),
            wait_phrase(calls(victims), for_whom=list(causes)),
            unseen_phrase(job),
        ),
        culprits=tuple(causes),
        victims=dict.fromkeys((view.rank for view in victims), tuple(causes)),
        location=causes[sinks[0].rank].location,
        evidence=(
            *(fact for cause in list(causes.values())[:_SHOWN] for fact in cause.evidence),
            *activity_evidence(sinks[:_SHOWN]),
            *victim_evidence(victims),
            *evidence,
            *pair_evidence(job),
        ),
    )


def silence(job: JobView, views: Sequence[RankView]) -> float:
    """Seconds without progress: a watcher's, else the window of the pair."""
    if job.silent_seconds is not None:
        return job.silent_seconds
    return max((view.activity.seconds for view in views), default=0.0)


def calls(views: Sequence[RankView]) -> dict[int, str]:
    """Which call each rank waits in."""
    return {view.rank: view.call for view in views}


def unseen_phrase(job: JobView) -> str:
    """``rank 5 could not be observed``, empty when all were; where its record says that it waits, it was."""
    recorded = {view.rank for view in job.ranks if view.inside is not None and view.alive}
    unseen = [rank for rank in job.unseen if rank not in recorded]
    return f"{name_ranks(unseen)} could not be observed" if unseen else ""


def activity_evidence(views: Sequence[RankView]) -> list[Evidence]:
    """The counters of some ranks."""
    return [Evidence("/proc", view.activity.why, view.rank) for view in views if view.activity.why]


def victim_evidence(views: Sequence[RankView]) -> list[Evidence]:
    """One line for all waiting ranks of one call, however many they are."""
    by_call: dict[tuple[str, str], list[int]] = {}
    for view in views:
        if view.position is not None:
            source = "source line" if view.position.by_source else view.latest.source or "stack"
            by_call.setdefault((source, view.position.call), []).append(view.rank)
        elif view.inside is not None:
            by_call.setdefault((_teller(view), view.inside.op), []).append(view.rank)
    return [
        Evidence(
            source,
            f"{name_ranks(ranks)} {verb(ranks, 'waits', 'wait')} in {call}",
            ranks[0] if len(ranks) == 1 else None,
        )
        for (source, call), ranks in sorted(by_call.items())
    ]


def _teller(view: RankView) -> str:
    return view.latest.record.source if view.latest.record is not None else "flight record"


def pair_evidence(job: JobView) -> list[Evidence]:
    """What the snapshots themselves can and cannot show."""
    if job.by_log:
        return []
    if not job.paired:
        return [Evidence("snapshot", "a single dump: it cannot show whether the job still moved")]
    ages = [
        view.latest.progress.seconds_since_step
        for view in job.ranks
        if view.latest.progress is not None and view.latest.progress.seconds_since_step is not None
    ]
    if not ages:
        return []
    return [Evidence("progress page", f"no optimizer step for {min(ages):.0f} s")]


def _with_kind(cause: Cause, kind: Kind | None) -> Cause:
    if kind is None or cause.kind not in ("user_code", "python_loop", "none"):
        return cause
    return Cause(kind, cause.place, cause.location, cause.evidence)


def _as_loop(job: JobView, view: RankView) -> Cause:
    """A loop in Python, or one call in C that keeps the GIL."""
    cause = job.cause(view)
    seen = [one for look in job.samples for one in look.ranks if one.rank == view.rank]
    in_c = in_one_c_call(seen, reader=job.reader)
    return Cause("native_gil" if in_c else "python_loop", cause.place, cause.location, cause.evidence)
