"""``rankscope.diag.analyze``: what ``diag analyze`` does, for a program or a notebook."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

from rankscope.diag.bundle.unpacked import unpacked
from rankscope.diag.dumps.problem import Problem
from rankscope.diag.errors import UsageError
from rankscope.diag.judging.judge import judge_all
from rankscope.diag.judging.wanted import Wanted
from rankscope.diag.model import Diagnosis
from rankscope.diag.tables.warned import IncompleteRecords

Jobs = str | Path | Sequence[str | Path] | None


def analyze_all(
    job: Jobs,
    *,
    pids: Sequence[int],
    catalogue: str | Path | None,
    user_code: Sequence[str | Path],
    timeout: float,
    interval: float | None,
    incident: str | None,
    stacklevel: int,
) -> list[Diagnosis]:
    """A diagnosis of each job that is meant: see ``rankscope.diag.analyze``.

    Args:
        job: see there; the others too.
        pids: see there.
        catalogue: see there.
        user_code: see there.
        timeout: see there.
        interval: see there.
        incident: see there.
        stacklevel: of the warning, counted from the caller.

    Raises:
        RankscopeError: see there.
    """
    _check_seconds("timeout", timeout)
    if interval is not None:
        _check_seconds("interval", interval)
    said: dict[str, None] = {}

    def say(text: str) -> None:
        said[text] = None

    def say_lost(problems: Sequence[Problem]) -> None:
        for one in problems:
            say(f"{one.where}: {one.what}" if one.where else one.what)

    with unpacked(_names(job)) as names:
        wanted = Wanted(
            names=names,
            pids=[str(pid) for pid in pids],
            incident=incident,
            all=False,
            catalogue=os.fspath(catalogue) if catalogue is not None else None,
            user_code=[os.fspath(path) for path in user_code],
            timeout=timeout,
            interval=interval,
            samples=None,
            native=False,
            locals=False,
            stored_first=False,
            quiet=True,
            say=say,
            say_once=say,
            say_lost=say_lost,
        )
        judged = judge_all(wanted)
    if said:
        warnings.warn("; ".join(said), IncompleteRecords, stacklevel=stacklevel + 1)
    return [one.diagnosis for one in judged]


def the_only(diagnoses: Sequence[Diagnosis]) -> Diagnosis:
    """The diagnosis where one is expected.

    Raises:
        UsageError: there are several.
    """
    if len(diagnoses) == 1:
        return diagnoses[0]
    jobs = ", ".join(one.job for one in diagnoses if one.job)
    raise UsageError(
        f"{len(diagnoses)} jobs are meant{f' ({jobs})' if jobs else ''}, and one was expected",
        hint="name one of them, or say several=True for a list",
    )


def _names(job: Jobs) -> list[str]:
    if job is None:
        return []
    names = [job] if isinstance(job, (str, Path)) else job
    if not names:
        raise UsageError("an empty list names no job; leave `job` out for all jobs of this host")
    return [os.fspath(name) for name in names]


def _check_seconds(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{name}={value!r}: seconds expected, more than 0")
