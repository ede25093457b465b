"""The rules that name the culprit, in the order they are tried; the first that fires wins.

Rows and sources: DIAGNOSIS.md, "Naming the culprit". Each rule is a small pure function that answers ``None``
when its evidence is missing; the last one says honestly that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rankscope.diag.classify.aborted import hang_before_exits
from rankscope.diag.classify.begun import not_begun_on_the_device
from rankscope.diag.classify.blame import Finding, calls, pair_evidence, unseen_phrase, victim_evidence
from rankscope.diag.classify.chains import awaited_peers, awaited_unseen
from rankscope.diag.classify.company import apart_from_most, beside_a_shared_lock
from rankscope.diag.classify.desync import different_collectives
from rankscope.diag.classify.endings import process_gone
from rankscope.diag.classify.frozen import all_stopped, frozen_ranks
from rankscope.diag.classify.graph import seq_evidence
from rankscope.diag.classify.messages import different_messages
from rankscope.diag.classify.motion import moved_before, nobody_waits, something_advanced, still_moving
from rankscope.diag.classify.one_place import common_place
from rankscope.diag.classify.pace import least_in_communication
from rankscope.diag.classify.sequences import entered_not_finished, missing_from_collective
from rankscope.diag.classify.slowness import slow_job, straggler
from rankscope.diag.classify.stacks import (
    all_in_one_call,
    different_calls,
    off_communication,
)
from rankscope.diag.classify.start_up import start_up
from rankscope.diag.classify.stood_still import stood_still
from rankscope.diag.classify.swallowed import swallowed_packets
from rankscope.diag.classify.view import JobView, RankView, away_ranks, waiting_ranks
from rankscope.diag.classify.wording import join, stand_phrase, verb, wait_phrase

Rule = Callable[[JobView], Finding | None]

RECORD_RULES: Final[tuple[Rule, ...]] = (
    different_collectives,
    different_messages,
    missing_from_collective,
    awaited_peers,
    not_begun_on_the_device,
    stood_still,
)


def aborted(job: JobView) -> Finding | None:
    """Rows 3 to 7. What flight records show of a hang for which the ranks were aborted afterwards."""
    return hang_before_exits(job, RECORD_RULES)


RULES: Final[tuple[Rule, ...]] = (
    aborted,
    process_gone,
    slow_job,
    something_advanced,
    all_stopped,
    frozen_ranks,
    different_collectives,
    different_messages,
    least_in_communication,
    moved_before,
    swallowed_packets,
    missing_from_collective,
    entered_not_finished,
    still_moving,
    awaited_peers,
    awaited_unseen,
    not_begun_on_the_device,
    stood_still,
    start_up,
    beside_a_shared_lock,
    apart_from_most,
    off_communication,
    different_calls,
    all_in_one_call,
    common_place,
    nobody_waits,
    straggler,
)


def apply_rules(job: JobView) -> Finding:
    """The first rule that fires; what only may hang, and moved before, may be slow."""
    found = next((found for rule in RULES if (found := rule(job)) is not None), None) or _not_known(job)
    slow = least_in_communication(job, stands=True) if found.verdict == "Unknown" else None
    return slow or found


def _not_known(job: JobView) -> Finding:
    """The honest end: what was seen, and what is missing."""
    waiting, away = waiting_ranks(job), away_ranks(job)
    if not any(view.seen for view in job.ranks):
        waiting = [view for view in job.ranks if view.waits]
        text = _by_records(job, waiting)
    elif waiting and not away:
        text = wait_phrase(calls(waiting), for_whom=())
        text += "; the stacks do not show whom they wait for" if not job.unseen else ""
    elif away and not waiting:
        places = stand_phrase({view.rank: job.cause(view).place for view in away})
        text = join("no rank is seen to wait for another", places)
    else:
        text = "the evidence does not point at a rank"
    rest = unseen_phrase(job)
    if rest and waiting:
        rest += f": {verb(job.unseen, 'it', 'one of them')} may be waited for"
    return Finding(
        verdict="Unknown",
        kind="none",
        severity="info",
        confidence="low",
        rule="none",
        summary=join(text, rest),
        victims=dict.fromkeys((view.rank for view in waiting), ()),
        evidence=(*victim_evidence(waiting), *seq_evidence(job), *pair_evidence(job)),
    )


def _where_all_are(job: JobView, waiting: Sequence[RankView]) -> str:
    """Nobody is missing: from one collective, from several of different groups, or from a message."""
    groups = sorted({one.group for one in job.waits.open})
    if groups:
        return "everyone is in " + ("it" if len(groups) == 1 else f"one of its groups ({', '.join(groups)})")
    if all(view.inside is not None and view.inside.is_p2p for view in waiting):
        return "both sides of each message have called it"
    calls_of = {(view.inside.op, view.inside.seq) for view in waiting if view.inside is not None}
    return "everyone is in it" if len(calls_of) == 1 else "no rank is seen to be missing"


def _by_records(job: JobView, waiting: Sequence[RankView]) -> str:
    """What flight records alone show when they point at nobody."""
    if not any(view.latest.record is not None for view in job.ranks):
        return "no stack could be taken"
    if not waiting:
        return "every recorded operation has ended; the records do not show what the ranks do now"
    text = wait_phrase(calls(waiting), for_whom=())
    if any(not one.sized for one in job.waits.open):
        return f"{text}; no record tells the members of the groups, so that whom they wait for is not known"
    if not job.unseen and all(one.complete and not one.absent for one in job.waits.open):
        where = _where_all_are(job, waiting)
        return f"{text}; {where}: a hang of the communication layer, or a moment of a healthy job"
    return f"{text}; the records do not show whom they wait for"
