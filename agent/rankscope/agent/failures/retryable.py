"""Whether a failure may be retried, by its exit code and its words (``retryable.toml``, and what a job adds).

Pure: the table is read once, everything else is handed in. Whether a retryable failure is retried is for the
policy to say.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import signal
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from rankscope.agent.failures.exit_codes import as_shell_code, exit_phrase, signal_of
from rankscope.agent.failures.struck import is_by_stop_signal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE: Final = "retryable.toml"
_TYPE: Final = re.compile(r"(?:[A-Za-z_]\w*\.){0,12}([A-Za-z_]\w*)(?::|\Z)")
_SHOWN: Final = 60


class MessageEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[[message]]``: words of a fault that may be gone in another run."""

    what: str
    texts: tuple[str, ...]
    is_from_outside: bool = False


class NeverEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[[never]]``: a fault that another run meets again."""

    what: str
    texts: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


class ExitCodeEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[[exit_code]]``: codes as a shell shows them."""

    what: str
    codes: tuple[int, ...]
    retry: bool


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``retryable.toml``."""

    schema: int
    message: tuple[MessageEntry, ...]
    never: tuple[NeverEntry, ...]
    exit_code: tuple[ExitCodeEntry, ...]


class Verdict(NamedTuple):
    """Whether a failure may be retried, and why, as a phrase."""

    retryable: bool
    because: str


def packaged_text(name: str = FILE) -> str:
    """A data file of this package."""
    return importlib.resources.files("rankscope.agent.failures").joinpath(name).read_text("utf-8")


@functools.lru_cache(maxsize=1)
def packaged_table() -> Table:
    """The table that comes with the package."""
    return msgspec.convert(tomllib.loads(packaged_text()), Table)


def judge(
    exit_code: int | None,
    words: Sequence[str],
    *,
    end: Sequence[str] = (),
    keywords: Collection[str] = (),
    exit_codes: Collection[int] = (),
    table: Table | None = None,
) -> Verdict:
    """Whether the failure may be retried.

    What the user and the job name comes first; then what is never retried, known words, known exit codes.
    Words that the worker did not say of its own end count only where it said nothing: a job that survives
    closed connections has them in its log when it dies of something else.

    Args:
        exit_code: as Python has it, ``None`` when unknown.
        words: the lines of the error itself; empty when it left none.
        end: the last lines of its log.
        keywords: texts that make an error retryable, found anywhere in words and end, in whatever case.
        exit_codes: exit codes that do; 143 and -15 are the same.
        table: instead of the package's.
    """
    known = table or packaged_table()
    # Who was asked to end has no more to say of it.
    silent = () if words or is_by_stop_signal(exit_code) else end
    return (
        _named(exit_code, (*words, *end), keywords, exit_codes)
        or _never(known, words)
        or _message(known, exit_code, words or silent)
        or _never(known, silent, is_typed=False)
        or _by_code(known, exit_code)
        or Verdict(False, "nothing in it is known to be transient")
    )


def _named(
    exit_code: int | None, lines: Sequence[str], keywords: Collection[str], exit_codes: Collection[int]
) -> Verdict | None:
    wanted = sorted(keyword for keyword in keywords if keyword.strip())
    if wanted:
        text = "\n".join(lines).casefold()
        for keyword in wanted:
            if keyword.casefold() in text:
                return Verdict(True, f"{_short(keyword)!r} is named as retryable")
    if exit_code is not None and exit_code != 0:
        shown = as_shell_code(exit_code)
        if shown in {as_shell_code(code) for code in exit_codes}:
            return Verdict(True, f"exit code {shown} is named as retryable")
    return None


def _never(table: Table, lines: Sequence[str], *, is_typed: bool = True) -> Verdict | None:
    name = _type_name(lines[0]) if lines and is_typed else ""
    text = "\n".join(lines).casefold()
    for entry in table.never:
        if name and name in entry.types:
            return Verdict(False, f"{name} is {entry.what}")
        found = _first(entry.texts, text)
        if found:
            return Verdict(False, f"{entry.what} ({found})")
    return None


def _message(table: Table, exit_code: int | None, lines: Sequence[str]) -> Verdict | None:
    killed = signal_of(exit_code) is signal.SIGKILL
    text = "\n".join(lines).casefold()
    for entry in table.message:
        if killed and not entry.is_from_outside:
            continue
        found = _first(entry.texts, text)
        if found:
            return Verdict(True, f"{entry.what} ({found})")
    return None


def _by_code(table: Table, exit_code: int | None) -> Verdict | None:
    if exit_code is None:
        return None
    shown = as_shell_code(exit_code)
    entry = next((one for one in table.exit_code if shown in one.codes), None)
    if entry is None:
        return None if signal_of(exit_code) is None else Verdict(False, exit_phrase(exit_code))
    return Verdict(entry.retry, entry.what)


def _first(texts: Iterable[str], lowered: str) -> str:
    return next((text for text in texts if text.casefold() in lowered), "")


def _type_name(line: str) -> str:
    found = _TYPE.match(line)
    return found[1] if found else ""


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
