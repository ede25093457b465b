"""Rules about stacks: who stands outside of the communication that others wait in (rows 7 to 11).

Source: DIAGNOSIS.md, "Naming the culprit". They are what is left without sequence numbers, as in dumps and
for P2P, which gloo does not number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rankscope.diag.classify.blame import (
    Finding,
    activity_evidence,
    blame,
    calls,
    pair_evidence,
    silence,
    unseen_phrase,
    victim_evidence,
)
from rankscope.diag.classify.view import JobView, RankView, away_ranks, waiting_ranks
from rankscope.diag.classify.wording import (
    KIND_WORDS,
    join,
    name_ranks,
    stand_phrase,
    stuck_phrase,
    wait_phrase,
)
from rankscope.diag.model import Kind


def start_up(job: JobView) -> Finding | None:
    """Row 11. Ranks wait in rendezvous, ``init_process_group`` or on the store: who has not arrived?"""
    waiting = waiting_ranks(job)
    if not waiting or any(view.waiting != "store" for view in waiting):
        return None
    starting = any(view.position and view.position.label == "startup" for view in waiting)
    kind: Kind = "startup" if starting else "store_wait"
    away = away_ranks(job)
    if away:
        return blame(job, away, waiting, rule="11", kind=kind)
    cause = job.cause(waiting[0])
    rest = unseen_phrase(job)
    return Finding(
        verdict="RankNonCommHang" if not job.unseen or job.paired else "Unknown",
        kind=kind,
        severity="warning",
        confidence="low",
        rule="11",
        summary=join(
            wait_phrase(calls(waiting), for_whom=()),
            f"{rest}: it may not have arrived" if rest else "no minority: all ranks are there",
        ),
        victims=dict.fromkeys((view.rank for view in waiting), ()),
        location=cause.location,
        evidence=(*victim_evidence(waiting), *pair_evidence(job)),
    )


def off_communication(job: JobView) -> Finding | None:
    """Row 8. Stacks: some ranks' deciding threads are in communication, others are not: those others."""
    waiting, away = waiting_ranks(job), away_ranks(job)
    if not waiting:
        return None
    if not away:
        return _in_the_store(job, waiting)
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
    waiting = waiting_ranks(job)
    if not waiting or away_ranks(job) or not _all_wait(job, waiting):
        return None
    if any(view.position and view.position.label == "p2p" for view in waiting):
        return None
    sites = {view.rank: _site(view) for view in waiting}
    counted = Counter(sites.values()).most_common()
    if len(counted) < 2:  # noqa: PLR2004 - one site is no difference
        return None
    tie = counted[0][1] == counted[1][1]
    odd = [view for view in waiting if tie or sites[view.rank] != counted[0][0]]
    rest = [view for view in waiting if view not in odd]
    causes = {view.rank: job.cause(view) for view in odd}
    one_group = _one_group(job)
    return Finding(
        verdict="RankNonCommHang",
        kind="desync",
        severity="warning",
        confidence="medium" if one_group and job.paired and not tie else "low",
        rule="9",
        summary=join(
            "a tie: " * tie
            + "; ".join(
                f"{name_ranks(view.rank for view in odd if sites[view.rank] == site)} in {site[0]}"
                for site in dict.fromkeys(sites[view.rank] for view in odd)
            ),
            wait_phrase(calls(rest), for_whom=()),
            KIND_WORDS["desync"],
        ),
        culprits=tuple(causes),
        victims=dict.fromkeys((view.rank for view in rest), tuple(causes)),
        location=next((cause.location for cause in causes.values()), None),
        evidence=(*victim_evidence(waiting), *pair_evidence(job)),
    )


def _all_wait(job: JobView, waiting: Sequence[RankView]) -> bool:
    """Whether every rank that has not ended is seen and waits."""
    gone = sum(view.gone for view in job.ranks)
    return not job.unseen and len(waiting) + gone >= job.latest.world_size


def _site(view: RankView) -> tuple[str, object, int]:
    position = view.position
    if position is None:
        return "", (), 0
    return position.call, position.path, position.user_frame.line if position.user_frame else 0


