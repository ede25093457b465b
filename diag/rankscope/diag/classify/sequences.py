"""Rules about sequence numbers: who has not entered the collective that others wait in (rows 4, 5, 6).

Source: DIAGNOSIS.md, "Naming the culprit". The numbers say who is waited for; the stacks of those ranks say
what they do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rankscope.diag.classify.blame import Finding, blame, calls, lower, pair_evidence, victim_evidence
from rankscope.diag.classify.chains import awaited_peers
from rankscope.diag.classify.comparison import parting_evidence
from rankscope.diag.classify.endings import left_early
from rankscope.diag.classify.graph import graph_evidence, order_deadlock, seq_evidence
from rankscope.diag.classify.instants import not_of_one_moment
from rankscope.diag.classify.lateness import late_fact, latest_rank
from rankscope.diag.classify.view import JobView, RankView, away_ranks, waiting_ranks
from rankscope.diag.classify.waits import OpenCollective
from rankscope.diag.classify.wording import join, name_ranks, verb, wait_phrase
from rankscope.diag.model import Confidence, Evidence, Kind

_BY_FAR: Final = 2  # times as many ranks as any other end holds up
_UNRECORDED: Final = "gloo records no sends and receives"


def missing_from_collective(job: JobView) -> Finding | None:
    """Rows 4 and 5. Members wait at seq k, others have not entered it: walk to where the waits end."""
    if not job.waits.edges or job.entered_new:
        return None
    circle = job.waits.circle()
    apart = not_of_one_moment(job)
    if apart is not None or circle:
        return apart or order_deadlock(job, job.waits, circle)
    victims = [view for view in job.of(job.waits.edges) if view.alive]
    ends_at = job.of(job.waits.sinks())
    sinks = [view for view in ends_at if view.alive]
    gone = [view for view in ends_at if view.gone]
    if victims and gone and not sinks:
        return left_early(job, gone, victims)
    if not victims or not sinks:
        return None  # nothing was read from their processes: the numbers may be old
    inside = _inside(job, sinks)
    if inside:
        return _did_not_finish(job, sinks, inside)
    # A send or receive goes on from there: the waits end where the messages do.
    by_messages = awaited_peers(job) if any(view.rank in job.peers for view in sinks) else None
    return by_messages or _not_entered(job, sinks, victims, gone=gone)


def _not_entered(
    job: JobView, sinks: Sequence[RankView], victims: Sequence[RankView], *, gone: Sequence[RankView]
) -> Finding | None:
    """Row 4. Name the ranks at which all chains of waits end."""
    away = [view for view in sinks if not view.waits]
    if not away and (away_ranks(job) or any(view.rank in job.peers for view in sinks)):
        return None  # P2P and store waits carry no sequence numbers: the stacks go on from here
    if not away and all(view.position is None for view in sinks):
        return None  # they wait as well, in groups whose members no record tells
    at_most, evidence = _how_sure(job, sinks, gone=gone)
    kind: Kind | None = None
    if not away:
        # They stand in another wait: a different way through the program, or a set-up the others are past.
        store = all(view.waiting == "store" for view in sinks)
        kind = "store_wait" if store else "desync"
        at_most = lower(at_most, to="medium" if store else "low")
    named = away or sinks
    victims = [view for view in victims if view not in named]
    free, note = _in_messages(job, named)
    named = [view for view in named if view not in free]
    found = blame(
        job,
        named,
        victims,
        rule="4",
        at_most=at_most,
        kind=kind,
        evidence=[
            *graph_evidence(job, job.waits),
            *(parting_evidence(job, named, victims) if kind == "desync" else ()),
            *evidence,
        ],
        numbered=job.numbered_twice,
        proven=bool(away) and not job.waits.guessed and all(one.complete for one in job.missing),
    )
    ends, named_ranks = job.waits.ends(), {*found.culprits, *(view.rank for view in free)}
    waits = {
        view.rank: tuple(rank for rank in ends[view.rank] if rank in named_ranks) or found.culprits
        for view in victims
    }
    return replace(found, victims=waits, summary=join(found.summary, note))


def _in_messages(job: JobView, sinks: Sequence[RankView]) -> tuple[list[RankView], str]:
    """Which of several ends of chains may wait for another one in a message, and what to say of it.

    Gloo records no sends and receives: the stages of a pipeline behind the one that is stuck wait in one, and
    look as if they had gone away. All members of such a stage do, so that only its replicas wait for them; of
    the stage that is stuck its own members wait as well. One end that holds up by far more ranks than any
    other is where it began.
    """
    if len(sinks) < 2 or _all_lack_one(job, sinks) or not all(map(_by_gloo_alone, sinks)):  # noqa: PLR2004
        return [], ""
    held = Counter(end for ends in job.waits.ends().values() for end in ends)
    first, second, *_ = sorted(sinks, key=lambda view: -held[view.rank])
    if held[first.rank] <= _BY_FAR * held[second.rank]:
        return [], f"{_UNRECORDED}: some of them may wait in one for another of them"
    free = [view for view in sinks if view is not first]
    ranks = [view.rank for view in free]
    others = f"{name_ranks(ranks)} {verb(ranks, 'has', 'have')} not come either"
    return free, f"{others}; {_UNRECORDED}: {verb(ranks, 'it', 'they')} may wait in one"


def _all_lack_one(job: JobView, sinks: Sequence[RankView]) -> bool:
    """Whether the same collective lacks all of them."""
    ranks = {view.rank for view in sinks}
    return any(ranks.issubset(one.absent) for one in job.missing)


def _by_gloo_alone(view: RankView) -> bool:
    """Whether all that is known of it is a record of gloo's."""
    record = view.latest.record
    if view.seen or view.latest.progress is not None or record is None:
        return False
    return bool(record.entries) and all(entry.is_started is None for entry in record.entries)


