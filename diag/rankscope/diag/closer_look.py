"""A closer look at ranks whose Python stack does not tell what they wait for, without the user's values.

C++ frames show the wait itself, local variables whom a send or receive waits for (``capture.closer`` takes
them). Local variables may hold anything, tokens too: unless they were asked for, only the peer is kept.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

import msgspec

from rankscope.diag.capture import closer
from rankscope.diag.model import FrameVariables, JobSnapshot, RankSnapshot, ThreadStack

PEERS: Final = frozenset({"src", "dst", "group_src", "group_dst", "group", "tag"})
"""Arguments of torch's sends and receives that say whom a rank waits for."""


def look_closer(
    snapshot: JobSnapshot,
    ranks: Collection[int],
    *,
    timeout: float,
    messaging: Collection[int] = (),
    local_variables: bool = False,
) -> JobSnapshot:
    """The snapshot with C++ frames of some ranks of this host, and the peers of their sends and receives.

    Args:
        snapshot: just taken; process facts stay as they are in it.
        ranks: those to look at again; one that cannot be read now keeps the stack it has.
        timeout: seconds for all of them.
        messaging: those whose stack shows the send or receive: all they lack is its peer. They come first and
            are not asked for C++ frames, which take a hundred times as long.
        local_variables: keep all local variables; else none of the user's own values is kept.
    """
    if not ranks and not messaging:
        return snapshot
    deadline = time.monotonic() + timeout
    found = closer.look_closer(snapshot, messaging, deadline=deadline, native=False)
    rest = set(ranks).difference(messaging)
    found = closer.look_closer(found, rest, deadline=deadline)
    if local_variables:
        return found
    return msgspec.structs.replace(found, ranks=tuple(map(_rank, found.ranks)))


def _rank(rank: RankSnapshot) -> RankSnapshot:
    if not any(thread.variables for thread in rank.threads):
        return rank
    return msgspec.structs.replace(rank, threads=tuple(map(_thread, rank.threads)))


def _thread(thread: ThreadStack) -> ThreadStack:
    return msgspec.structs.replace(thread, variables=tuple(filter(None, map(_frame, thread.variables))))


def _frame(variables: FrameVariables) -> FrameVariables | None:
    values = tuple(pair for pair in variables.values if pair[0] in PEERS)
    return FrameVariables(variables.frame, values) if values else None
