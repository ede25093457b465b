"""Ranks that part in collectives of the whole job: one does not come, calls another, or another size."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.faults.both_modes import (
    CALLED,
    NUMBERED,
    aborts,
    drawn_and_other,
    in_both_modes,
    rank_before,
    script,
    with_other,
)
from tests.faults.rows import Row

_averaging = partial(script, "averaging_job.py")

ROWS: Final[tuple[Row, ...]] = (
    *in_both_modes(
        "missing",
        "a rank waits for a service and never comes to the reduction",
        _averaging("missing"),
        "user_code",
        "ask_service",
        line="service",
        rules=NUMBERED,
    ),
    *in_both_modes(
        "two_missing",
        "two ranks wait for a service and never come to the reduction",
        with_other("averaging_job.py", "two_missing", "--second"),
        "user_code",
        "ask_service",
        line="service",
        rules=NUMBERED,
        guilty=drawn_and_other,
        ranks=(4, 8),
    ),
    *in_both_modes(
        "pile",
        "a rank waits for a service while the others start up to 20 reductions before they wait for any",
        _averaging("pile"),
        "user_code",
        "ask_service",
        line="service",
        rules=NUMBERED,
    ),
    *in_both_modes(
        "short",
        "a rank has one batch less and meets the others' last reduction with its last barrier",
        _averaging("short"),
        "desync",
        "close_run",
        line="short",
        rules=CALLED,
    ),
    *in_both_modes(
        "other_op",
        "a rank gathers what the others sum up, in the same function",
        _averaging("other_op"),
        "desync",
        "share_spread",
        line="other_op",
        rules=CALLED,
    ),
    *in_both_modes(
        "branch",
        "a rank has a barrier in a branch that the others do not take",
        _averaging("branch"),
        "desync",
        "publish_weights",
        line="branch",
        rules=CALLED,
    ),
    *in_both_modes(
        "lone_evaluation",
        "a rank evaluates alone and gathers scores that nobody else has",
        _averaging("evaluation"),
        "desync",
        "score_held_out",
        line="evaluation",
        rules=CALLED,
    ),
    *in_both_modes(
        "memory",
        "a rank runs out of memory, skips the batch, and comes to the end of the epoch one reduction early",
        _averaging("memory"),
        "desync",
        "tell_epoch",
        line="memory",
        rules=CALLED,
    ),
    *in_both_modes(
        "empty",
        "a rank has nothing to sum up: gloo lets no elements pass, and it goes on to the next reduction",
        _averaging("empty"),
        "desync",
        # It stands one call after the one that was odd; the records of gloo's JSON have no stacks.
        "average_gradients",
        line="empty",
        rules=CALLED,
    ),
    aborts(
        "shorter", "a rank reduces fewer gradients than the others, and aborts in gloo", _averaging("shorter")
    ),
    aborts("narrower", "a rank reduces in half precision, and aborts in gloo", _averaging("narrower")),
    aborts(
        "wider",
        # The one that is at fault sends too much, and raises only when its neighbour is gone.
        "a rank reduces in double precision, and the neighbour it sends to aborts in gloo",
        _averaging("wider"),
        guilty=rank_before,
    ),
)
