"""Frames that the catalogue does not know although they decide: from them it can grow.

On the way from the leaf of a deciding thread to the first frame that means something or is the user's own,
library frames are passed over. They tell nobody anything: the nearest to the leaf is where the rank stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.position import Position
from rankscope.diag.merge.normalise import bare_function, portable_file
from rankscope.diag.merge.own_frames import HELD
from rankscope.diag.model import Frame, UnknownFrame
from rankscope.diag.ranks import fold_ranks

_GLUE: Final = ("0x", "?", "Py", "_Py", "pybind11::", "cfunction_", "method_vectorcall", "vectorcall_")
_MOST: Final = 50
"""Kept: a job of one program shows a dozen."""


def unknown_frames(
    positions: Iterable[tuple[int, Position]], catalogue: Catalogue
) -> tuple[UnknownFrame, ...]:
    """What the catalogue does not know, most ranks first.

    Args:
        positions: each rank with its place.
        catalogue: what frames mean.
    """
    ranks: dict[tuple[str, str, bool], set[int]] = {}
    depths: dict[tuple[str, str, bool], int] = {}
    for rank, position in positions:
        for depth, frame in enumerate(_passed_over(position.thread.frames, catalogue)):
            key = (bare_function(frame.function), portable_file(frame.file), frame.kind == "native")
            ranks.setdefault(key, set()).add(rank)
            depths[key] = min(depth, depths.get(key, depth))
    ordered = sorted(ranks, key=lambda key: (-len(ranks[key]), depths[key], key))
    return tuple(
        UnknownFrame(
            function=key[0],
            file=key[1],
            kind="native" if key[2] else "python",
            count=len(ranks[key]),
            ranks=fold_ranks(ranks[key]),
        )
        for key in ordered[:_MOST]
    )


def _passed_over(frames: Iterable[Frame], catalogue: Catalogue) -> list[Frame]:
    """From the leaf to the first frame with a meaning or of the user's own; glibc's names are known."""
    passed: list[Frame] = []
    for frame in frames:
        if catalogue.label(frame) is not None or catalogue.is_user_code(frame):
            break
        if frame is not HELD and not _is_of_the_c_library(frame, catalogue):
            passed.append(frame)
    return passed


def _is_of_the_c_library(frame: Frame, catalogue: Catalogue) -> bool:
    """An address, the interpreter itself, or one of the calls that ``[[sleep]]`` and ``[[calls]]`` name."""
    if frame.kind != "native":
        return False
    return (
        frame.function.startswith(_GLUE)
        or catalogue.is_asleep((frame,))
        or catalogue.call_label((frame,)) is not None
    )
