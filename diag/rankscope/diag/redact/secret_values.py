"""Where the value behind a name ends, and which values are no secret whatever their name. Pure."""

from __future__ import annotations

import re
from typing import Final

from rankscope.diag.redact.spans import REMOVED

_QUOTE: Final = re.compile(r"(\\*)([\"'])")
_QUOTE_OR_END: Final = re.compile(r"(?<!\\)(\\*)([\"'])|[\r\n]")
_WORD: Final = re.compile(r"(?:(?![,;&][\w.%-]{1,64}\\*[\"']?[=:])(?:[^\s\"'&]|[\"'](?=\w)))+")
_HEADER: Final = re.compile(r"(?:[^\r\n\"']|(?<==)\"[^\"\n]*\")*")
_WHOLE_LINE: Final = ("authorization", "cookie", "passphrase")
"""Names whose values have blanks in them."""
_CLOSES: Final = {opened: re.compile(rf"\{closed}|(?=[\r\n])") for opened, closed in ("[]", "()", "{}", "<>")}
"""Where what is bracketed ends: not behind its line, for a search to the end of a text costs too much."""
_MARKS: Final = ",;.)}]>\\"
_PLAIN: Final = re.compile(
    r"(?i:true|false|none|null)|<[^<>]*>|\$\{\w+\}|\$[A-Z_][A-Z0-9_]*|(?:user|node|address)-\d+|\[e-mail\]"
)
_NUMBER: Final = re.compile(r"-?\d{1,9}(?:\.\d+)?")


def value_at(text: str, at: int, key: str = "") -> tuple[int, int]:
    """Where a value that begins at a place stands, without its quotes.

    Args:
        text: what it stands in.
        at: where it begins.
        key: its name: some have values of several words.
    """
    quote = _QUOTE.match(text, at)
    if quote is not None:
        return quote.end(), _closing(text, quote.end(), quote)
    if text.startswith(("//", ":"), at):
        return at, at
    if text[at : at + 1] in _CLOSES and text[at : at + 1] and not text.startswith(REMOVED, at):
        close = _CLOSES[text[at]].search(text, at)
        return at, len(text) if close is None else close.end()
    several = any(name in key.lower() for name in _WHOLE_LINE)
    found = (_HEADER if several else _WORD).match(text, at)
    if found is None:
        return at, at
    # A mark of an earlier redaction ends in a bracket too: the merging of spans mends that.
    return at, at + len(found[0].rstrip().rstrip(_MARKS))


def is_plain(value: str, *, numbers: bool = True) -> bool:
    """Whether a value is no secret: a switch, a reference to a variable, nothing, or removed already.

    Args:
        value: with its quotes or without.
        numbers: whether a number is none either.
    """
    left = value.replace(REMOVED, "").strip("\"'" + _MARKS + "([{< \t")
    if not left or left == REMOVED.strip("[]"):
        return True
    bare = value.strip("\"'")
    return bool(_PLAIN.fullmatch(bare) or (numbers and _NUMBER.fullmatch(bare)))


def _closing(text: str, at: int, opened: re.Match[str]) -> int:
    """Where a quoted value ends: at a quote that is escaped no deeper, else (it is cut) with its line."""
    for found in _QUOTE_OR_END.finditer(text, at):
        if found[2] is None or (found[2] == opened[2] and len(found[1]) <= len(opened[1])):
            return found.start()
    return len(text)
