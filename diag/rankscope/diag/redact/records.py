"""Records (decoded JSON) without what must not leave: every text in them, whole command lines, variables.

Fields of a fixed vocabulary stay as they are; unknown fields of another version are treated as any other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, cast

from rankscope.diag.closer_look import PEERS
from rankscope.diag.redact.secret_names import SECRET_SETTINGS, is_secret_name, may_be_a_number, secret_flag
from rankscope.diag.redact.secrets import FORMS
from rankscope.diag.redact.spans import REMOVED
from rankscope.diag.redact.text import SECRETS, VARIABLES, Redactor

_FIXED: Final = frozenset(
    {
        *("verdict", "kind", "severity", "confidence", "state", "role", "class", "action", "phase", "type"),
        *("specversion", "sequence", "clock", "time", "created", "ended", "began", "rule", "wchan"),
        *("comm", "op", "schema", "is_main"),
    }
)
"""Keys whose values are words of ours, of torch or of the kernel, or times."""
_FLAG_NAME: Final = re.compile(r"--?[\w-]+")
_NUMBER: Final = re.compile(r"-?\d{1,9}|None")


def redacted(value: object, redactor: Redactor, *, key: str = "") -> object:
    """The record without what must not leave.

    Args:
        value: decoded JSON.
        redactor: what takes out of texts, and counts.
        key: the key that it stands under.
    """
    if isinstance(value, str):
        return value if key in _FIXED else redactor.text(value)
    if isinstance(value, dict) and key == "settings":
        settings = cast("dict[str, object]", value).items()
        return {name: _setting(name, one, redactor) for name, one in settings}
    if isinstance(value, dict):
        return {
            _key(name, redactor): _member(str(name), one, redactor)
            for name, one in cast("dict[str, object]", value).items()
        }
    if isinstance(value, list):
        items = cast("list[object]", value)
        if key == "variables":
            return _variables(items, redactor)
        if all(isinstance(item, str) for item in items):
            return _words(cast("list[str]", items), redactor, key=key)
        return [redacted(item, redactor, key=key) for item in items]
    return value


def _key(name: str, redactor: Redactor) -> str:
    return name if name.isidentifier() and not FORMS.search(name) else redactor.text(name)


def _member(name: str, value: object, redactor: Redactor) -> object:
    """The value of a key; one with a secret's name has nothing left but whether it was there."""
    if is_secret_name(name):
        return _emptied(name, value, redactor)
    return redacted(value, redactor, key=name)


def _setting(name: str, told: object, redactor: Redactor) -> object:
    """A setting, its value and its source: kept, for it explains what the job did, unless it is a secret."""
    if not isinstance(told, dict):
        return _member(name, told, redactor)
    setting = cast("dict[str, object]", told)
    if name not in SECRET_SETTINGS and setting.get("secret") is not True and not is_secret_name(name):
        return redacted(setting, redactor)
    value = setting.get("value")
    if not value or value == REMOVED:
        return setting
    redactor.removed[SECRETS] += 1
    return {**setting, "value": REMOVED}


def _emptied(name: str, value: object, redactor: Redactor) -> object:
    """All texts in a value go, however deep, and a number where it can be a password."""
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return {_key(key, redactor): _emptied(name, one, redactor) for key, one in members}
    if isinstance(value, list):
        return [_emptied(name, one, redactor) for one in cast("list[object]", value)]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if (isinstance(value, str) and value not in ("", REMOVED)) or (is_number and not may_be_a_number(name)):
        redactor.removed[SECRETS] += 1
        return REMOVED
    return value


def _words(words: list[str], redactor: Redactor, *, key: str) -> list[str]:
    """A command line, or any list of texts: the word behind a flag with a secret's name goes."""
    found: list[str] = []
    flags: set[str] = set()
    before = ""
    for word in words:
        flag = secret_flag(word.rpartition("/")[2], words)
        flags |= {flag.pattern} if flag is not None else set()
        start = _secret_from(before, word, flags)
        if start is not None and word[start:] not in ("", REMOVED):
            redactor.removed[SECRETS] += 1
            found.append(word[:start] + REMOVED)
        else:
            found.append(word if key in _FIXED else redactor.text(word))
        before = word
    return found


def _secret_from(before: str, word: str, flags: Collection[str]) -> int | None:
    """Where in a word of a command line a secret begins, by the word before it and programs' own flags."""
    own = "|".join(sorted(flags))
    named = _FLAG_NAME.fullmatch(before) and is_secret_name(before)
    if not word.startswith("-"):
        return 0 if named or (own and re.fullmatch(own, before)) else None
    joined = re.match(rf"(?:{own})=?", word) if own else None
    return joined.end() if joined is not None else None


def _variables(frames: list[object], redactor: Redactor) -> list[object]:
    """Local variables go, but the number of the rank that a blocked send or receive waits for."""
    kept: list[object] = []
    for frame in frames:
        if not isinstance(frame, dict):
            continue
        told = cast("Mapping[str, object]", frame)
        pairs = told.get("values")
        values = (
            [pair for pair in cast("list[object]", pairs) if _is_peer(pair)]
            if isinstance(pairs, list)
            else []
        )
        redactor.removed[VARIABLES] += (
            len(cast("list[object]", pairs)) if isinstance(pairs, list) else 0
        ) - len(values)
        if values:
            kept.append({**told, "values": values})
    return kept


def _is_peer(pair: object) -> bool:
    if not isinstance(pair, list) or len(cast("list[object]", pair)) != 2:  # noqa: PLR2004 - name, value
        return False
    name, value = cast("list[object]", pair)
    return name in PEERS and isinstance(value, str) and bool(_NUMBER.fullmatch(value))
