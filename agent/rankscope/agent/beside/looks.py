"""Looks at the stacks of a job, some ranks of which stir and others not, without stopping any of them.

A stack is read a few times within seconds: several tell what moves from what stands still, one does not
(DIAGNOSIS.md, "Noticing"). What follows from it is ``pulse``'s to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rankscope.agent.beside.pulse import Seen, Wanted
from rankscope.diag.capture import LONGEST_HOLD, Target, capture_ranks
from rankscope.diag.classify import Catalogue, communicating_ranks
from rankscope.diag.model import JobSnapshot, RankSnapshot

SAMPLES: Final = 6
PERIOD: Final = 0.6
"""Seconds between two samples: six in 3 s tell moving from static (RECIPES.md, "Second opinion")."""
TIMEOUT: Final = 5.0
"""Seconds for the samples of all ranks at one time."""

NATIVE: Final = 2
"""Ranks that are asked for C++ frames, one for each Python stack."""

_Place = tuple[tuple[str, int], ...]


def look(
    wanted: Wanted, targets: Mapping[int, Target], *, catalogue: Catalogue, pause: Callable[[float], bool]
) -> Seen:
    """Look at the ranks in question.

    Args:
        wanted: which ranks stir and which do not.
        targets: where each of them is.
        catalogue: tells which frames are communication.
        pause: waits so many seconds; answers whether to stop here, with what there is.
    """
    first = _capture([targets[rank] for rank in sorted(wanted.still | wanted.stirring) if rank in targets])
    samples = [_places(first, catalogue)]
    observed = {rank.rank for rank in first if rank.observed}
    stirring = [targets[rank] for rank in sorted(wanted.stirring & observed)]
    while stirring and len(samples) < SAMPLES and not pause(PERIOD):
        samples.append(_places(_capture(stirring), catalogue))
    held, moving = _held_and_moving(samples, wanted.stirring)
    communicating = {rank for rank in wanted.still if samples[0].get(rank)}
    if not communicating and not moving:
        still = [rank for rank in first if rank.observed and rank.rank in wanted.still]
        communicating = _by_native_frames(still, targets, catalogue)
    return Seen(
        wanted,
        communicating=frozenset(communicating),
        held=held,
        moving=moving,
        blind=not observed & wanted.still,
    )


def _by_native_frames(
    still: Sequence[RankSnapshot], targets: Mapping[int, Target], catalogue: Catalogue
) -> set[int]:
    """Still ranks in a wait that leaves no Python frame (``work.wait()``): the C++ frames of a few tell.

    Those stop a rank for some tenths of a second, which this one has not moved for many seconds.
    """
    alike: dict[_Place, list[int]] = {}
    for rank in still:
        alike.setdefault(_main_frames(rank), []).append(rank.rank)
    found: set[int] = set()
    for ranks in sorted(alike.values(), key=len, reverse=True)[:NATIVE]:
        seen = _capture([targets[ranks[0]]], native=True)
        if any(_places(seen, catalogue).values()):
            found.update(ranks)
    return found


def _capture(targets: Sequence[Target], *, native: bool = False) -> tuple[RankSnapshot, ...]:
    return capture_ranks(
        targets,
        timeout=TIMEOUT,
        children=False,
        blocking=native,
        longest_hold=LONGEST_HOLD,
        native=native,
        record=False,
        backends=("py-spy",),
    )


def _places(ranks: tuple[RankSnapshot, ...], catalogue: Catalogue) -> dict[int, _Place | None]:
    """Where each observed rank stands: the frames of a communication call it is in, ``None`` outside."""
    snapshot = JobSnapshot(job="", time=time.time(), world_size=len(ranks), ranks=ranks)
    communicating = communicating_ranks(snapshot, catalogue)
    return {
        rank.rank: _main_frames(rank) if rank.rank in communicating else None
        for rank in ranks
        if rank.observed
    }


def _main_frames(rank: RankSnapshot) -> _Place:
    threads = [thread for thread in rank.threads if thread.is_main] or list(rank.threads[:1])
    return tuple((frame.function, frame.line) for thread in threads for frame in thread.frames)


def _held_and_moving(
    samples: Sequence[Mapping[int, _Place | None]], stirring: frozenset[int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Ranks that stood in one communication call all the time, and those that went through one."""
    held: set[int] = set()
    moving: set[int] = set()
    for rank in stirring:
        places = [sample[rank] for sample in samples if rank in sample]
        if len(places) < SAMPLES // 2 or not any(places):
            continue
        (held if len(set(places)) == 1 else moving).add(rank)
    return frozenset(held), frozenset(moving)
