"""What every reader of lines gets: a number and a clean text, and the small interface that each answers to.

Clean means decoded, without colours, cursor movements and carriage returns. It knows no format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from rankscope.diag.read import StackDump

# Control sequences (colours, erase, cursor), operating system commands (titles, links), other escapes.
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_BACKSPACED: Final = re.compile(r"[\x00\x08\x7f]")


class Line(NamedTuple):
    """One line of an input: its number from 1, and its text without what stands before it."""

    number: int
    text: str


class Origin(NamedTuple):
    """Where the lines of a section come from, as far as what stands before them tells.

    Attributes:
        channel: what stood before each line, ``""`` for nothing.
        rank: global rank, ``None`` when it is not surely told.
        pid: process id, 0 when it is not told.
    """

    channel: str = ""
    rank: int | None = None
    pid: int = 0


class Section(Protocol):
    """Reads the lines of one dump, one after the other."""

    def feed(self, line: Line) -> bool:
        """Take a line, or say that it does not belong here."""
        ...

    def close(self) -> Sequence[StackDump]:
        """The processes that were read; the section is not used afterwards."""
        ...


def clean(raw: bytes) -> str:
    """The text of a line as a reader wants it. Bytes that are no UTF-8 become U+FFFD."""
    text = raw.decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    text = text.rstrip("\r\n")
    if "\r" in text:  # a progress bar was drawn over: what was drawn last is what stands there
        text = text.rpartition("\r")[2]
    return _BACKSPACED.sub("", text) if not text.isprintable() else text


def shift(text: str, margin: int) -> str:
    """The text without up to ``margin`` leading blanks."""
    cut = 0
    while cut < margin and text[cut : cut + 1] in {" ", "\t"}:
        cut += 1
    return text[cut:]
