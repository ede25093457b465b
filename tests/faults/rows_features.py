"""Ranks that part below torch's features: DDP, FSDP2, functional collectives, the compiler."""

from __future__ import annotations

from typing import Final

from tests.faults.both_modes import CALLED, NUMBERED, aborts, in_both_modes, script
from tests.faults.rows import HERE, Row, program

ROWS: Final[tuple[Row, ...]] = (
    *in_both_modes(
        "unused",
        "a rank's batch needs one of two heads, DDP waits for the gradients of both",
        script("replicated_job.py", "unused"),
        "desync",
        "tell_loss",
        line="unused",
        rules=CALLED,
    ),
    *in_both_modes(
        "uneven",
        "a rank has one batch more than the others and waits in its backward",
        script("replicated_job.py", "uneven"),
        "desync",
        "update",
        line="uneven",
        rules=CALLED,
    ),
    *in_both_modes(
        "sharded",
        "a rank waits for its batch, the others for its shard of the weights (FSDP2)",
        script("sharded_job.py", "data"),
        "user_code",
        "fetch",
        line="data",
        rules=NUMBERED,
        ranks=(3, 5),
    ),
    *in_both_modes(
        "state",
        "a rank collects the whole state of a sharded model, the others train on",
        script("sharded_job.py", "state"),
        "desync",
        "collect_weights",
        line="state",
        rules=CALLED,
        ranks=(3, 5),
    ),
    aborts(
        "state_sizes",
        "the same, and the others gather larger weights than the state's: it aborts in gloo",
        script("sharded_job.py", "state_sizes"),
        ranks=(3, 5),
    ),
    *in_both_modes(
        "functional",
        "a rank waits for samples, the others in a functional collective",
        program("functional_job.py", "--rank={rank}", "--at={at}"),
        "user_code",
        "draw_samples",
        line=HERE,
        rules=NUMBERED,
    ),
    *in_both_modes(
        "compiling",
        "a rank compiles its model, and its compiler waits for ever",
        program("compiling_job.py", "--folder={folder}", "--rank={rank}", "--at={at}"),
        "compile",
        "forward",
        line=HERE,
        rules=NUMBERED,
        ranks=(3, 4),
    ),
)
