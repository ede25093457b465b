"""Follows Python tracebacks through the lines of a log: what was raised last, and the user's innermost frame.

Whether anybody caught the exception does not stand in it: only what follows may tell (``log_steps``).
Of a chain ("During handling of the above exception ...") only the last exception counts, the one that
propagates. Files of Python itself and of installed packages are not the user's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import msgspec

from rankscope.diag.model import Frame

HEADER: Final = "Traceback (most recent call last)"
_FRAME: Final = re.compile(r'\s*File "([^"\n]{1,1000})", line (\d{1,9})(?:, in (.{1,300}))?$')
_RAISED: Final = re.compile(r"(?:[A-Za-z_]\w*\.){0,12}_?[A-Z]\w*(?:: .*|:)?$")
_CHAINED: Final = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_LIBRARY: Final = re.compile(
    r"^<|/(?:site|dist)-packages/|/lib(?:64)?/python\d|/torch/(?:distributed|utils|nn|autograd|multiprocessing)/"
)
_MOST_LINES: Final = 20_000  # of one traceback; recursion gives 1,000 frames of two or three lines each
_FOREIGN: Final = 20  # lines of others in the middle of one
_MOST_FRAMES: Final = 256
_INTERRUPTIONS: Final = re.compile(r"(?:[A-Za-z_]\w*\.){0,12}(?:KeyboardInterrupt|SIGTERMException)(?::|$)")
"""What a signal from outside raises: Python itself on SIGINT, Lightning on SIGTERM."""
_LONGEST_SOURCE: Final = 300
_AFTER: Final = 4  # lines behind it in which the next one of a chain may be announced


def is_library(file: str) -> bool:
    """Whether a file is Python's own, or of an installed package: not the user's."""
    return _LIBRARY.search(file) is not None


@dataclass(frozen=True, slots=True)
class Raised:
    """The last line of a traceback.

    Attributes:
        text: ``ValueError: bad sample``.
        line: number of that line in the input.
        frame: the user's innermost frame, ``None`` when all were of libraries.
        frames: the whole stack, leaf first, of an interruption only.
        is_chained: whether it was raised while the one before it was handled, or from it.
    """

    text: str
    line: int
    frame: Frame | None = None
    is_chained: bool = False
    frames: tuple[Frame, ...] = ()


def is_interruption(text: str) -> bool:
    """Whether the exception says that somebody outside ended the process, and nothing of why."""
    return _INTERRUPTIONS.match(text) is not None


class TracebackReader:
    """One writer's lines; tracebacks of others must not be mixed in.

    Attributes:
        is_open: whether the next line may still belong to it.
    """

    def __init__(self) -> None:
        self.is_open = False
        self._lines = 0
        self._foreign = 0
        self._after = 0
        self._margin: int | None = 0
        self._frame: Frame | None = None
        self._pending: Frame | None = None  # the newest frame, whose source may be the next line
        self._is_chained = False
        self._frames: list[Frame] = []

    @property
    def is_inside(self) -> bool:
        """Whether a traceback has begun whose last line is still to come."""
        return self.is_open and not self._after

    def feed(self, text: str, *, number: int) -> Raised | None:
        """Take a line; returns what was raised when the line is the last of a traceback."""
        if HEADER in text:
            self._begin(text)
            return None
        if not self.is_open:
            return None
        if self._after:
            self._wait_for_chain(text)
            return None
        self._lines += 1
        if self._lines > _MOST_LINES:
            self.is_open = False
            return None
        found = _FRAME.match(text)
        if found:
            self._add_frame(found, margin=len(text) - len(text.lstrip()))
            return None
        return self._other(text, number)

    def _begin(self, text: str) -> None:
        before = text.partition(HEADER)[0]
        self._is_chained = self.is_open and self._is_chained and bool(self._after)
        self.is_open, self._lines, self._foreign, self._after = True, 0, 0, 0
        self._margin = len(before) if not before.strip() else None  # else the first frame tells
        self._frame = self._pending = None
        self._frames = []

    def _add_frame(self, found: re.Match[str], *, margin: int) -> None:
        if self._margin is None:
            self._margin = max(margin - 2, 0)
        self._foreign = 0
        file, line = found[1], int(found[2])
        self._pending = Frame(found[3] or "<module>", file, line)
        self._frames.append(self._pending)
        if len(self._frames) > _MOST_FRAMES:
            del self._frames[0]
        if not is_library(file):
            self._frame = self._pending

    def _other(self, text: str, number: int) -> Raised | None:
        stripped = text.strip()
        margin = len(text) - len(text.lstrip())
        if not stripped:
            return None
        if margin > (self._margin or 0) + 1:  # source text, and marks under it
            self._add_source(stripped)
            return None
        if _RAISED.match(stripped):
            self._after = _AFTER
            frames = tuple(reversed(self._frames)) if is_interruption(stripped) else ()
            raised = Raised(stripped, number, self._frame, self._is_chained, frames)
            self._is_chained = False
            return raised
        self._foreign += 1
        self.is_open = self._foreign <= _FOREIGN
        return None

    def _add_source(self, text: str) -> None:
        if self._pending is None:
            return
        self._frames[-1] = msgspec.structs.replace(self._pending, source=text[:_LONGEST_SOURCE])
        if self._pending is self._frame:
            self._frame = self._frames[-1]
        self._pending = None

    def _wait_for_chain(self, text: str) -> None:
        if text.strip() in _CHAINED:
            self._is_chained, self._after = True, _AFTER
            return
        self._after -= 1
        self.is_open = self._after > 0
