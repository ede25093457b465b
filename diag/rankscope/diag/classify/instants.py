"""Whether the numbers of all ranks can be of one moment: records of a running job are fetched one by one.

Nobody leaves a collective of all ranks before the last has entered it. Numbers that say otherwise are of
different moments, or the layer itself is stuck: one look cannot tell which. It blames nobody.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.diag.classify.blame import Finding, calls, pair_evidence, unseen_phrase
from rankscope.diag.classify.demands import TOGETHER
from rankscope.diag.classify.records import GroupKey, Standing
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.wording import join, name_ranks, verb, wait_phrase
from rankscope.diag.model import Evidence

_AHEAD = 2  # collectives: one more may be counted as ended that failed, when a rank gave it up


def not_of_one_moment(job: JobView) -> Finding | None:
    """Rows 4 and 6. In one look, ranks past what others are in, or have not entered, prove nothing."""
    if job.numbered_twice or any(view.latest.progress for view in job.of(job.told.ranks)):
        return None
    for key, members in sorted(job.told.groups.items()):
        text = _ahead(job, key, members) or _left_behind(job, key)
        if text:
            waiting = [view for view in job.ranks if view.waits]
            return Finding(
                verdict="Unknown",
                kind="none",
                severity="info",
                confidence="low",
                rule="4",
                summary=join(
                    f"the records are not of one moment, or the communication layer is stuck: {text}",
                    wait_phrase(calls(waiting), for_whom=()),
                    unseen_phrase(job),
                ),
                victims=dict.fromkeys((view.rank for view in waiting), ()),
                evidence=(Evidence(job.told_by(job.told.ranks), text), *pair_evidence(job)),
            )
    return None


def _ahead(job: JobView, key: GroupKey, members: Mapping[int, Standing]) -> str:
    """Who has ended a collective that another has not entered, with more in between."""
    first = max(sorted(members), key=lambda rank: members[rank].completed)
    last = min(sorted(members), key=lambda rank: members[rank].enqueued)
    ended, entered = members[first].completed, members[last].enqueued
    if entered < 0 or ended - entered < _AHEAD:
        return ""
    called = job.told.entries.get(key, {}).get(first, {})
    between = (called[seq].op for seq in range(entered + 1, ended + 1) if seq in called)
    if not any(op in TOGETHER for op in between):
        return ""
    where = f"group {job.told.title(key)}"
    return f"rank {first} has ended collective {ended} of {where}, rank {last} has called {entered} of them"


def _left_behind(job: JobView, key: GroupKey) -> str:
    """A collective that everyone entered and some left.

    NCCL's records tell more, and its watchdog writes them when time has run out.
    """
    for one in job.waits.open:
        if one.key != key or not one.done or one.absent or not one.complete:
            continue
        calls_of = job.told.entries.get(key, {})
        open_calls = [calls_of[rank][one.seq] for rank in one.waiting if one.seq in calls_of.get(rank, {})]
        if any(call.is_started is not None for call in open_calls):
            continue
        inside = f"{name_ranks(one.waiting)} {verb(one.waiting, 'is', 'are')} in collective {one.seq}"
        return f"{inside} of group {job.told.title(key)}, {name_ranks(one.done)} ended it"
    return ""