def _how_sure(
    job: JobView, sinks: Sequence[RankView], *, gone: Sequence[RankView]
) -> tuple[Confidence, list[Evidence]]:
    """What the numbers can carry, and what takes from it."""
    whole = all(one.complete for one in job.missing)
    at_most: Confidence = "high" if whole and not gone else "medium"
    if job.waits.guessed:
        at_most = lower("medium" if len(sinks) == 1 else "low", to=at_most)
        text = f"no record tells the members of the groups that {name_ranks(job.waits.guessed)} wait in;"
        free = job.waits.sinks()
        text += f" {name_ranks(free)} {verb(free, 'waits', 'wait')} in none, and every chain of waits ends so"
        return at_most, [Evidence(job.told_by(job.waits.guessed), text)]
    if not job.numbered_twice and not any(view.seen for view in sinks):
        at_most = "low"  # every job looks like this at some moments
    late = latest_rank(job) if not job.numbered_twice else None
    if late is not None and [view.rank for view in sinks] == [late.rank]:
        # The moment a single dump was taken at may be any: this is how the job always looks.
        return "low", [Evidence(job.told_by((late.rank,)), late_fact(late), late.rank)]
    return at_most, []


def _inside(job: JobView, sinks: Sequence[RankView]) -> list[OpenCollective]:
    """The collectives that the sinks are blocked in although every member entered and some left them.

    A stack outside of communication goes before a record that leaves the last one open: torch marks it ended
    in a thread that needs the GIL, which a rank in C may keep (measured: 140 open, the others in 141).
    """
    if any(view.seen and view.waiting is None for view in sinks):
        return []
    found: dict[int, OpenCollective] = {
        rank: one
        for one in job.waits.open
        if one.done and one.complete and not one.absent
        for rank in one.waiting
    }
    return [found[view.rank] for view in sinks] if all(view.rank in found for view in sinks) else []


def _did_not_finish(job: JobView, stuck: Sequence[RankView], inside: Sequence[OpenCollective]) -> Finding:
    """Row 6. The communication layer holds some in a collective that others are past."""
    ranks = tuple(view.rank for view in stuck)
    victims = [view for view in job.of(job.waits.edges) if view.rank not in ranks]
    which = " and ".join(dict.fromkeys(f"collective {one.seq} of group {one.group}" for one in inside))
    return Finding(
        verdict="RankCommHang",
        kind="network",
        severity="error",
        confidence="medium" if job.numbered_twice else "low",
        rule="6",
        summary=join(
            f"everyone entered {which}, {name_ranks(ranks)} did not finish it",
            wait_phrase(calls(victims), for_whom=ranks),
        ),
        culprits=ranks,
        victims=dict.fromkeys((view.rank for view in victims), ranks),
        location=next((cause.location for cause in map(job.cause, stuck) if cause.location), None),
        evidence=(*victim_evidence(stuck), *seq_evidence(job), *pair_evidence(job)),
    )


def entered_not_finished(job: JobView) -> Finding | None:
    """Row 6. Everyone entered k, some finished it, and all stacks are in communication."""
    if not job.numbered_twice or job.entered_new or job.waits.edges or away_ranks(job) or job.unseen:
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
