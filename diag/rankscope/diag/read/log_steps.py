"""Tells from the lines behind a traceback whether their writer goes on with its steps.

Programs log exceptions that they survive (a tracker that times out, a read that is tried again). A process
that ends writes a few more lines as well (a tracker's summary, warnings, the last state of a progress bar),
but no two steps.
"""

from __future__ import annotations

import re
from typing import Final

_STEP: Final = re.compile(
    r"(?<![A-Za-z])(?:step|steps|global_step|iter|iters|iteration|epoch|loss|batch|lr|tps)(?![A-Za-z])"
    r"|(?<![A-Za-z])(?:it|steps?|samples?|tokens?|tok|imgs?|examples?)/s|s/it(?![A-Za-z])",
    re.IGNORECASE,
)
_FRAME: Final = re.compile(r'\s*File "')
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_BAR: Final = re.compile(r"%\|.*?\|")
_MOST_LINES: Final = 2_000
_MOST_SHAPES: Final = 64
_LONGEST: Final = 400
_ENOUGH: Final = 2
_ENOUGH_BARS: Final = 3  # a bar is drawn once more when the program ends, and bars may stand in each other


class StepsBehind:
    """The lines of one writer behind one traceback of its.

    Attributes:
        is_open: whether more lines may tell.
    """

    def __init__(self) -> None:
        self.is_open = True
        self._lines = 0
        self._seen: dict[str, set[tuple[str, ...]]] = {}

    def feed(self, text: str) -> bool:
        """Take a line; whether it shows that steps go on: the same words as before, with other numbers."""
        self._lines += 1
        if self._lines >= _MOST_LINES:
            self.is_open = False
        line = text[:_LONGEST]
        if _STEP.search(line) is None or _FRAME.match(line):
            return False
        bars = _BAR.subn("%|", line)
        shape = " ".join(_NUMBER.sub("#", bars[0]).split())
        if shape not in self._seen and len(self._seen) >= _MOST_SHAPES:
            return False
        numbers = self._seen.setdefault(shape, set())
        numbers.add(tuple(_NUMBER.findall(bars[0])))
        goes_on = len(numbers) >= (_ENOUGH_BARS if bars[1] else _ENOUGH)
        self.is_open = self.is_open and not goes_on
        return goes_on
