"""Which frames of a stack a person is shown first: C++ frames give way before the Python ones do.

Under a call into C lie a dozen C++ frames, and the line of the user's own below them is what is looked for.
It knows frames as they are written only; ``--full`` shows all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MOST: Final = 12
"""Frames of a stack, all kinds."""
LEAST_NATIVE: Final = 3
"""Innermost C++ frames that are shown however many Python frames there are."""
MOST_PYTHON: Final = 24
"""Python frames: more are a recursion, of which the middle is left out."""
_PLACE: Final = re.compile(r" \((?P<file>[^()]*):\d+\)$")
_OF_C: Final = re.compile(r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|s|rs|so[.\d]*)$", re.IGNORECASE)


def is_native(frame: str) -> bool:
    """Whether ``function (file:line)`` is a C++ frame: those have no line, or one of a C++ source."""
    place = _PLACE.search(frame)
    return place is None or _OF_C.search(place["file"]) is not None


def kept_frames(stack: Sequence[str]) -> list[str | int]:
    """The frames to show, leaf first, with the number of those that are left out in their place."""
    if len(stack) <= MOST:
        return list(stack)
    native = [index for index, frame in enumerate(stack) if is_native(frame)]
    python = sorted(set(range(len(stack))).difference(native))
    if len(python) > MOST_PYTHON:
        half = MOST_PYTHON // 2
        python = [*python[:half], *python[-half:]]
    kept = {*python, *native[: max(LEAST_NATIVE, MOST - len(python))]}
    shown: list[str | int] = []
    left_out = 0
    for index, frame in enumerate(stack):
        if index not in kept:
            left_out += 1
            continue
        if left_out:
            shown.append(left_out)
            left_out = 0
        shown.append(frame)
    return [*shown, left_out] if left_out else shown