def _one_group(job: JobView) -> bool:
    """Whether the page says that all ranks share one group and have no other."""
    names = [
        tuple(group.name for group in view.latest.progress.groups) if view.latest.progress else ()
        for view in job.ranks
    ]
    return bool(names) and len(names[0]) == 1 and len(set(names)) == 1


def all_in_one_call(job: JobView) -> Finding | None:
    """Row 7. Everyone is in one collective and nobody leaves it: the layer itself, with low confidence."""
    waiting = waiting_ranks(job)
    if not waiting or away_ranks(job) or not job.paired or not _all_wait(job, waiting):
        return None
    if any(view.waiting != "communication" or view.activity.stirred for view in waiting):
        return None
    if len({_site(view) for view in waiting}) != 1 or waiting[0].activity.level == "unknown":
        return None
    if waiting[0].position and waiting[0].position.label == "p2p":
        return None
    call = waiting[0].position.call if waiting[0].position else "communication"
    return Finding(
        verdict="RankCommHang",
        kind="network",
        severity="error",
        confidence="low",
        rule="7",
        summary=f"all ranks entered {call} and none leaves it; no rank stands out",
        victims=dict.fromkeys((view.rank for view in waiting), ()),
        location=job.cause(waiting[0]).location,
        evidence=(*victim_evidence(waiting), *activity_evidence(waiting[:4]), *pair_evidence(job)),
    )


def common_place(job: JobView) -> Finding | None:
    """Row 10. Nobody waits for another and all stand in the same place: a common cause, no minority.

    Not while the page shows a collective that some entered and others did not: then it is no common cause.
    """
    away = away_ranks(job)
    if not away or waiting_ranks(job) or job.entered_new or job.missing:
        return None
    levels = {view.activity.level for view in away}
    if levels & {"busy"} or (levels & {"ticking"} and job.paired):
        return None
    if job.paired and not job.rhythm_known:
        return _stands_still(job, away, "no step or collective says whether something should have moved")
    gone = [view for view in job.ranks if view.gone]
    if not job.paired and not gone:
        return _stands_still(job, away, "one look does not tell whether something should have moved")
    leaving = all(view.position is not None and view.position.label == "exit" for view in away)
    if job.latest.world_size == 1 or (gone and (leaving or len(away) == 1)):
        return blame(job, away, (), rule="10", at_most="high" if not gone else "medium")
    # Where they wait for child processes, those are what stands somewhere.
    causes = [job.cause(view) for view in away]
    if len({_site(view)[1:] for view in away}) != 1 or len({cause.place for cause in causes}) != 1:
        return None
    if job.unseen:
        return _stands_still(job, away, "whether the others stand there too is not known")
    return Finding(
        verdict="RankNonCommHang",
        kind=causes[0].kind,
        severity="warning",
        confidence="high" if levels == {"quiet"} else "low",
        rule="10",
        summary=join(
            stuck_phrase({view.rank: (causes[0].place, causes[0].kind) for view in away}),
            "no minority: a common cause",
        ),
        location=causes[0].location,
        evidence=(*causes[0].evidence, *activity_evidence(away[:4]), *pair_evidence(job)),
    )


def _stands_still(job: JobView, away: Sequence[RankView], but: str) -> Finding:
    """All are quiet and nothing says that they should not be: a server waits for requests like this."""
    causes = {view.rank: job.cause(view) for view in away}
    one_place = len({cause.place for cause in causes.values()}) == 1
    first = causes[away[0].rank]
    seconds = silence(job, away)
    return Finding(
        verdict="Unknown",
        kind=first.kind if one_place else "none",
        severity="info",
        confidence="low",
        rule="10",
        summary=join(
            stand_phrase({rank: cause.place for rank, cause in causes.items()}),
            _how_long(seconds) if job.paired else "",
            but,
            unseen_phrase(job),
        ),
        location=first.location if one_place else None,
        evidence=(*first.evidence, *activity_evidence(away[:4]), *pair_evidence(job)),
    )


def _how_long(seconds: float) -> str:
    """How long the pair shows no movement, where its looks have a time."""
    if seconds <= 0:
        return "nothing moved between the looks (the time between them is not known)"
    return f"nothing moved in {seconds:.0f} s"
