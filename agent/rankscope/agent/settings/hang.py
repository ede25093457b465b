"""What counts as a hang, from everything that was given: detection, limits, C4D's variables. Pure.

C4D warns after ``C4D_HANG_TIMEOUT`` seconds and reports an error after ``C4D_HANG_TIMES`` times as many: the
first is ``--diagnose-after`` here, the second ``--job-hang-interval``. Whoever gives these flags means them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rankscope.agent.settings import table
from rankscope.agent.settings.layers import AIMASTER, Chosen, Given
from rankscope.agent.settings.option import Option
from rankscope.agent.settings.parsing import c4d_seconds
from rankscope.diag.errors import UsageError
from rankscope.watchdog.limits import HangSettings

TIMEOUT: Final = "C4D_HANG_TIMEOUT"
TIMES: Final = "C4D_HANG_TIMES"
C4D_TIMEOUT: Final = 10.0
C4D_TIMES: Final = 18
"""C4D's own defaults: a warning after 10 s, an error after 180 s."""
_DETECTIONS: Final = (table.HANG_DETECTION, table.C4D_DETECTION, table.LINGER_DETECTION)
_LIMITS: Final = (table.HANG_INTERVAL, table.LINGER_LIMIT, table.DIAGNOSE_AFTER, table.C4D_COMMON_ENVS)


@dataclass(frozen=True, slots=True)
class Hangs:
    """What was resolved.

    Attributes:
        sources: of what did not come from where it was given.
        notes: what has no effect.
    """

    detection: bool
    c4d: bool
    limits: HangSettings
    sources: dict[str, str]
    notes: tuple[str, ...]


def resolve_hangs(chosen: Chosen) -> Hangs:
    """Detection and its limits.

    Raises:
        UsageError: a value is not allowed; C4D is asked for and hang detection is not.
    """
    sources: dict[str, str] = {}
    detection = chosen.value(table.HANG_DETECTION)
    c4d = _c4d(chosen, sources, detection=detection)
    after, interval = _limits(chosen, sources, c4d=c4d)
    exit_interval = chosen.value(table.LINGER_LIMIT)
    exits = chosen.value(table.LINGER_DETECTION)
    notes = _without_effect(chosen, detection=detection, c4d=c4d)
    if chosen.value(table.EXECUTION_MODE) == "Async":
        notes = _not_in_async(chosen)
        why = f"{chosen.source(table.EXECUTION_MODE)} Async"
        detection = c4d = exits = False
        sources |= dict.fromkeys((option.name for option in _DETECTIONS), why)
    limits = HangSettings(
        diagnose_after=after, act_after=interval, exit_after=exit_interval if exits else None
    )
    return Hangs(detection, c4d, limits, sources, tuple(notes))


def _c4d(chosen: Chosen, sources: dict[str, str], *, detection: bool) -> bool:
    """C4D needs hang detection, and goes off with it unless it was asked for at least as strongly."""
    wanted = chosen.value(table.C4D_DETECTION)
    if detection or not wanted:
        return wanted
    off = chosen.source(table.HANG_DETECTION)
    given = chosen.given(table.C4D_DETECTION)
    if given is not None and given.strength <= chosen.strength(table.HANG_DETECTION):
        raise UsageError(
            f"{given.source} True: needs hang detection, which is off ({off}); "
            f"{table.HANG_DETECTION.flag} True turns it on"
        )
    sources[table.C4D_DETECTION.name] = off
    return False


def _limits(chosen: Chosen, sources: dict[str, str], *, c4d: bool) -> tuple[float | None, float | None]:
    """Seconds until a diagnosis and until something is done; C4D's where nothing as strong was given."""
    after, interval = chosen.value(table.DIAGNOSE_AFTER), chosen.value(table.HANG_INTERVAL)
    envs = chosen.value(table.C4D_COMMON_ENVS)
    if not c4d or not envs.keys() & {TIMEOUT, TIMES}:
        return after, interval
    strength, source = chosen.strength(table.C4D_COMMON_ENVS), chosen.source(table.C4D_COMMON_ENVS)
    warning, error = c4d_limits(envs)
    if TIMEOUT in envs and strength < chosen.strength(table.DIAGNOSE_AFTER):
        after, sources[table.DIAGNOSE_AFTER.name] = warning, f"{source} {TIMEOUT}"
    if strength < chosen.strength(table.HANG_INTERVAL):
        interval, sources[table.HANG_INTERVAL.name] = error, f"{source} {TIMEOUT} x {TIMES}"
    return after, interval


def c4d_limits(envs: Mapping[str, str]) -> tuple[float, float]:
    """Seconds to C4D's warning and to its error, by its variables or its own defaults."""
    timeout = c4d_seconds(envs[TIMEOUT]) if TIMEOUT in envs else C4D_TIMEOUT
    return timeout, timeout * int(envs.get(TIMES, C4D_TIMES))


def _without_effect(chosen: Chosen, *, detection: bool, c4d: bool) -> list[str]:
    notes: list[str] = []
    interval, envs = _asked(chosen, table.HANG_INTERVAL), chosen.given(table.C4D_COMMON_ENVS)
    if not detection and interval is not None:
        notes.append(
            f"{interval.source} has no effect: hang detection is off ({chosen.source(table.HANG_DETECTION)})"
        )
    if envs is None:
        return notes
    unknown = sorted(chosen.value(table.C4D_COMMON_ENVS).keys() - {TIMEOUT, TIMES})
    if not c4d:
        notes.append(f"{envs.source} has no effect: C4D's detection is off")
    elif unknown:
        notes.append(f"{', '.join(unknown)} in {envs.source}: no meaning here, ignored")
    return notes


def _not_in_async(chosen: Chosen) -> list[str]:
    """What was asked for that an asynchronous job does not have."""
    asked = [
        given.source
        for option in _DETECTIONS
        if (given := _asked(chosen, option)) is not None and chosen.value(option)
    ]
    asked += [given.source for option in _LIMITS if (given := _asked(chosen, option)) is not None]
    if not asked:
        return []
    return [f"{', '.join(asked)}: no effect, an Async job has no hang and no exit-hang detection"]


def _asked(chosen: Chosen, option: Option[object]) -> Given | None:
    """What somebody gave; a default of AIMaster's is nobody's word."""
    given = chosen.given(option)
    return given if given is not None and given.strength < AIMASTER else None
