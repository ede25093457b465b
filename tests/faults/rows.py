"""What a row of the fault matrix is, and what it may expect. Data only.

Three kinds of expectation: ``Silent`` for what is healthy and must not be mentioned, ``Passing`` for a rank
that is alone but alive and comes back by itself, and an ``Answer`` for a fault, which must be named as it is.
How a row is run is ``tests.faults.trial``'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from tests.jobs import Job

Suite = Literal["faults", "healthy", "alone", "busy"]
SUITES: Final[tuple[Suite, ...]] = ("faults", "healthy", "alone", "busy")
ANYWHERE: Final = ""
"""No function is expected: the process left none."""
_PROGRAMS: Final = Path(__file__).parent / "programs"
_LOG_LIKE: Final = frozenset({"log", "notify"})
_MILD: Final = ("none", "info", "warning", "error")


@dataclass(frozen=True)
class Answer:
    """What a diagnosis says; ``verdict`` is ``none`` when there was no incident.

    Attributes:
        culprits: folded rank set, ``-`` for none.
        function: of the line it points at; ``ANYWHERE`` in an expectation matches all.
    """

    verdict: str
    culprits: str = "-"
    kind: str = "-"
    function: str = "-"

    def differs_in(self, found: Answer) -> tuple[str, ...]:
        """The fields in which ``found`` is not what is expected here."""
        wrong: list[str] = [
            name for name in ("verdict", "culprits", "kind") if getattr(self, name) != getattr(found, name)
        ]
        # Since Python 3.11 a method comes with its class: MetricsWriter.write.
        if self.function not in (ANYWHERE, found.function, found.function.rpartition(".")[2]):
            wrong.append("function")
        return tuple(wrong)


NO_INCIDENT: Final = Answer("none")


@dataclass(frozen=True)
class Found:
    """What came out of a row.

    Attributes:
        answer: the first diagnosis that says more than ``Unknown``, else the last one.
        exit_code: of the whole job, ``None`` when it was not run to its end.
        severities: of all that was stored, in order.
        open_incidents: how many were published and never recovered.
        actions: what was decided.
        seconds: from the last progress (or the death of the process) to the stored verdict, ``None`` when
            there was none.
        wall: seconds the row took.
        remark: what a person should know besides.
    """

    answer: Answer
    exit_code: int | None = None
    severities: tuple[str, ...] = ()
    open_incidents: int = 0
    actions: tuple[str, ...] = ()
    seconds: float | None = None
    wall: float = 0.0
    remark: str = ""


@dataclass(frozen=True)
class Silent:
    """The job ends well and no incident was opened."""

    def differs_in(self, found: Found) -> tuple[str, ...]:
        """What of it did not hold."""
        return (*NO_INCIDENT.differs_in(found.answer), *_ended_badly(found), *_acted(found))


@dataclass(frozen=True)
class Passing:
    """The job ends well; what was published on the way was no worse than this, took no action, recovered."""

    severity: Literal["info", "warning"]

    def differs_in(self, found: Found) -> tuple[str, ...]:
        """What of it did not hold."""
        wrong = [*_ended_badly(found), *_acted(found)]
        allowed = _MILD.index(self.severity)
        if any(_MILD.index(severity) > allowed for severity in found.severities):
            wrong.append("severity")
        if found.open_incidents:
            wrong.append("recovered")
        return tuple(wrong)


Expectation = Silent | Passing | Answer


def differences(expected: Expectation, found: Found) -> tuple[str, ...]:
    """In what ``found`` is not as expected; empty when all is right."""
    if isinstance(expected, Answer):
        return expected.differs_in(found.answer)
    return expected.differs_in(found)


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        what: the situation, for a person.
        command: the worker's script with its arguments; gets the job's folder.
        during: what is done to the job while it runs.
        patience: seconds until the row is given up.
        flags: of ``diag run``; the shipped defaults hold for all rows but those whose interval is too long
            to wait for.
    """

    name: str
    suite: Suite
    what: str
    expected: Expectation
    command: Callable[[Path], list[str]]
    ranks: int = 3
    during: Callable[[Job], None] | None = None
    patience: float = 150.0
    flags: tuple[str, ...] = ()


def program(name: str, *flags: str) -> Callable[[Path], list[str]]:
    """A script of ``programs``; ``{folder}`` in a flag becomes the job's folder."""
    return partial(_command, name, flags)


def _command(name: str, flags: tuple[str, ...], folder: Path) -> list[str]:
    return [str(_PROGRAMS / name), *(flag.format(folder=folder) for flag in flags)]


def _ended_badly(found: Found) -> tuple[str, ...]:
    return () if found.exit_code == 0 else ("exit code",)


def _acted(found: Found) -> tuple[str, ...]:
    return ("action",) if any(action not in _LOG_LIKE for action in found.actions) else ()
