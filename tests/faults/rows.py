"""What a row of the fault matrix is, and what it may expect. Data only.

Three kinds of expectation: ``Silent`` for what is healthy and must not be mentioned, ``Passing`` for a rank
that is alone but alive and comes back by itself, and an ``Answer`` for a fault, which must be named as it is.
How a row is run is ``tests.faults.trial``'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

from tests.faults.copies import HERE, with_names, write_copy
from tests.faults.draw import Draw
from tests.jobs import Job

__all__ = [
    "ANYWHERE",
    "HERE",
    "LATEST",
    "LITTLE_TOLD",
    "MODES",
    "SUITES",
    "Answer",
    "Beside",
    "Command",
    "Expectation",
    "Mode",
    "Passing",
    "Row",
    "Silent",
    "Suite",
    "culprit",
    "program",
]

Suite = Literal["faults", "healthy", "alone", "busy", "diagnosis"]
SUITES: Final[tuple[Suite, ...]] = ("faults", "healthy", "alone", "busy", "diagnosis")
Mode = Literal["run", "beside"]
"""Under ``diag run`` as it is shipped, or under plain torchrun with ``diag analyze`` once the job stands."""
MODES: Final[tuple[Mode, ...]] = ("run", "beside")
ANYWHERE: Final = ""
"""No function is expected: the process left none."""
LATEST: Final = 40.0
"""Seconds to the verdict."""
LITTLE_TOLD: Final = 75.0
"""The same where no rank waits for another (no culprit), or where no step was made yet: an idle job looks
like that, so nothing is said before 30 s of silence, and nothing before 60 s in a job little known."""
_PROGRAMS: Final = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Answer:
    """What a diagnosis says; ``verdict`` is ``none`` when there was no incident.

    Attributes:
        culprits: folded rank set, ``-`` for none.
        function: of the line it points at, by its name in the program; ``ANYWHERE`` matches all.
        rule: its name; empty matches all. In an expectation ``4|8`` is one under ``diag run``, where there
            are flight records, and another beside torchrun, where there are none.
        line: in an expectation the name of the marker on that line of the program (``HERE`` for the one
            without a name), empty matches all; else the place, ``file:line``.
    """

    verdict: str
    culprits: str = "-"
    kind: str = "-"
    function: str = "-"
    rule: str = ""
    line: str = ""


@dataclass(frozen=True)
class Silent:
    """The job ends well and no incident was opened."""


@dataclass(frozen=True)
class Passing:
    """The job ends well; what was published on the way was no worse than this, took no action, recovered."""

    severity: Literal["info", "warning"]


Expectation = Silent | Passing | Answer
Command = Callable[[Path, Draw], list[str]]
"""The worker's script with its arguments, from the job's folder and what was drawn."""


@dataclass(frozen=True)
class Beside:
    """When ``diag analyze`` looks at a job that it did not start, and how.

    Attributes:
        quiet: the job stands when the line before the fault was printed, and no step's line for so many
            seconds since.
        after: that line; ``{at}``, ``{before}`` and ``{rank}`` are filled in. ``step N`` is also met by a
            later step. A program without steps prints a line of its own.
        goes_on: the job does not stand, it is slow: it is looked at ``quiet`` seconds after that line.
        flags: of ``diag analyze``.
    """

    quiet: float = 6.0
    after: str = "step {before}"
    goes_on: bool = False
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        what: the situation, for a person.
        expected: may depend on what was drawn.
        command: what is launched.
        renames: functions and classes of the program that get drawn names.
        least_ranks: of the world.
        zero: whether it is run again with the fault on rank 0.
        during: is called once, right after the start, and does something to the job while it runs.
        around: what the world must be like, from before the start until after the end.
        patience: seconds until the row is given up.
        within: seconds to the verdict; ``None`` for what ``limit_of`` says.
        flags: of ``diag run``; the shipped defaults hold for all rows but those whose interval is too long
            to wait for.
        launch: flags of torchrun, given in both modes.
        beside: how it is looked at beside torchrun.
        by_itself: no other trial runs meanwhile: its verdict depends on how much of the machine it gets.
    """

    name: str
    suite: Suite
    what: str
    expected: Expectation | Callable[[Draw], Expectation]
    command: Command
    renames: tuple[str, ...] = ()
    least_ranks: int = 3
    most_ranks: int = 8
    zero: bool = True
    modes: tuple[Mode, ...] = MODES
    during: Callable[[Job, Draw], None] | None = None
    around: Callable[[Path, Draw], AbstractContextManager[None]] | None = None
    patience: float = 150.0
    within: float | None = None
    flags: tuple[str, ...] = ()
    launch: tuple[str, ...] = ()
    beside: Beside = field(default_factory=Beside)
    by_itself: bool = False


def culprit(
    verdict: str, kind: str, function: str = ANYWHERE, *, rule: str = "", line: str = ""
) -> Callable[[Draw], Answer]:
    """The answer that names the drawn rank, and nobody else."""
    return lambda draw: Answer(verdict, str(draw.rank), kind, function, rule, line)


def program(name: str, *flags: str) -> Command:
    """A copy of a script of ``programs`` in the job's folder, as it was drawn.

    ``{folder}`` (the job's), ``{rank}``, ``{ranks}`` and ``{at}`` are filled in in the flags.
    """
    return partial(_command, name, flags)


def _command(name: str, flags: tuple[str, ...], folder: Path, draw: Draw) -> list[str]:
    copy = folder / draw.file
    write_copy(_PROGRAMS / name, copy, draw.names)
    own = (with_names(flag, draw.names) for flag in flags)
    return [
        str(copy),
        *(flag.format(folder=folder, rank=draw.rank, ranks=draw.ranks, at=draw.at) for flag in own),
    ]
