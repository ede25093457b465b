"""Looks at a few working ranks in quick succession, without stopping them: is it a loop?

Each look is a ``--nonblocking`` dump: a stack may be torn, which is why many are taken. What they mean is
not known here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from rankscope.diag.capture import Target, capture_ranks
from rankscope.diag.model import RankSnapshot

SAMPLES: Final = 20
PERIOD: Final = 0.25
"""Seconds between two looks: 20 in 5 s (DIAGNOSIS.md, decision 8)."""
MAX_SAMPLED: Final = 4
"""Ranks looked at: a dump costs 10-30 ms of CPU beside the training."""


def sample_ranks(
    targets: Sequence[Target],
    *,
    pause: Callable[[float], bool],
    count: int = SAMPLES,
    period: float = PERIOD,
    pyspy: str | None = None,
) -> tuple[tuple[RankSnapshot, ...], ...]:
    """Look at the first ``MAX_SAMPLED`` targets ``count`` times.

    Args:
        targets: the ranks.
        pause: waits so many seconds; answers whether to stop here, with what there is.
        count: how often.
        period: seconds from one look to the next.
        pyspy: path of py-spy; found by default.

    Returns:
        One tuple a look, oldest first, each with a snapshot a rank.
    """
    looked_at = targets[:MAX_SAMPLED]
    found: list[tuple[RankSnapshot, ...]] = []
    begin = time.monotonic()
    for at in range(count):
        ahead = begin + at * period - time.monotonic()
        if at and pause(max(0.0, ahead)):
            break
        found.append(
            capture_ranks(
                looked_at,
                timeout=period * 4,
                children=False,
                blocking=False,
                record=False,
                pyspy=pyspy,
                backends=("py-spy",),
            )
        )
    return tuple(found)
