"""A second look, with native frames and local variables, at ranks whose Python stacks alone cannot tell.

A rank in ``work.wait()``, in P2P or in DDP's backward may show no frame of torch.distributed at all; the C++
frames do. They cost a pause of 0.02-0.4 s, so they are taken only of the ranks that are named, and a tool
that takes longer than ``LONGEST_HOLD`` is ended: nobody asked for this look. Which ranks those are, and what
the stacks mean, is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

import msgspec

from rankscope.diag.capture import LONGEST_HOLD, Target, capture_ranks
from rankscope.diag.model import JobSnapshot, RankSnapshot

_LEAST_SECONDS: Final = 0.5
"""With less time than this left no tool is started: it would be killed in the middle."""


def look_closer(
    snapshot: JobSnapshot,
    ranks: Collection[int],
    *,
    deadline: float,
    native: bool = True,
    longest_hold: float = LONGEST_HOLD,
    pyspy: str | None = None,
) -> JobSnapshot:
    """Take the stacks of some ranks again, with local variables, and native frames.

    Args:
        snapshot: the first look.
        ranks: global ranks of this host that it cannot tell.
        deadline: ``time.monotonic()`` at which it must be over.
        native: whether C++ frames are needed: without, a look takes 10 ms.
        longest_hold: seconds after which a tool that stops a rank is ended.
        pyspy: path of py-spy; found by default.

    Returns:
        The snapshot with the threads of those ranks replaced; a rank that gave no native frames, or no local
        variables, keeps what it had, and its ``reason`` says why.
    """
    asked = [rank for rank in snapshot.ranks if rank.rank in ranks and rank.observed and rank.pid > 0]
    left = deadline - time.monotonic()
    if not asked or left < _LEAST_SECONDS:
        return snapshot
    targets = [Target(rank=rank.rank, pid=rank.pid, start_ticks=rank.start_ticks) for rank in asked]
    found = capture_ranks(
        targets,
        timeout=left,
        rank_timeout=left,
        children=False,
        native=native,
        local_variables=True,
        longest_hold=longest_hold,
        record=False,
        pyspy=pyspy,
        backends=("py-spy", "pystack"),
    )
    closer = {seen.rank: seen for seen in found}
    merged = (
        _merged(rank, closer[rank.rank], native=native) if rank.rank in closer else rank
        for rank in snapshot.ranks
    )
    return msgspec.structs.replace(snapshot, ranks=tuple(merged))


def _merged(first: RankSnapshot, second: RankSnapshot, *, native: bool) -> RankSnapshot:
    if native:
        found = any(frame.kind == "native" for thread in second.threads for frame in thread.frames)
    else:
        found = any(thread.variables for thread in second.threads)
    if not found:
        why = second.reason or "the tool saw none"
        missing = f"no {'native frames' if native else 'local variables'} ({why})"
        return msgspec.structs.replace(first, reason="; ".join(filter(None, (first.reason, missing))))
    return msgspec.structs.replace(
        first, threads=second.threads, source=second.source, reason=second.reason, facts=first.facts
    )
