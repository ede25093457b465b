"""Rules about stacks: who stands outside of the communication that others wait in (rows 7 to 9).

Source: DIAGNOSIS.md, "Naming the culprit". They are what is left without sequence numbers, as in dumps and
for P2P, which gloo does not number. Rule 10 is in ``one_place``, rule 11 in ``start_up``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rankscope.diag.classify.blame import (
    Finding,
    activity_evidence,
    blame,
    calls,
    pair_evidence,
    victim_evidence,
)
from rankscope.diag.classify.comparison import (
    Minority,
    awaited,
    entered_together,
    minority,
    parting_evidence,
    site,
)
from rankscope.diag.classify.view import JobView, RankView, away_ranks, waiting_ranks
from rankscope.diag.classify.wording import (
    KIND_WORDS,
    join,
    name_ranks,
    wait_phrase,
)
from rankscope.diag.model import Evidence

_SHOWN: Final = 4  # collectives, a line's worth
_LEAST_APART: Final = 10.0  # C4D_HANG_TIMEOUT: of looks closer to each other, alike ones say nothing


def off_communication(job: JobView) -> Finding | None:
    """Row 8. Stacks: some ranks' deciding threads are in communication, others are not: those others."""
    waiting, outside = waiting_ranks(job), away_ranks(job)
    if not waiting:
        return None
    if not outside:
        return _in_the_store(job, waiting)
    away = awaited(job, waiting, outside)
    if not away:
        return None
    together = len(away) > len(waiting) and len({view.position.path for view in away if view.position}) == 1
    return blame(job, away, waiting, rule="8", at_most="low" if together else "high")


def _in_the_store(job: JobView, waiting: Sequence[RankView]) -> Finding | None:
    """All wait, a minority of them on the store while the rest is in communication."""
    store = [view for view in waiting if view.waiting == "store"]
    rest = [view for view in waiting if view.waiting == "communication"]
    if not store or len(store) >= len(rest) or job.unseen:
        return None
    return blame(job, store, rest, rule="8", at_most="medium", kind="store_wait")


def different_calls(job: JobView) -> Finding | None:
    """Row 9. All in communication at different call sites: the minority went another way."""
    waiting = _all_that_wait(job)
    found = minority(job, waiting) if waiting else None
    messaging = [view for view in waiting if view.position and view.position.label == "p2p"]
    if found is None or (messaging and not _is_one_call_without(messaging, found)):
        return None
    causes = {view.rank: job.cause(view) for view in found.odd}
    rest = [view for view in waiting if view not in found.odd]
    ops = {place[0] for place in found.sites.values()}
    # Root and others may call one collective from two lines by right, but not two operations.
    # Nor need whoever waits for a message come to what the others are in.
    sure = len(ops) > 1 and not messaging and (found.among is not None or _one_group(job))
    return Finding(
        verdict="RankNonCommHang",
        kind="desync",
        severity="warning",
        confidence="medium" if sure and job.paired and not found.is_tie else "low",
        rule="9",
        summary=join(
            "a tie: " * found.is_tie + _where(job, found),
            wait_phrase(calls(rest), for_whom=()),
            KIND_WORDS["desync"],
        ),
        culprits=tuple(causes),
        victims=dict.fromkeys((view.rank for view in rest), tuple(causes)),
        location=next((cause.location for cause in causes.values()), None),
        evidence=(
            *victim_evidence(waiting),
            *parting_evidence(job, found.odd, found.rest),
            *pair_evidence(job),
        ),
        is_tie=found.is_tie,
    )


def _is_one_call_without(messaging: Sequence[RankView], found: Minority) -> bool:
    """Whether all others are in one call of a collective: stages of a pipeline stand in messages by right."""
    others = [view for view in (*found.odd, *found.rest) if view not in messaging]
    if found.is_tie:
        return len(messaging) == len(others) == 1
    return found.rest == tuple(others)


def _where(job: JobView, found: Minority) -> str:
    """``rank 1 in barrier``, the odd ones of one place together; in a tie each side with its line."""
    sides: dict[object, list[RankView]] = {}
    for view in found.odd:
        sides.setdefault(found.sites[view.rank], []).append(view)
    parts: list[str] = []
    for views in sides.values():
        call = found.sites[views[0].rank][0]
        line = f" at {job.cause(views[0]).place}" if found.is_tie and _has_place(views[0]) else ""
        parts.append(f"{name_ranks(view.rank for view in views)} in {call}{line}")
    return "; ".join(parts)


def _has_place(view: RankView) -> bool:
    """Whether it shows a line of the user's own or of a framework: the call is named anyway."""
    position = view.position
    return position is not None and (position.user_frame or position.shown) is not None


def _all_that_wait(job: JobView) -> list[RankView]:
    """The ranks that wait, where every other one has ended or is not what they wait for; else none."""
    waiting, away = waiting_ranks(job), away_ranks(job)
    gone = sum(view.gone for view in job.ranks)
    if job.unseen or len(waiting) + len(away) + gone < job.latest.world_size:
        return []
    return [] if awaited(job, waiting, away) else waiting


def _one_group(job: JobView) -> bool:
    """Whether the page says that all ranks share one group and have no other."""
    names = [
        tuple(group.name for group in view.latest.progress.groups) if view.latest.progress else ()
        for view in job.ranks
    ]
    return bool(names) and len(names[0]) == 1 and len(set(names)) == 1


def all_in_one_call(job: JobView) -> Finding | None:
    """Row 7. Everyone is in one collective and nobody leaves it: the layer itself, with low confidence.

    Several groups may each be in one of theirs, as far as numbers tell which.
    """
    waiting = _all_that_wait(job)
    if not waiting or not job.paired:
        return None
    if any(view.waiting != "communication" or view.activity.stirred for view in waiting):
        return None
    first = waiting[0]
    if first.position and first.position.label == "p2p":
        return None
    by_stacks = first.activity.level == "unknown"
    if by_stacks and not all(_stood(view) for view in waiting):
        return None
    inside = entered_together(job, waiting) or []
    if len({site(view) for view in waiting}) != 1 and not inside:
        return None
    which = " and ".join(f"collective {one.seq} of group {one.group}" for one in job.waits.open[:_SHOWN])
    call = first.call or "communication"
    who = "all ranks" if len(waiting) == job.latest.world_size else name_ranks(view.rank for view in waiting)
    return Finding(
        verdict="RankCommHang",
        kind="network",
        severity="warning" if by_stacks else "error",
        confidence="low",
        rule="7",
        summary=join(
            f"{who} entered {which if len(inside) > 1 else call} and none leaves it; no rank stands out",
            f"the looks are {first.activity.seconds:.0f} s apart" if by_stacks else "",
        ),
        victims=dict.fromkeys((view.rank for view in waiting), ()),
        location=job.cause(first).location,
        evidence=(
            *victim_evidence(waiting),
            *([Evidence("progress page", f"every member entered {which}")] if inside else []),
            *activity_evidence(waiting[:4]),
            *pair_evidence(job),
        ),
    )


def _stood(view: RankView) -> bool:
    """Whether nothing but stacks is known of it, and they are the same to the line at looks far apart.

    A job that moves comes back to one wait, but seldom with all its ranks to the very line; looks of which
    nobody knows when they were taken may be of one moment.
    """
    before, now = view.before, view.position
    if before is None or now is None or view.latest.facts is not None:
        return False
    return before.thread.frames == now.thread.frames and view.activity.seconds >= _LEAST_APART
