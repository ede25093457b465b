"""A log's text as clean lines, one by one from any place: most of a long text is never taken apart.

Clean means without colours, progress bars, the frames that ``rich`` and exception groups draw, and what a
launcher or logger puts before each line. It must not know what the lines say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from rankscope.agent.failures.identity import without_bars
from rankscope.diag.read.lines import clean
from rankscope.diag.read.prefixes import Prefixes

_LONGEST_LINE: Final = 4_000
_BOX: Final = ("│", "╰")
"""Between the head of a traceback that rich draws and the exception's line."""
_GROUP: Final = re.compile(r"\s*(?:\| ?|\+ (?=Exception Group))")
"""What Python draws before the lines of an exception group."""


class TextLine(NamedTuple):
    """A clean line, and where it begins in the text."""

    at: int
    text: str


class LogText:
    """Clean lines of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._prefixes = Prefixes()

    def line_at(self, at: int) -> TextLine:
        """The line that a place in the text is in."""
        begin = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        return self._clean(begin, len(self.text) if end < 0 else end)

    def forward(self, at: int) -> Iterator[TextLine]:
        """The lines from the one that begins at ``at`` on."""
        size = len(self.text)
        while at < size:
            end = self.text.find("\n", at)
            end = size if end < 0 else end
            line = self._clean(at, end)
            if not line.text.lstrip().startswith(_BOX):
                yield line
            at = end + 1

    def backward(self, at: int) -> Iterator[TextLine]:
        """The lines before the one that begins at ``at``, the nearest first."""
        while at > 0:
            begin = self.text.rfind("\n", 0, at - 1) + 1
            yield self._clean(begin, at - 1)
            at = begin

    def last(self, count: int) -> tuple[str, ...]:
        """The last lines that are not blank, in their order; at most ``count``."""
        found: list[str] = []
        for line in self.backward(len(self.text) + 1):
            if line.text.strip():
                found.append(line.text)
                if len(found) >= count:
                    break
        return tuple(reversed(found))

    def lines_after(self, at: int) -> int:
        """How many lines begin behind a place."""
        return self.text.count("\n", at)

    def last_places(self, literal: str, count: int) -> list[int]:
        """Where the last ``count`` occurrences of a literal are, in their order."""
        found: list[int] = []
        at = len(self.text)
        while len(found) < count and (at := self.text.rfind(literal, 0, at)) >= 0:
            found.append(at)
        return found[::-1]

    def _clean(self, begin: int, end: int) -> TextLine:
        raw = self.text[max(begin, end - _LONGEST_LINE) : end]
        body = self._prefixes.split(without_bars(clean(raw.encode("utf-8", "replace")))).body
        return TextLine(begin, _GROUP.sub("", body, count=1) if _GROUP.match(body) else body)
