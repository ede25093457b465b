"""Row S1: one rank, or all ranks of a node, hold the others up; by flight records, by stacks, best by both.

Source: DIAGNOSIS.md, row S1: "one rank reaches most collectives last, by far; it spends the least time in
communication". Records say who, to the collective since which it is so; looks at stacks say what it does
instead. Where both could tell and do not agree, nobody is named.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope.diag.classify.blame import Finding, lower
from rankscope.diag.classify.kinds import Cause, recorded_location
from rankscope.diag.classify.lateness import Lateness, late_fact, latest
from rankscope.diag.classify.pace import RankLooks, least_inside, more_than_others, share_evidence
from rankscope.diag.classify.records import last_call
from rankscope.diag.classify.slow_limits import (
    LEAST_COLLECTIVES,
    STARVED_CPU,
    STARVED_SHARE,
    STARVED_TIMES,
)
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.wording import KIND_WORDS, join, name_ranks, verb
from rankscope.diag.collective_steps import step_at
from rankscope.diag.model import Confidence, Evidence, RankSnapshot

_CONTRADICTS = 0.1
"""More of the looks in communication than the least of the others: then it is no straggler."""


@dataclass(frozen=True, slots=True)
class _Slow:
    """Who is slow, and what is known of it."""

    ranks: tuple[int, ...]
    node: str
    factor: float
    is_least: bool
    confidence: Confidence
    late: Lateness | None
    starved: float


def slow_rank(job: JobView, looks: Mapping[int, RankLooks]) -> Finding | None:
    """Row S1, of a job that moves."""
    late = latest(job)
    ranks = late.ranks if late is not None else _by_stacks(job, looks)
    if not ranks or _contradicted(ranks, looks):
        return None
    agrees = len(ranks) == 1 and least_inside(looks) in ranks
    slow = _Slow(
        ranks=ranks,
        node=late.node if late is not None else "",
        factor=late.factor if late is not None and late.factor else _factor(ranks, looks),
        is_least=late is not None and late.factor > 0,
        confidence=_confidence(job, late, agrees=agrees),
        late=late,
        starved=_starved(job, ranks),
    )
    return _finding(job, slow, looks)


def _by_stacks(job: JobView, looks: Mapping[int, RankLooks]) -> tuple[int, ...]:
    """The rank by stacks alone, where records do not show that all arrive together.

    Those of several hosts never do: what clocks may be apart could hide it.
    """
    if job.unseen or (_records_tell(job) and len({view.latest.node for view in job.ranks}) == 1):
        return ()
    rank = least_inside(looks)
    return () if rank is None else (rank,)


def _records_tell(job: JobView) -> bool:
    """Whether the records of all ranks have enough collectives of a group to see lateness in it."""
    return any(
        len(calls) >= job.latest.world_size > 1
        and min(sum(one.created_ns > 0 for one in of_rank.values()) for of_rank in calls.values())
        >= LEAST_COLLECTIVES
        for calls in job.told.entries.values()
    )


def _contradicted(ranks: Sequence[int], looks: Mapping[int, RankLooks]) -> bool:
    own = [looks[rank].share for rank in ranks if rank in looks and looks[rank].looks]
    others = [one.share for rank, one in looks.items() if rank not in ranks and one.looks]
    return bool(own and others) and min(own) > min(others) + _CONTRADICTS


def _confidence(job: JobView, late: Lateness | None, *, agrees: bool) -> Confidence:
    nodes = {view.latest.node for view in job.ranks}
    compared = job.slow is not None and job.slow.clocks_within is not None
    one_clock = len(nodes) == 1 if late is None else "" not in nodes and (len(nodes) == 1 or compared)
    confidence: Confidence = "high" if agrees and late is not None else "medium"
    if not one_clock:
        confidence = lower(confidence)
    return lower(confidence) if job.unseen else confidence


def _factor(ranks: Sequence[int], looks: Mapping[int, RankLooks]) -> float:
    """By its share of looks outside of communication: a step takes all ranks the same time."""
    own = statistics.median(1 - looks[rank].share for rank in ranks)
    others = [1 - one.share for rank, one in looks.items() if rank not in ranks]
    usual = statistics.median(others) if others else 0.0
    return own / usual if usual > 0 else 0.0


def _starved(job: JobView, ranks: Sequence[int]) -> float:
    """Share of its time that the rank could run and had no core, where that is what sets it apart; else 0.

    One that has more to compute than the others is without a core more often as well, on a busy host.
    """
    shares = {view.rank: _core_shares(view.earlier, view.latest) for view in job.ranks}
    own = [shares[rank] for rank in ranks if rank in shares]
    others = [share for rank, share in shares.items() if rank not in ranks]
    if not own or not others:
        return 0.0
    delay, cpu = min(one[0] for one in own), max(one[1] for one in own)
    if delay < STARVED_SHARE or delay < STARVED_TIMES * max(one[0] for one in others):
        return 0.0
    return delay if cpu <= STARVED_CPU * statistics.median(one[1] for one in others) else 0.0


def _core_shares(earlier: RankSnapshot | None, latest: RankSnapshot) -> tuple[float, float]:
    """Shares of the time that the main thread waited for a core, and had one."""
    before, after = earlier.facts if earlier is not None else None, latest.facts
    if before is None or after is None or after.time <= before.time:
        return 0.0, 0.0
    seconds = after.time - before.time
    delay = after.main_run_delay_seconds - before.main_run_delay_seconds
    return max(0.0, delay / seconds), max(0.0, after.main_cpu_seconds - before.main_cpu_seconds) / seconds


def _finding(job: JobView, slow: _Slow, looks: Mapping[int, RankLooks]) -> Finding:
    cause = more_than_others(job, slow.ranks, looks) or _recorded(job, slow.ranks[0])
    group = job.told.groups.get(slow.late.key) if slow.late is not None else None
    victims = sorted(rank for rank in (group if group is not None else looks) if rank not in slow.ranks)
    place, kind = cause.place, cause.kind
    words = f", {KIND_WORDS[kind]}" if KIND_WORDS[kind] else ""
    where = f"most of its own time is spent in {place}{words}" if place else ""
    if slow.starved:
        kind = "none"
        where = (
            f"ready to run and without a core for {100 * slow.starved:.0f} % of the time:"
            " something else runs on its cores"
        )
    return Finding(
        verdict="RankNonCommSlow",
        kind=kind,
        severity="info",
        confidence=slow.confidence,
        rule="S1",
        summary=join(
            f"{_who(slow)} {verb(slow.ranks, 'is', 'are')} slow{_times(slow)}{_since(job, slow)}",
            where,
            f"{name_ranks(victims)} {verb(victims, 'waits', 'wait')} for {verb(slow.ranks, 'it', 'them')}"
            f"{_how_much(slow.late)}",
        ),
        culprits=slow.ranks,
        victims=dict.fromkeys(victims, slow.ranks),
        location=cause.location,
        since_step=_since_step(job, slow),
        evidence=(*_evidence(job, slow), *cause.evidence, *share_evidence(looks), *_counters(job)),
    )


def _recorded(job: JobView, rank: int) -> Cause:
    view = next(view for view in job.ranks if view.rank == rank)
    last = last_call(view.latest.record)
    where = recorded_location(last, rank, job.catalogue) if last is not None else None
    return Cause("none", "", where)


def _who(slow: _Slow) -> str:
    if not slow.node:
        return name_ranks(slow.ranks)
    return f"every rank of node {slow.node} ({name_ranks(slow.ranks)})"


def _times(slow: _Slow) -> str:
    if slow.factor < 1.05:  # noqa: PLR2004 - would read "1.0 times"
        return ""
    least = "at least " if slow.is_least else "about "
    return f", {least}{slow.factor:.1f} times as slow as the others"


def _how_much(late: Lateness | None) -> str:
    return f" {100 * late.share:.0f} % of the time" if late is not None else ""


def _since(job: JobView, slow: _Slow) -> str:
    step, late = _since_step(job, slow), slow.late
    if step is not None:
        return f", since about step {step}"
    if late is not None and late.since_seq >= 0:
        return f", since collective {late.since_seq}"
    return ""


def _since_step(job: JobView, slow: _Slow) -> int | None:
    """The step at which it began: by the record's numbers where the page counts steps, else by the pace.

    The job's pace tells only of the first who was slow: another that joined in, or took over, began later.
    """
    late = slow.late
    if late is not None and late.since_seq >= 0:
        step = _step_of(job, late)
        if step is not None:
            return step
    if job.slow is None or job.slow.slowdown is None or not job.slow.named <= set(slow.ranks):
        return None
    return job.slow.slowdown.since_step


def _step_of(job: JobView, late: Lateness) -> int | None:
    """Steps and collectives rise together: two looks tell how many of them a step has."""
    for view in job.ranks:
        before, now = view.earlier, view.latest
        if before is None or before.progress is None or now.progress is None:
            continue
        numbers = [_enqueued(one, late.key[0]) for one in (before, now)]
        first, last = numbers
        if first is None or last is None:
            continue
        step = step_at(late.since_seq, (before.progress.step, now.progress.step), (first, last))
        if step is not None:
            return step
    return None


def _enqueued(rank: RankSnapshot, group: str) -> int | None:
    if rank.record is None:
        return None
    return next((one.enqueued for one in rank.record.groups if one.name == group), None)


def _evidence(job: JobView, slow: _Slow) -> list[Evidence]:
    found: list[Evidence] = []
    if slow.late is not None:
        found.append(Evidence("flight record", late_fact(slow.late), slow.late.rank))
        if len({view.latest.node for view in job.ranks}) > 1:
            found.append(Evidence("flight record", _clocks(job)))
    found += pace_evidence(job)
    if slow.starved:
        text = f"its main thread was ready and had no core {100 * slow.starved:.0f} % of the time"
        found += [Evidence("/proc", text, rank) for rank in slow.ranks]
    return found


def _clocks(job: JobView) -> str:
    if job.slow is not None and job.slow.clocks_within is not None:
        within = 1000 * job.slow.clocks_within
        return f"the clocks of the hosts were compared; wherever they are within {within:.0f} ms, it is so"
    return "clocks of hosts are aligned by the collectives themselves; any clock they allow says so"


def pace_evidence(job: JobView) -> list[Evidence]:
    """What is known of the job's pace."""
    slowdown = job.slowdown
    if slowdown is None:
        return []
    text = f"steps take {slowdown.now:.3g} s since step {slowdown.since_step}, {slowdown.before:.3g} s before"
    return [Evidence("progress page", text)]


def _counters(job: JobView) -> list[Evidence]:
    """CPU and switches of every rank between the first look and the last."""
    return [Evidence("/proc", view.activity.why, view.rank) for view in job.ranks if view.activity.why]
