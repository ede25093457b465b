"""Ranks that part in process groups: chains and circles of waits, a group that one makes alone."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.faults.both_modes import NUMBERED, answer, drawn_and_other, in_both_modes, script, with_other
from tests.faults.rows import Row

_grouped = partial(script, "grouped_job.py")

ROWS: Final[tuple[Row, ...]] = (
    *in_both_modes(
        "chain",
        "each rank waits for the next in a group of two; only the last, which waits for its data, is guilty",
        _grouped("chain"),
        "user_code",
        "fetch_targets",
        line="chain",
        rules=NUMBERED,
    ),
    Row(
        "cycle",
        "diagnosis",
        "two ranks use their two groups in different order; the others wait for both",
        partial(
            answer, kind="order_deadlock", function="share", line="cycle", rule="5", guilty=drawn_and_other
        ),
        with_other("grouped_job.py", "cycle", "--partner"),
        renames=("share",),
        least_ranks=5,
        modes=("run",),
    ),
    Row(
        "cycle_beside",
        "diagnosis",
        # Without records both stand in one line, and nothing tells one group of theirs from the other: that
        # they differ from the others is all there is to see.
        "the same by stacks alone: two ranks are in another call than the others",
        partial(answer, kind="desync", function="share", line="cycle", rule="9", guilty=drawn_and_other),
        with_other("grouped_job.py", "cycle", "--partner"),
        renames=("share",),
        least_ranks=5,
        modes=("beside",),
    ),
    *in_both_modes(
        "lone_group",
        "a rank makes a new group of all ranks, the others do not",
        _grouped("lone_group"),
        "startup",
        "make_scoring_group",
        line="lone_group",
        rules=NUMBERED,
    ),
)
