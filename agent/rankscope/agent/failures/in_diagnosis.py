"""Has the diagnosis of a failure say what the root says: who was first, and where that cannot be told. Pure.

The diagnosis knows exit codes and times to the microsecond; the root is told by everything that ended ranks
left behind, and knows how far their times can be trusted. One of them is the truth, and it is the root.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rankscope.agent.failures.model import Failure
from rankscope.diag.model import Diagnosis, ExitFacts, JobSnapshot
from rankscope.diag.ranks import fold_ranks

_JUST_AFTER = 0.001
"""Seconds by which ranks that failed after the root are put behind it, where their times say otherwise."""


def is_told_otherwise(diagnosis: Diagnosis, root: Failure | None, exits: Mapping[int, ExitFacts]) -> bool:
    """Whether a diagnosis blames other failed ranks than the root and those it is tied with.

    Ranks that left with 0 before, or of which no end is known, may be to blame for a failure as well.

    Args:
        diagnosis: of the failure.
        root: the first that failed, ``None`` when none could be told.
        exits: ranks that have ended, and how.
    """
    if root is None or diagnosis.verdict != "Exited" or not diagnosis.culprits:
        return False
    ends = [exits.get(rank) for rank in diagnosis.culprits]
    if any(end is None or end.code in (0, None) for end in ends):
        return False
    return set(diagnosis.culprits) != _first(root)


def in_order(snapshot: JobSnapshot, exits: Mapping[int, ExitFacts], root: Failure) -> JobSnapshot:
    """The snapshot with ends in the order that the root failure gives them.

    Args:
        snapshot: the look that was judged.
        exits: ranks that have ended by now, and how.
        root: the first that failed.
    """
    first = _first(root)
    began = max((end.seconds_ago or 0.0 for rank, end in exits.items() if rank in first), default=0.0)

    def told(rank: int, known: ExitFacts | None) -> ExitFacts | None:
        end = exits.get(rank) if rank in first else known
        if end is None or end.code in (0, None):
            return end
        ago = began if rank in first else min(end.seconds_ago or 0.0, began - _JUST_AFTER)
        return msgspec.structs.replace(end, seconds_ago=ago)

    ranks = tuple(msgspec.structs.replace(one, exit=told(one.rank, one.exit)) for one in snapshot.ranks)
    return msgspec.structs.replace(snapshot, ranks=ranks)


def with_tie(diagnosis: Diagnosis, root: Failure | None) -> Diagnosis:
    """The diagnosis that says with whom the root is tied, where it blames them all."""
    if root is None or not root.tied_with or set(diagnosis.culprits) != _first(root):
        return diagnosis
    tie = f"which of ranks {fold_ranks(sorted(_first(root)))} was the first cannot be told"
    return msgspec.structs.replace(diagnosis, summary=f"{diagnosis.summary}; {tie}")


def _first(root: Failure) -> set[int]:
    return {root.rank, *root.tied_with}
