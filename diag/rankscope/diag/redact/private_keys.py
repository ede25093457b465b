"""Private keys in a text: whole, cut at either end, or with their lines escaped into one. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

_BEGIN: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END: Final = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_PREFIX: Final = r"(?:\[[\w :.-]{1,40}\]:? ?)?"
"""What torchrun puts before a worker's line."""
_HEADER: Final = r"(?:Proc-Type|DEK-Info|Comment|Version|Hash|Charset|MessageID)\s?:[^\n\\]*"
_BASE64: Final = r"[A-Za-z0-9+/=]+"
_BODY: Final = re.compile(
    rf"(?:[ \t]*(?:\r?\n|(?:\\+r)?\\+n)[ \t]*{_PREFIX}(?:{_HEADER}|{_BASE64})?"
    r"(?=[ \t]{0,8}(?:[\r\n\\\"'-]|\Z))"
    r"|[ \t]+[A-Za-z0-9+/=]{40,})*"
)
"""Lines of a key: the first that is neither base64 nor a header of one ends it."""
_LINE: Final = re.compile(rf"\s*{_PREFIX}(?:{_HEADER}|{_BASE64})?\s*")


def private_keys(text: str) -> Iterator[tuple[int, int]]:
    """Where private keys stand, from the first to the last character of each."""
    ends = [(found.start(), found.end()) for found in _END.finditer(text)]
    starts = [start for start, _ in ends]
    at = line_end = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        if line_end <= begin.start():
            line_end = text.find("\n", begin.end()) + 1 or len(text) + 1
        body = _BODY.match(text, begin.end())
        stop = body.end() if body is not None else begin.end()
        nearest = bisect_left(starts, begin.end())
        if nearest < len(ends):
            start, end = ends[nearest]
            # Behind its last line, or somewhere on the same line.
            if start < line_end or not text[stop:start].strip():
                stop = end
        yield from _headless(text, ends, at, begin.start())
        yield begin.start(), stop
        at = stop
    yield from _headless(text, ends, at, len(text))


def _headless(text: str, ends: list[tuple[int, int]], after: int, before: int) -> Iterator[tuple[int, int]]:
    """Ends of keys whose beginning is cut away (the tail of a log), with the lines before them."""
    first = bisect_left(ends, (after, 0))
    for start, end in ends[first:]:
        if end > before:
            return
        begin = start
        while begin > after:
            line = text.rfind("\n", after, begin - 1) + 1 or after
            if line >= begin or not _LINE.fullmatch(text, line, begin):
                break
            begin = line
        yield begin, end
        after = end
