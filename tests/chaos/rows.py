"""The rows of the fault matrix that a round may take: cheap ones, whose answer is known within half a minute.

What the matrix expects of each is the matrix' business; what is added here is what the policy asks beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from tests.faults.matrix import ROWS
from tests.faults.rows import Row

Root = Literal["plain", "retryable"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What the policy needs to know of a row.

    Attributes:
        hangs: else a worker ends.
        root: what exit code and words of that worker say.
        cause: as in the table of decisions.
        once: it is no fault any more after a restart, and the job ends well.
        restarts: whether its program can be started twice in one folder.
    """

    hangs: bool = True
    root: Root = "plain"
    cause: Literal["other", "stopped"] = "other"
    once: bool = False
    restarts: bool = True


_ENDS: Final = Fault(hangs=False)
FAULTS: Final[dict[str, Fault]] = {
    "data_loading": Fault(once=True),
    "lock": Fault(once=True),
    "frozen": Fault(cause="stopped", once=True),
    "crash": replace(_ENDS, once=True),
    "killed": replace(_ENDS, once=True),
    "data_asleep": Fault(),
    "checkpoint_write": Fault(restarts=False),
    "checkpoint_upload": Fault(restarts=False),
    "checkpoint_read": Fault(restarts=False),
    "lock_held": Fault(),
    "locks_crossed": Fault(),
    "thread_joined": Fault(),
    "child_never_ends": Fault(),
    "rank_stopped": Fault(cause="stopped"),
    "rank_killed": _ENDS,
    "rank_segfaults": _ENDS,
    "rank_raises": _ENDS,
}
HEALTHY: Final = ("prints_nothing", "prints_always", "evaluation", "garbage", "slow_checkpoint", "first_step")
_BY_NAME: Final = {row.name: row for row in ROWS}


def row_of(name: str, ranks: int) -> Row:
    """The row, in a world of that size.

    Args:
        name: of the row.
        ranks: world size; a healthy row keeps its own.

    Raises:
        KeyError: no such row.
    """
    row = _BY_NAME[name]
    return row if name in HEALTHY else replace(row, least_ranks=ranks, most_ranks=ranks)
