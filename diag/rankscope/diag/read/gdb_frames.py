"""A frame of gdb's ``bt`` taken apart, and the frames of ``bt`` and ``py-bt`` of one thread put together.

It knows no thread and no line of a dump but the one it is given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from rankscope.diag.model import Frame
from rankscope.diag.read.threads import shared_frame

PLACE: Final = re.compile(r" (at|from) (\S[^ ]*(?: \(deleted\))?)$")
_DEBUG_ARGS: Final = re.compile(r" \((?=[\w$.<>:@ ]{1,80}=|\.\.\.\)?)")
_EVALUATION: Final = "_PyEval_EvalFrameDefault"


def merge_frames(native: Sequence[Frame], python: Sequence[Frame]) -> tuple[tuple[Frame, ...], list[int]]:
    """Python frames before the interpreter's own ones that run them; where each native frame went.

    One C frame of the interpreter runs one Python frame or, from CPython 3.11 on, several: where the numbers
    differ, all Python frames stand at the innermost.
    """
    spoken = [frame for frame in python if frame.kind == "python"]
    evaluations = [at for at, frame in enumerate(native) if frame.function == _EVALUATION]
    one_each = len(evaluations) == len(spoken)
    first = evaluations[0] if evaluations else len(native)
    frames: list[Frame] = []
    moved: list[int] = []
    waiting = list(spoken)
    for at, frame in enumerate(native):
        if at >= first and waiting and (not one_each or frame.function == _EVALUATION):
            take = 1 if one_each else len(waiting)
            frames.extend(waiting[:take])
            del waiting[:take]
        moved.append(len(frames))
        frames.append(frame)
    frames.extend(waiting)
    return tuple(frames), moved


def native_frame(text: str) -> Frame:
    """A frame of ``bt``: ``symbol (args)``, then ``at file:line``, ``from library`` or nothing."""
    place = PLACE.search(text)
    file, line = "", 0
    if place:
        text = text[: place.start()]
        file = place[2]
        if place[1] == "at":
            name, colon, number = file.rpartition(":")
            if colon and number.isdecimal() and len(number) <= 9:  # noqa: PLR2004 - digits of a line number
                file, line = name, int(number)
    return shared_frame(_symbol(text), file, line, "native")


def _symbol(text: str) -> str:
    if text.endswith(" ()"):
        return text[:-3]
    if found := _DEBUG_ARGS.search(text):
        return text[: found.start()]
    return text.rpartition(" (")[0] or text
