"""Row S1 from flight records: one rank reaches most collectives last, by far.

Source: DIAGNOSIS.md, "Naming the culprit". Lateness is how long the last member kept all others waiting:
the gap to the one before it, so that two ranks late together blame nobody. ``time_created_ns`` is wall
clock: ranks of one host compare directly, and an offset that a collective disproves (nobody leaves one
before the last has entered it) is taken out.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rankscope.diag.classify.blame import Finding
from rankscope.diag.classify.demands import TOGETHER
from rankscope.diag.classify.kinds import recorded_location
from rankscope.diag.classify.records import GroupKey, group_name, last_call
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.wording import join, name_ranks
from rankscope.diag.model import Collective, Confidence, Evidence

# Fitted on nothing but reason: a job that loses a fifth of its time to one rank, again and again, is slowed
# down by it. One long checkpoint, or the first steps, are not that.
WINDOW: Final = 200  # newest collectives of a group that are looked at
LEAST_COLLECTIVES: Final = 20
LEAST_TIMES: Final = 10  # so often it was last, by a noticeable gap
LEAST_GAP_NS: Final = 2_000_000  # a noticeable gap: most of the noise is below (measured 0.1-0.5 ms)
LEAST_SHARE: Final = 0.2  # of the window's time that the others wait for it alone
LEAST_OF_ALL: Final = 0.75  # of all waiting for a last member
MOST_AT_ONCE: Final = 1 / 3  # of its own: more is one event, not a pace


@dataclass(frozen=True, slots=True)
class Lateness:
    """One rank that holds up its group.

    Attributes:
        gap: median of how long the others waited for it alone, seconds.
        times: collectives it was last in, by a noticeable gap; of how many.
        share: of the window's time, 0 to 1.
    """

    key: GroupKey
    rank: int
    gap: float
    times: int
    of: int
    share: float


def straggler(job: JobView) -> Finding | None:
    """Row S1, where flight records are all there is and every collective in them has ended."""
    if job.waits.open or any(view.seen or view.gone for view in job.ranks):
        return None
    late = latest_rank(job)
    if late is None:
        return None
    view = next(view for view in job.ranks if view.rank == late.rank)
    nodes = {one.latest.node for one in job.ranks}
    confidence: Confidence = "medium" if len(nodes) == 1 and nodes != {""} and not job.unseen else "low"
    last = last_call(view.latest.record)
    victims = [one.rank for one in job.ranks if one.rank in job.told.groups[late.key] and one is not view]
    return Finding(
        verdict="RankNonCommSlow",
        kind="none",
        severity="info",
        confidence=confidence,
        rule="S1",
        summary=join(
            f"rank {late.rank} is late: it keeps {name_ranks(victims)} waiting for {1000 * late.gap:.0f} ms"
            f" in {late.times} of {late.of} collectives of group {group_name(late.key)},"
            f" {100 * late.share:.0f} % of the time; no rank hangs",
        ),
        culprits=(late.rank,),
        victims=dict.fromkeys(victims, (late.rank,)),
        location=recorded_location(last, late.rank, job.catalogue) if last is not None else None,
        evidence=(
            Evidence("flight record", late_fact(late), late.rank),
            Evidence("flight record", "times of calls are wall clock: one host, or synchronised clocks"),
        ),
    )


def late_fact(late: Lateness) -> str:
    """The lateness as a fact."""
    return (
        f"last into {late.times} of {late.of} collectives, by {1000 * late.gap:.0f} ms (median): the others"
        f" wait {100 * late.share:.0f} % of the time for it alone"
    )


def latest_rank(job: JobView) -> Lateness | None:
    """The rank that holds up a group of the job most, ``None`` when none does by far."""
    found = [one for key, calls in sorted(job.told.entries.items()) if (one := _lateness(key, calls))]
    return max(found, key=lambda one: one.share, default=None)


def _lateness(key: GroupKey, calls: Mapping[int, Mapping[int, Collective]]) -> Lateness | None:
    ranks = sorted(calls)
    common = sorted(set[int].intersection(*(set(of_rank) for of_rank in calls.values())))[-WINDOW:]
    seqs = [seq for seq in common if all(calls[rank][seq].created_ns > 0 for rank in ranks)]
    if len(ranks) < 2 or len(seqs) < LEAST_COLLECTIVES:  # noqa: PLR2004 - a pair
        return None
    times = {rank: [calls[rank][seq].created_ns for seq in seqs] for rank in ranks}
    together = [all(calls[rank][seq].op in TOGETHER for rank in ranks) for seq in seqs]
    times = _on_one_clock(times, together)
    gaps: dict[int, list[int]] = {rank: [] for rank in ranks}
    for at in range(len(seqs)):
        order = sorted((times[rank][at], rank) for rank in ranks)
        gaps[order[-1][1]].append(order[-1][0] - order[-2][0])
    window = max(times[rank][-1] for rank in ranks) - min(times[rank][0] for rank in ranks)
    worst = max(ranks, key=lambda rank: sum(gaps[rank]))
    noticeable = [gap for gap in gaps[worst] if gap >= LEAST_GAP_NS]
    lost, all_lost = sum(noticeable), sum(map(sum, gaps.values()))
    if window <= 0 or len(noticeable) < LEAST_TIMES or lost < LEAST_SHARE * window:
        return None
    if lost < LEAST_OF_ALL * all_lost or max(noticeable) > MOST_AT_ONCE * lost:
        return None
    gap = statistics.median(noticeable) / 1e9
    return Lateness(key, worst, gap, len(noticeable), len(seqs), lost / window)


def _on_one_clock(times: Mapping[int, Sequence[int]], together: Sequence[bool]) -> dict[int, list[int]]:
    """Times as the first rank's clock would have them, as far as collectives prove that clocks differ.

    A member calls the next collective after every other has called this one; both ways round, that bounds the
    offset between two clocks. None is assumed where the bounds allow that; else the middle, which makes
    lateness of up to a step disappear: between clocks that differ it cannot be told.
    """
    first, *others = sorted(times)
    reference = times[first]
    shifted = {first: list(reference)}
    for rank in others:
        mine = times[rank]
        steps = [(at, after) for at, after in pairwise(range(len(mine))) if together[at]]
        most = min((mine[after] - reference[at] for at, after in steps), default=0)
        least = max((mine[at] - reference[after] for at, after in steps), default=0)
        offset = 0 if least <= 0 <= most else (least + most) // 2
        shifted[rank] = [time - offset for time in mine]
    return shifted
