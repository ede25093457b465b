"""Places in a text that must not leave, put together and replaced at once. Pure.

All rules look at the same text; what they find is merged, so that each place is replaced and counted once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

REMOVED: Final = "[removed]"
_MARK: Final = re.compile(re.escape(REMOVED))
_ROUNDS: Final = 8


class Span(NamedTuple):
    """One place; of two that are merged the kind of the more serious one (the lower) stays."""

    start: int
    end: int
    kind: str


def replaced(text: str, find: Callable[[str], Iterable[Span]], first: str) -> tuple[str, list[str]]:
    """The text with a mark in place of each span, and the kinds of those.

    What is left is looked at again until nothing is found, so that doing it once more changes nothing.

    Args:
        text: any.
        find: all rules on a text; what they find may overlap.
        first: the kind that a merged span has when one of its parts has it.
    """
    kinds: list[str] = []
    for _ in range(_ROUNDS):
        spans = merged(text, find(text), first)
        if not spans:
            break
        kinds += [span.kind for span in spans]
        parts: list[str] = []
        at = 0
        for span in spans:
            parts += (text[at : span.start], REMOVED)
            at = span.end
        text = "".join((*parts, text[at:]))
    return text, kinds


def merged(text: str, spans: Iterable[Span], first: str) -> list[Span]:
    """Spans that do not overlap; none cuts a mark of an earlier redaction, none is only such a mark."""
    marks = [Span(found.start(), found.end(), "") for found in _MARK.finditer(text)]
    together: list[Span] = []
    for span in sorted((*(span for span in spans if span.end > span.start), *marks)):
        before = together[-1] if together else None
        if before is None or span.start >= before.end:
            together.append(span)
            continue
        kind = first if first in (before.kind, span.kind) else before.kind or span.kind
        together[-1] = Span(before.start, max(before.end, span.end), kind)
    return [span for span in together if text[span.start : span.end].replace(REMOVED, "")]
