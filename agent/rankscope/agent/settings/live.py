"""Which settings can be changed while a job runs, and what a change makes of those in force. Pure.

Values are read as flags are. What is not here is in other hands already: workers, processes and sockets were
started with it, or changing it would open what a flag has closed. It must not know who asks.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from rankscope.agent.settings import table
from rankscope.agent.settings.layers import Given, read, refusal, split_words
from rankscope.agent.settings.option import Option
from rankscope.agent.settings.parsing import Words
from rankscope.agent.settings.values import Settings
from rankscope.diag.errors import UsageError

T = TypeVar("T")
LEAST_LIMIT: Final = 1.0
"""Seconds: a hang limit below it is a slip of units, and would end a job that is well."""
MOST_TEXTS: Final = 100
LONGEST_TEXT: Final = 1000
"""Of a list, as the SDK has them: each change is written down whole."""
WHILE_IT_RUNS: Final = "changed while the job runs"
"""The source of a setting that was."""
_LARGEST: Final = 2**53
"""A number above it is nobody's: JSON has no such integers everywhere."""

Plain: TypeAlias = "str | int | float | bool | Sequence[str | int | float] | Mapping[str, str] | None"
_Set = Callable[[Settings, Words, str], Settings]


def _field(option: Option[object], name: str) -> tuple[Option[object], _Set]:
    """A setting that is a field of its own."""

    def change(settings: Settings, words: Words, source: str) -> Settings:
        changed: dict[str, object] = {name: _value(option, words, source)}
        return replace(settings, **changed)  # type: ignore[arg-type]  # the option reads what the field holds

    return option, change


def _limit(option: Option[object], name: str) -> tuple[Option[object], _Set]:
    """A limit of hang detection."""

    def change(settings: Settings, words: Words, source: str) -> Settings:
        if not settings.hang_detection:
            raise UsageError(f"{source}: no effect, hang detection of this job is off")
        value = _value(option, words, source)
        if isinstance(value, float) and value < LEAST_LIMIT:
            raise UsageError(f"{source} {value:g}: {LEAST_LIMIT:g} s or more expected while the job runs")
        changed: dict[str, object] = {name: value}
        limits = replace(settings.hang, **changed)  # type: ignore[arg-type]  # as above
        return replace(settings, hang=limits)

    return option, change


def _exit_limit(settings: Settings, words: Words, source: str) -> Settings:
    if settings.hang.exit_after is None:
        raise UsageError(f"{source}: no effect, exit-hang detection of this job is off")
    limits = replace(settings.hang, exit_after=_value(table.LINGER_LIMIT, words, source))
    return replace(settings, hang=limits)


def _restarts_enabled(settings: Settings, words: Words, source: str) -> Settings:
    enabled = _value(table.ENABLE_RESTART, words, source)
    settings = replace(settings, restart_enabled=enabled)
    if settings.execution_mode == "Async":
        return settings  # each worker's number is its own
    is_said = settings.sources.get(table.MAX_RESTARTS.name) == WHILE_IT_RUNS
    number = settings.max_restarts if is_said else settings.max_restarts or table.MAX_RESTARTS.default
    number = number if enabled else 0
    implied = (
        {table.MAX_RESTARTS.name: f"{source}, {WHILE_IT_RUNS}"} if number != settings.max_restarts else {}
    )
    return replace(settings, max_restarts=number, sources={**settings.sources, **implied})


def _restart_number(settings: Settings, words: Words, source: str) -> Settings:
    number = _value(table.MAX_RESTARTS, words, source)
    settings = replace(settings, max_restarts=number)
    if settings.restart_enabled or number == 0:
        return settings
    # A number says yes, as the flag does.
    implied = {table.ENABLE_RESTART.name: f"{source}, {WHILE_IT_RUNS}"}
    return replace(settings, restart_enabled=True, sources={**settings.sources, **implied})


