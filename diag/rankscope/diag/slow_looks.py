"""Many looks at a running job, to find out what is slow: none of them stops a rank.

The shell around capture for ``diag analyze --samples`` and the agent; what the looks mean is not known here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from rankscope.diag import look_times
from rankscope.diag.capture import Target, capture_ranks
from rankscope.diag.model import JobSnapshot, RankSnapshot

LOOKS: Final = look_times.LOOKS
INTERVAL: Final = look_times.SLOW_INTERVAL
LEAST: Final = look_times.LEAST
KEPT_ENTRIES: Final = 2_000
"""Operations of a flight record that are kept: as many as torch keeps by default."""
_JITTER: Final = 0.5
"""Share of the interval by which a look comes earlier or later: a step that takes as long as the interval
would be met at the same place each time."""
_LOOK_SECONDS: Final = 2.0
_PATIENCE: Final = 2.0
"""Times the seconds that all looks should take, after which only the last is still taken: a busy host."""


def take_looks(
    targets: Callable[[], Sequence[Target]],
    *,
    pause: Callable[[float], bool],
    count: int = LOOKS,
    interval: float = INTERVAL,
    timeout: float = 20.0,
    kept_entries: int = KEPT_ENTRIES,
    chance: random.Random | None = None,
) -> tuple[tuple[RankSnapshot, ...], ...]:
    """Look at the ranks ``count`` times; the first look and the last have children and flight records too.

    Args:
        targets: the ranks, with what their pages say now.
        pause: waits so many seconds; answers whether to stop here.
        count: how often, ``LEAST`` at least.
        interval: seconds between two looks, on average.
        timeout: seconds that the first look and the last may take.
        kept_entries: newest operations of each flight record that are kept.
        chance: when exactly; for tests.

    Returns:
        One tuple a look, oldest first, fewer than asked for on a host too busy for them; empty when it
        was stopped before the last.
    """
    drawn = chance or random.Random()  # noqa: S311 - no secret
    found: list[tuple[RankSnapshot, ...]] = []
    begin = time.monotonic()
    for at in range(count):
        late = time.monotonic() - begin > _PATIENCE * count * interval
        if late and LEAST <= at < count - 1:
            continue
        when = begin + at * interval + drawn.uniform(-_JITTER, _JITTER) * interval * (0 < at < count - 1)
        if at and pause(max(0.0, when - time.monotonic())):
            return ()
        is_end = at in (0, count - 1)
        found.append(
            capture_ranks(
                targets(),
                timeout=timeout if is_end else min(timeout, _LOOK_SECONDS),
                children=is_end,
                blocking=False,
                record=is_end,
                kept_entries=kept_entries,
                backends=("py-spy",),
            )
        )
    return tuple(found)


def as_job(
    looks: Sequence[tuple[RankSnapshot, ...]],
    *,
    job: str,
    world_size: int,
    absent: tuple[RankSnapshot, ...] = (),
) -> tuple[JobSnapshot, ...]:
    """The looks as snapshots of the job, each with the ranks that are not here."""
    return tuple(
        JobSnapshot(
            job=job,
            time=look[0].time if look else time.time(),
            world_size=max(world_size, len(look)),
            ranks=(*look, *absent),
        )
        for look in looks
    )
