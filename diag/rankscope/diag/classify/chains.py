"""Rows 4 and 5 over sends and receives: a chain of them ends at one rank, or goes round in a circle.

Source: DIAGNOSIS.md, "Naming the culprit" ("a recv waits on its peer"). Peers come from local variables of
the blocked calls or from NCCL's records; waits in collectives join in where sequence numbers are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rankscope.diag.classify.blame import Finding, blame, calls, victim_evidence
from rankscope.diag.classify.comparison import known_groups, site
from rankscope.diag.classify.graph import graph_evidence, order_deadlock, peer_evidence, seq_evidence
from rankscope.diag.classify.view import JobView, waiting_ranks
from rankscope.diag.classify.waits import Waits
from rankscope.diag.classify.wording import join, name_ranks, verb, wait_phrase
from rankscope.diag.model import Evidence


def awaited_peers(job: JobView) -> Finding | None:
    """Rows 4 and 5. Where all chains of sends and receives end, when every wait has a known end."""
    if not job.peers or job.entered_new:
        return None
    known = {
        rank: job.waits.edges.get(rank, frozenset()) | job.peers.get(rank, frozenset())
        for rank in {*job.waits.edges, *job.peers}
    }
    guessed = _by_elimination(job)
    edges = {**known, **guessed}
    waits = Waits(edges=edges)
    victims = [view for view in job.of(edges) if view.alive]
    if any(view.activity.stirred for view in victims):
        return None  # their waits end and begin again
    certain = Waits(edges=known).circle()
    circle = certain or waits.circle()
    if circle:
        return order_deadlock(job, waits, circle, guessed=() if certain else _why(job, guessed))
    if any(view.rank not in edges for view in waiting_ranks(job)) and not _all_end_here(job, waits):
        return None  # it may wait for another: the stacks tell who is outside of all waits
    sinks = job.of(waits.sinks())
    unseen = [rank for rank in waits.sinks() if rank in job.unseen]
    if unseen:
        return _unseen_end(job, unseen)
    away = [view for view in sinks if view.alive and not view.waits]
    if not away or len(away) < len(sinks):
        return None
    found = blame(job, away, victims, rule="4", evidence=graph_evidence(job, waits), numbered=False)
    ends = waits.ends()
    return replace(found, victims={view.rank: ends[view.rank] for view in victims})


def awaited_unseen(job: JobView) -> Finding | None:
    """Row 4. By records alone, all chains of waits end at ranks of which there is none."""
    if not job.unseen or job.entered_new or any(view.seen or view.gone for view in job.ranks):
        return None
    unseen = frozenset(job.unseen)
    to_unseen = _waits_for_unseen(job, unseen)
    edges = {
        rank: job.waits.edges.get(rank, frozenset())
        | job.peers.get(rank, frozenset())
        | to_unseen.get(rank, frozenset())
        for rank in {*job.waits.edges, *job.peers, *to_unseen}
    }
    waits = Waits(edges=edges)
    ends = waits.sinks()
    if not ends or not unseen.issuperset(ends) or waits.circle():
        return None
    return _unseen_end(job, list(ends))


def _waits_for_unseen(job: JobView, unseen: frozenset[int]) -> dict[int, frozenset[int]]:
    """Ranks that wait for others of which nothing is known: members of their group, peers of a message."""
    found: dict[int, frozenset[int]] = {}
    for one in job.waits.open:
        for rank in one.waiting if one.silent else ():
            found[rank] = found.get(rank, frozenset()) | unseen.intersection(one.silent)
    for view in job.ranks:
        call = view.inside
        if call is not None and call.is_p2p and call.peer in unseen:
            found[view.rank] = found.get(view.rank, frozenset()) | {call.peer}
    return {rank: targets for rank, targets in found.items() if targets}


def _by_elimination(job: JobView) -> dict[int, frozenset[int]]:
    """Whom ranks in a collective wait for that no number tells: the only ranks outside of it.

    All but those who send and receive are in one and the same call, and no smaller group is known in which
    they might be among themselves. Several in messages may be stages of a pipeline: they must be the fewer.
    """
    waiting = waiting_ranks(job)
    if job.waits.known or len(waiting) < job.latest.world_size or known_groups(job):
        return {}
    outside = frozenset(job.peers)
    inside = [view for view in waiting if view.rank not in outside]
    sends = any(view.position is None or view.position.label == "p2p" for view in inside)
    if sends or any(view.waiting != "communication" for view in inside):
        return {}
    if len({site(view) for view in inside}) != 1:
        return {}
    few = len(outside) == 1 or len(outside) < len(inside)
    return {view.rank: outside for view in inside} if few else {}


def _why(job: JobView, guessed: Mapping[int, frozenset[int]]) -> list[Evidence]:
    """What the edges by elimination stand on."""
    if not guessed:
        return []
    inside, outside = list(guessed), sorted(next(iter(guessed.values())))
    call = job.of(inside)[0].call
    text = (
        f"{name_ranks(inside)} {verb(inside, 'is', 'are')} in one {call}, {name_ranks(outside)}"
        f" {verb(outside, 'is', 'are')} not: by elimination they wait for {verb(outside, 'it', 'them')}"
    )
    return [Evidence("wait-for graph", text)]


def _all_end_here(job: JobView, waits: Waits) -> bool:
    """Whether the only ranks outside of all waits are the ends of the chains."""
    away = {view.rank for view in job.ranks if view.seen and not view.gone and view.waiting is None}
    return away == set(waits.sinks())


def _unseen_end(job: JobView, unseen: list[int]) -> Finding:
    """The chain ends where nobody could look: it may be the culprit, or wait itself."""
    waiting = waiting_ranks(job) or [view for view in job.ranks if view.waits]
    return Finding(
        verdict="Unknown",
        kind="none",
        severity="info",
        confidence="low",
        rule="4",
        summary=join(
            wait_phrase(calls(waiting), for_whom=()),
            f"the waits end at {name_ranks(unseen)}, which could not be observed:"
            f" {verb(unseen, 'it', 'they')} may wait too",
        ),
        culprits=tuple(unseen),
        victims=dict.fromkeys((view.rank for view in waiting), tuple(unseen)),
        evidence=(
            *victim_evidence(waiting),
            *seq_evidence(job),
            *_silent_evidence(job),
            *peer_evidence(job),
        ),
    )


def _silent_evidence(job: JobView) -> list[Evidence]:
    """One line for each open collective of whose members some told nothing."""
    return [
        Evidence(
            job.told_by(one.waiting),
            f"nothing is known of {name_ranks(one.silent)} of group {one.group},"
            f" {name_ranks(one.waiting)} {verb(one.waiting, 'waits', 'wait')} in its collective {one.seq}",
        )
        for one in job.waits.open
        if one.silent
    ]
