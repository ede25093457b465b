"""How the text of a setting becomes its value. Pure; ``ValueError`` means: not allowed.

Nothing here knows which setting it reads, or where the text came from.
"""

from __future__ import annotations

import ipaddress
import math
import re
import signal
from collections.abc import Callable
from typing import Final, Literal, TypeVar

from rankscope.agent.ranks.layout import parse_scheme
from rankscope.diag.errors import UsageError

T = TypeVar("T")
C = TypeVar("C", bound=str)

Words = tuple[str, ...]
"""What was given for one setting: one text, or several for a list."""

TRUE: Final = frozenset({"1", "true", "yes", "on"})
FALSE: Final = frozenset({"0", "false", "no", "off"})
_OFF: Final = frozenset({"no", "off", "false", "-1"})
"""What turns off a limit whose 0 would be one; -1 is AIMaster's, and the SDK's, word for it."""
MAX_PORT: Final = 65535
MAX_EXIT_CODE: Final = 255
MICROSECONDS_FROM: Final = 1_000_000.0
"""From this number on a C4D time is in microseconds, C4D's own unit: nobody waits for eleven days."""
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?")
_ROLE: Final = re.compile(r"[^\s,=]+")
_C4D_NAME: Final = re.compile(r"C4D_[A-Z0-9_]+")


def one(read: Callable[[str], T]) -> Callable[[Words], T]:
    """A reader of settings that are one text; the last one counts, as in argparse."""

    def read_last(words: Words) -> T:
        return read(words[-1].strip())

    return read_last


def positive_seconds(text: str) -> float:
    """More than 0, less than for ever."""
    value = seconds(text)
    if value <= 0:
        raise ValueError
    return value


def seconds(text: str) -> float:
    """0 or more, less than for ever."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value


def seconds_or_auto(text: str) -> float | None:
    """``None`` for auto."""
    return None if text.lower() == "auto" else positive_seconds(text)


def seconds_or_off(text: str) -> float | None:
    """``None`` for off."""
    return None if text.lower() in _OFF else positive_seconds(text)


def interval_or_auto(text: str) -> float | None:
    """0 for off, ``None`` for auto."""
    return 0.0 if text.lower() in _OFF else seconds_or_auto(text)


def boolean(text: str) -> bool:
    """A truth value in any of its spellings."""
    lowered = text.lower()
    if lowered not in TRUE | FALSE:
        raise ValueError
    return lowered in TRUE


def auto_or_boolean(text: str) -> Literal["auto"] | bool:
    """``auto``, or a truth value."""
    return "auto" if text.lower() == "auto" else boolean(text)


def one_of(allowed: tuple[C, ...]) -> Callable[[str], C]:
    """One of these words, in any case."""
    known = {word.lower(): word for word in allowed}

    def read(text: str) -> C:
        if text.lower() not in known:
            raise ValueError
        return known[text.lower()]

    return read


def count(text: str) -> int:
    """A whole number, 0 or more."""
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def count_or_off(text: str) -> int:
    """A whole number, 0 for off."""
    return 0 if text.lower() in FALSE | _OFF else count(text)


def share_or_off(text: str) -> float:
    """A share of the workers, -1 for off."""
    if text.lower() in _OFF:
        return -1.0
    value = float(text)
    if not (value == -1 or 0 <= value <= 1):
        raise ValueError
    return value


def port(text: str) -> int:
    """A TCP port, 0 for a free one."""
    value = count(text)
    if value > MAX_PORT:
        raise ValueError
    return value


def address(text: str) -> str:
    """An IP address (brackets are taken off) or a host's name."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        if _HOST.fullmatch(text) is None:
            raise
        return text
    return bare


def rank_assignment(text: str) -> str:
    """A scheme of ``ranks.layout``; whether a function is there is found out by whoever calls it."""
    try:
        parse_scheme(text)
    except UsageError:
        raise ValueError from None
    return text


def roles(words: Words) -> tuple[str, ...]:
    """Names of roles, ``none`` for none."""
    names = _listed(words)
    if any(_ROLE.fullmatch(name) is None for name in names):
        raise ValueError
    return names


def texts(words: Words) -> tuple[str, ...]:
    """Texts to look for, as they are, ``none`` for none; an empty one would be found everywhere."""
    kept = () if [word.strip().lower() for word in words] == ["none"] else tuple(dict.fromkeys(words))
    if any(not text.strip() for text in kept):
        raise ValueError
    return kept


def exit_codes(words: Words) -> tuple[int, ...]:
    """Exit codes, negative or by name for a signal."""
    return tuple(dict.fromkeys(_exit_code(word) for word in _listed(words)))


def _exit_code(word: str) -> int:
    if word.upper().startswith("SIG"):
        if word.upper() not in signal.Signals.__members__:
            raise ValueError
        return -signal.Signals[word.upper()]
    value = int(word)
    if value == 0 or not -signal.NSIG < value <= MAX_EXIT_CODE:
        raise ValueError
    return value


def some_of(allowed: tuple[str, ...]) -> Callable[[Words], frozenset[str]]:
    """Some of these words; ``all`` and ``none`` mean what they say."""
    read = one_of(allowed)

    def read_some(words: Words) -> frozenset[str]:
        names = _listed(words)
        if tuple(name.lower() for name in names) == ("all",):
            return frozenset(allowed)
        return frozenset(read(name) for name in names)

    return read_some


def addresses(words: Words) -> tuple[str, ...]:
    """Addresses, or where they are read from; ``notices`` reads them."""
    return tuple(dict.fromkeys(_listed(words)))


def c4d_variables(words: Words) -> dict[str, str]:
    """C4D's variables; the two that count here are positive numbers."""
    values: dict[str, str] = {}
    for word in _listed(words):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals or _C4D_NAME.fullmatch(name) is None:
            raise ValueError
        values[name] = value
    if "C4D_HANG_TIMEOUT" in values:
        c4d_seconds(values["C4D_HANG_TIMEOUT"])
    if "C4D_HANG_TIMES" in values and count(values["C4D_HANG_TIMES"]) == 0:
        raise ValueError
    return values


def c4d_seconds(text: str) -> float:
    """C4D's time in seconds; a very large number is one of microseconds."""
    value = positive_seconds(text)
    return value / MICROSECONDS_FROM if value >= MICROSECONDS_FROM else value


def _listed(words: Words) -> tuple[str, ...]:
    names = tuple(word.strip() for word in words)
    if tuple(name.lower() for name in names) == ("none",):
        return ()
    if not all(names):
        raise ValueError
    return names
