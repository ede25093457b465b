"""Ranks that wait for messages: sends and receives, alone and in batches."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.faults.both_modes import NUMBERED, drawn_and_next, everyone, in_both_modes, next_rank, script
from tests.faults.rows import ANYWHERE, Row

_messages = partial(script, "messages_job.py")

ROWS: Final[tuple[Row, ...]] = (
    *in_both_modes(
        "stage",
        "a stage of a pipeline waits for its data; the stages behind receive, those before send",
        _messages("stage"),
        "user_code",
        "wait_for_shard",
        line="stage",
        # No record has gloo's messages: as 4 (a receive waits for its peer) by local variables, or 8.
        rules=("", ""),
    ),
    *in_both_modes(
        "unsent",
        "a rank expects a message that its neighbour does not send; all others, it too, wait in a reduction",
        _messages("unsent"),
        "order_deadlock",
        ANYWHERE,
        # Each of the two waits for the other, and nothing tells whose call is the one too many.
        line="",
        rules=("5", "5"),
        guilty=drawn_and_next,
        ranks=(4, 8),
    ),
    *in_both_modes(
        "ring",
        "every rank sends to the next one before it receives",
        _messages("ring"),
        "order_deadlock",
        "swap_at_once",
        line="ring",
        rules=("5", "5"),
        guilty=everyone,
        zero=False,
    ),
    *in_both_modes(
        "halo",
        "a rank waits before it swaps edges; its neighbours wait in the batch, the others in a reduction",
        _messages("halo"),
        "user_code",
        "wait_for_grid",
        line="halo",
        rules=NUMBERED,
        ranks=(4, 8),
    ),
    *in_both_modes(
        "one_sided",
        "a rank leaves its send out of a batch; its neighbour waits for it there, all others in a reduction",
        _messages("one_sided"),
        # Nothing on the neighbour's stack tells from whom the message should come, and no record has it: that
        # the neighbour alone is in another wait is all there is to see.
        "desync",
        "swap_edges",
        line="one_sided",
        rules=("4", "9"),
        guilty=next_rank,
    ),
)