_CHANGES: Final = (
    _limit(table.DIAGNOSE_AFTER, "diagnose_after"),
    _limit(table.HANG_INTERVAL, "act_after"),
    (table.LINGER_LIMIT, _exit_limit),
    _field(table.ON_HANG, "on_hang"),
    _field(table.STRAGGLER_INTERVAL, "straggler_interval"),
    _field(table.C4D_LOG_LEVEL, "c4d_log_level"),
    (table.MAX_RESTARTS, _restart_number),
    (table.ENABLE_RESTART, _restarts_enabled),  # after the number: who says both means both
    _field(table.RESTART_TIMEOUT, "restart_timeout"),
    _field(table.POLICY, "fault_tolerant_policy"),
    _field(table.MAX_SAME_ERROR, "max_same_error"),
    _field(table.MAX_FAILURE_RATE, "max_failure_rate"),
    _field(table.NO_PROGRESS_LIMIT, "no_progress_limit"),
    _field(table.ISOLATE_NODES, "isolate_nodes"),
    _field(table.RETRYABLE_ERRORS, "retryable_errors"),
    _field(table.RETRYABLE_EXIT_CODES, "retryable_exit_codes"),
    _field(table.EVIDENCE_BUDGET, "evidence_budget"),
)
CHANGEABLE: Final[Mapping[str, tuple[Option[object], _Set]]] = {
    option.name: (option, change) for option, change in _CHANGES
}
"""By name, in the order in which changes are made."""
DECIDE_ANEW: Final = frozenset(
    option.name
    for option in (
        table.HANG_INTERVAL,
        table.ON_HANG,
        table.MAX_RESTARTS,
        table.ENABLE_RESTART,
        table.NO_PROGRESS_LIMIT,
        table.ISOLATE_NODES,
    )
)
"""Those that say what is done about a hang: one that was told only is decided about anew."""


def changed(settings: Settings, change: Mapping[str, Plain]) -> Settings:
    """The settings after a change; all of it, or none.

    Args:
        settings: those in force.
        change: values by name, with dashes or underscores; ``None`` for ``auto`` or ``off``.

    Raises:
        UsageError: a setting cannot be changed, or a value is not allowed; one line.
    """
    by_name = {name.replace("_", "-").removeprefix("--"): value for name, value in change.items()}
    for name in by_name.keys() - CHANGEABLE.keys():
        raise UsageError(_refusal(name))
    if len(by_name) < len(change):
        raise UsageError("one setting is named twice, with dashes and with underscores")
    for name, (option, make) in CHANGEABLE.items():
        if name in by_name:
            settings = make(settings, _words(option, by_name[name]), name)
            settings = replace(settings, sources={**settings.sources, name: WHILE_IT_RUNS})
    return settings


def _refusal(name: str) -> str:
    known = {option.name for option in table.OPTIONS}
    can = ", ".join(CHANGEABLE)
    if name in known:
        return f"{name} cannot be changed while the job runs; what can: {can}"
    shown = name if name.isprintable() and len(name) <= max(map(len, known)) else ascii(name)[:80]
    near = difflib.get_close_matches(name[:80], known, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"there is no setting {shown}{hint}; what can be changed: {can}"


def _value(option: Option[T], words: Words, source: str) -> T:
    """The value as a flag would have it.

    Raises:
        UsageError: it is not allowed.
    """
    given = Given(words, source, 0)
    if len(words) > MOST_TEXTS or any(len(word) > LONGEST_TEXT for word in words):
        raise UsageError(f"{source}: at most {MOST_TEXTS} of {LONGEST_TEXT} characters each expected")
    value = read(option, given)
    if isinstance(value, (int, float)) and abs(value) > _LARGEST:
        raise refusal(option, given)
    return value


def _words(option: Option[object], value: Plain) -> Words:
    """What a flag would have been given.

    Raises:
        UsageError: no flag could say it.
    """
    if isinstance(value, str):
        return split_words(option, [value])
    if value is None:
        return (_nothing(option),)
    if isinstance(value, (bool, int, float)):
        return (str(value),)
    if isinstance(value, Mapping) or not option.many:
        raise UsageError(f"{option.name}: {option.allowed} expected, not a list or an object")
    return tuple(str(each) for each in value) or ("none",)


def _nothing(option: Option[object]) -> str:
    """``auto`` or ``off``, whichever the option takes; ``none`` for a list."""
    if option.many:
        return "none"
    for word in () if isinstance(option.default, bool) else ("auto", "off"):
        try:
            option.read((word,))
        except ValueError:
            continue
        return word
    raise UsageError(f"{option.name} null: {option.allowed} expected")
