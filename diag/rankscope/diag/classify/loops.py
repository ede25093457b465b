"""Endless loops in Python, told from quick samples of a working rank (DIAGNOSIS.md, decision 8).

Two snapshots are never enough: an evaluation shows the same stack twice. It knows nothing of waits and
blames nobody.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

from rankscope.diag.classify.activity import beat_is_stale, same_process
from rankscope.diag.classify.deciding import Reader
from rankscope.diag.model import Frame, JobSnapshot, RankSnapshot

# DIAGNOSIS.md, decision 8: GIL owned in 19 of 20 samples, minor faults below 100/s.
_LEAST_SAMPLES: Final = 10
_SHARE: Final = 0.95
_MOST_FAULTS: Final = 100.0
_MOST_IO: Final = 1_000.0  # bytes/s: a line now and then

_LEAST_NATIVE: Final = 2  # looks with C++ frames
_INTERPRETER: Final = ("_Py", "Py", "pymain", "0x", "?", "method_", "cfunction_", "builtin_")

Loop = Literal["user", "library"]
"""Whose code stood at the leaf: always the user's, or a library's at times (a training loop does too)."""


def looping_ranks(samples: Sequence[JobSnapshot], *, reader: Reader) -> dict[int, Loop]:
    """The sampled ranks that look like an endless Python loop, and of which sort.

    The first and the last sample also bound the window over which memory and I/O must have been flat.
    """
    ranks = sorted({rank.rank for sample in samples for rank in sample.ranks})
    found: dict[int, Loop] = {}
    for rank in ranks:
        seen = [one for sample in samples for one in sample.ranks if one.rank == rank]
        loop = _loop_of(seen, reader)
        if loop is not None and _flat(seen[0], seen[-1]):
            found[rank] = loop
    return found


def gil_keepers(samples: Sequence[JobSnapshot]) -> frozenset[int]:
    """The sampled ranks whose probe could run at no sample: in C with the GIL held, or collecting garbage."""
    ranks = {rank.rank for sample in samples for rank in sample.ranks}
    seen = {one: [rank for sample in samples for rank in sample.ranks if rank.rank == one] for one in ranks}
    return frozenset(one for one in ranks if beat_is_stale(*seen[one]))


def _loop_of(seen: Sequence[RankSnapshot], reader: Reader) -> Loop | None:
    """Whether one rank owned the GIL in the same function of the user's in nearly every sample."""
    looked = 0
    places: Counter[tuple[str, str]] = Counter()
    at_leaf = 0
    for one in seen:
        position = reader.position(one) if one.threads else None
        if position is None:
            continue
        looked += 1
        frame = position.user_frame
        if position.thread.holds_gil and frame is not None:
            places[frame.function, frame.file] += 1
            at_leaf += frame is position.leaf
    if looked < _LEAST_SAMPLES or max(places.values(), default=0) < _SHARE * looked:
        return None
    return "user" if at_leaf >= _SHARE * looked else "library"


def in_one_c_call(seen: Sequence[RankSnapshot], *, reader: Reader) -> bool:
    """Whether looks with C++ frames show one rank in the same C function all along, below the same line.

    A loop in Python comes back to the interpreter between two calls.
    """
    positions = [reader.position(one) for one in seen]
    inside = [
        {frame.function for frame in itertools.takewhile(_is_native, one.thread.frames)}
        for one in positions
        if one is not None and one.has_native
    ]
    lines = {one.leaf.line for one in positions if one is not None and one.leaf is not None}
    if len(inside) < _LEAST_NATIVE or len(lines) != 1:
        return False
    return any(not name.startswith(_INTERPRETER) for name in set.intersection(*inside))


def _is_native(frame: Frame) -> bool:
    return frame.kind == "native"


def _flat(first: RankSnapshot, last: RankSnapshot) -> bool:
    """Whether the rank neither took memory nor did I/O in between, while its probe's thread could run."""
    before, after = first.facts, last.facts
    if before is None or after is None or not same_process(before, after) or beat_is_stale(last):
        return False
    seconds = after.time - before.time
    if seconds <= 0 or (after.minor_faults - before.minor_faults) / seconds >= _MOST_FAULTS:
        return False
    return (after.io_bytes - before.io_bytes) / seconds < _MOST_IO
