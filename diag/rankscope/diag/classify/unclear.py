"""Ranks whose Python stack alone cannot tell what they wait for: native frames and local variables can.

C calls leave no Python frame (CATALOGUE.md): ``Work.wait()``, the store and DDP's backward show the caller
only, and a send or receive does not show its peer.
"""

from __future__ import annotations

from typing import Final

from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.looking import look
from rankscope.diag.classify.peers import PEER_CALLS, peer_of
from rankscope.diag.classify.view import JobView, RankView
from rankscope.diag.model import JobSnapshot

# Kernel functions that gloo's and the store's waits sleep in; so do a lock and a queue (measured).
_SLEEPS: Final = ("futex", "poll_schedule_timeout", "do_poll", "do_sys_poll")


def unclear_ranks(snapshot: JobSnapshot, catalogue: Catalogue) -> frozenset[int]:
    """Ranks to look at again with native frames and local variables.

    Args:
        snapshot: one look; files are not read for it.
        catalogue: what frames mean.

    Returns:
        Ranks with a stack in which nothing waits for others although the record, the page, torch's wait
        counters or the kernel say that the rank waits; ranks in DDP's backward or waiting for the GPU; and
        ranks in a send or receive whose peer is not known.
    """
    job = look(snapshot, None, catalogue=catalogue, source_line=lambda _file, _line: None)
    return frozenset(view.rank for view in job.ranks if view.seen and not view.gone and _unclear(job, view))


def messaging_ranks(snapshot: JobSnapshot, catalogue: Catalogue) -> frozenset[int]:
    """Ranks whose stack shows them in a send or receive whose peer is not known: local variables tell it.

    The wait for one that began before, in another call, has no peer to read.
    """
    job = look(snapshot, None, catalogue=catalogue, source_line=lambda _file, _line: None)
    return frozenset(
        view.rank
        for view in job.ranks
        if view.position is not None
        and view.position.label == "p2p"
        and not view.gone
        and view.position.call in PEER_CALLS
        and peer_of(view.position, catalogue) is None
    )


def _unclear(job: JobView, view: RankView) -> bool:
    position = view.position
    if position is None or position.has_native:
        return False
    if position.waiting == "perhaps":
        return True
    if position.label == "p2p":
        return peer_of(position, job.catalogue) is None
    if position.waiting is not None:
        return position.by_source
    return _said_to_wait(job, view) or _sleeps_at_a_line(view)


def _said_to_wait(job: JobView, view: RankView) -> bool:
    """Whether its numbers leave a collective open, or torch counts it among the waiting."""
    opened = any(view.rank in one.waiting for one in job.waits.open)
    return opened or view.inside is not None or any(count > 0 for count in view.latest.wait_counters.values())


def _sleeps_at_a_line(view: RankView) -> bool:
    """Whether the kernel has it asleep at a line of the user's own, as an unseen C call would."""
    facts, position = view.latest.facts, view.position
    if facts is None or position is None or not facts.wchan or not position.thread.is_main:
        return False
    return position.leaf is position.user_frame and facts.wchan.startswith(_SLEEPS)
