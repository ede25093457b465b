"""What came out of a trial, and in what it is not as its row expects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.faults.copies import marked_lines, with_names
from tests.faults.draw import Draw
from tests.faults.rows import ANYWHERE, LATEST, LITTLE_TOLD, Answer, Expectation, Mode, Row, Silent

from rankscope.diag.model import Diagnosis
from rankscope.diag.ranks import fold_ranks

NO_INCIDENT: Final = Answer("none")
OR: Final = "|"
"""Between the lines of a place any of which will do, and between the rules of the two modes."""
_LOG_LIKE: Final = frozenset({"log", "notify"})
_MILD: Final = ("none", "info", "warning", "error")


@dataclass(frozen=True)
class Found:
    """What came out of a trial.

    Attributes:
        answer: under ``diag run`` the first diagnosis that says more than ``Unknown``, else the last one;
            beside a job what ``diag analyze`` said.
        exit_code: of the whole job, ``None`` when it was not run to its end.
        severities: of all that was stored, in order.
        open_incidents: how many were published and never recovered.
        actions: what was decided.
        seconds: under ``diag run`` from the last progress (or the death of the process) to the stored
            verdict, beside a job from the command to its answer; ``None`` when there was none.
        wall: seconds the trial took.
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


def expectation(row: Row, draw: Draw, mode: Mode, folder: Path) -> Expectation:
    """What the row expects of a trial: with the drawn names, and lines instead of markers.

    Args:
        row: whose.
        draw: what was drawn.
        mode: how it is run.
        folder: the job's, which holds the program's copy.

    Raises:
        ValueError: the program has no such marker.
    """
    expected = row.expected(draw) if callable(row.expected) else row.expected
    if not isinstance(expected, Answer):
        return expected
    function = with_names(expected.function, draw.names)
    first, _, second = expected.rule.partition(OR)
    rule = second if second and mode == "beside" else first
    return replace(expected, function=function, rule=rule, line=_place(expected.line, draw, folder))


def _place(marker: str, draw: Draw, folder: Path) -> str:
    if not marker:
        return ""
    lines = marked_lines((folder / draw.file).read_text())
    # A marker that is called like what was renamed has its name.
    numbers = lines.get(with_names(marker, draw.names))
    if numbers is None:
        raise ValueError(f"no line is marked {marker!r} there, only {', '.join(lines) or 'none'}")
    return f"{draw.file}:{OR.join(map(str, numbers))}"


def limit_of(row: Row, expected: Expectation) -> float:
    """Seconds to the verdict: the row's own, else by whether it is a hang in which nobody is awaited."""
    if row.within is not None:
        return row.within
    if not isinstance(expected, Answer) or expected.verdict != "RankNonCommHang":
        return LATEST
    return LITTLE_TOLD if expected.culprits == "-" else LATEST


def answer_of(diagnosis: Diagnosis) -> Answer:
    """A diagnosis in the terms of the matrix."""
    where = diagnosis.location
    return Answer(
        diagnosis.verdict,
        fold_ranks(diagnosis.culprits) or "-",
        diagnosis.kind,
        where.function if where else "-",
        diagnosis.rule,
        f"{Path(where.file).name}:{where.line}" if where else "-",
    )


def differences(expected: Expectation, found: Found, *, within: float | None = None) -> tuple[str, ...]:
    """In what ``found`` is not as expected; empty when all is right.

    Args:
        expected: with drawn names and lines.
        found: what came.
        within: seconds to the verdict.
    """
    if isinstance(expected, Answer):
        late = within is not None and found.seconds is not None and found.seconds > within
        return (*_differs_in(expected, found.answer), *(("seconds",) if late else ()))
    if isinstance(expected, Silent):
        return (*_differs_in(NO_INCIDENT, found.answer), *_ended_badly(found), *_acted(found))
    wrong = [*_ended_badly(found), *_acted(found)]
    allowed = _MILD.index(expected.severity)
    if any(_MILD.index(severity) > allowed for severity in found.severities):
        wrong.append("severity")
    if found.open_incidents:
        wrong.append("recovered")
    return tuple(wrong)


def _differs_in(expected: Answer, found: Answer) -> tuple[str, ...]:
    wrong: list[str] = []
    if expected.verdict != found.verdict:
        wrong.append("class")
    if expected.kind != found.kind:
        wrong.append("kind")
    if expected.culprits != found.culprits:
        wrong.append("culprits")
    if expected.function != ANYWHERE and not _same_function(expected.function, found.function):
        wrong.append("function")
    if expected.line and found.line not in _lines(expected.line):
        wrong.append("line")
    if expected.rule and expected.rule != found.rule:
        wrong.append("rule")
    return tuple(wrong)


def _same_function(one: str, other: str) -> bool:
    """Since Python 3.11 a method comes with its class, ``MetricsWriter.write``; a row may leave it out."""
    if "." in one and "." in other:
        return one == other
    return one.rpartition(".")[2] == other.rpartition(".")[2]


def _lines(place: str) -> tuple[str, ...]:
    file, _, numbers = place.rpartition(":")
    return tuple(f"{file}:{number}" for number in numbers.split(OR))


def _ended_badly(found: Found) -> tuple[str, ...]:
    return () if found.exit_code == 0 else ("exit code",)


def _acted(found: Found) -> tuple[str, ...]:
    return ("action",) if any(action not in _LOG_LIKE for action in found.actions) else ()
