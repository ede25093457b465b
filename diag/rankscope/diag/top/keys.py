"""Keys from the bytes that a terminal sends. Pure.

Every key has a letter too: over some connections the arrows do not arrive.
"""

from __future__ import annotations

import re
from typing import Final

_SEQUENCES: Final = {
    "[A": "up",
    "OA": "up",
    "[B": "down",
    "OB": "down",
    "[5~": "page_up",
    "[6~": "page_down",
    "[H": "first",
    "[1~": "first",
    "OH": "first",
    "[F": "last",
    "[4~": "last",
    "OF": "last",
}
_LETTERS: Final = {
    "k": "up",
    "j": "down",
    "\x15": "page_up",
    "b": "page_up",
    "\x04": "page_down",
    " ": "page_down",
    "g": "first",
    "G": "last",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "back",
    "\x7f": "back",
    "\x0c": "redraw",
    "a": "analyse",
    "h": "help",
    "?": "help",
    "p": "pause",
    "q": "quit",
    "r": "reverse",
    "s": "sort",
    "<": "sort_back",
    ">": "sort",
}
_KEY: Final = re.compile(r"\x1b(?P<sequence>\[[0-9;]*[A-Za-z~]|O[A-Z])|(?P<letter>.)", re.DOTALL)


def keys_of(data: bytes) -> tuple[str, ...]:
    """The keys that were pressed; what is not known is left out."""
    text = data.decode("utf-8", "replace")
    found: list[str] = []
    for match in _KEY.finditer(text):
        sequence = match["sequence"]
        name = _SEQUENCES.get(sequence, "") if sequence else _LETTERS.get(match["letter"], "")
        if name:
            found.append(name)
    return tuple(found)
