"""The matrix on paper: what was expected of each trial and what was found, for a terminal and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.faults.found import Found, differences, limit_of
from tests.faults.rows import ANYWHERE, MODES, Answer, Expectation, Row, Silent
from tests.faults.trial import Trial

_WIDTHS: Final = (20, 6, 6, 8, 15, 14, 8, 34, 4)
_HEADINGS: Final = ("row", "mode", "rank", "", "class", "kind", "culprits", "place", "rule")
_SUMMARY: Final = ("row", "suite", "trials", "right", "silent", "published", "caught after", "took")
_SUMMARY_WIDTHS: Final = (20, 9, 7, 6, 7, 10, 16, 8)
_HEAD: Final = """\
Written by `make faults ARGS="--results FILE"`: real jobs, under `run` by `diag run` with shipped defaults,
`beside` launched by plain torchrun and looked at by `diag analyze` once they stand. Rank: the one with the
fault, and the world size. Expected and found: class, kind, culprits, place (in the copy, under its drawn
names), rule. Seconds: under `run` from the last progress to the stored verdict, `beside` from the start of
`diag analyze` to its answer."""
_LIST_WIDTHS: Final = (20, 9, 10, 0)
_MARKDOWN: Final = ("row", "seed", "mode", "rank", "expected", "found", "seconds", "")


@dataclass(frozen=True)
class Outcome:
    """A trial with what was expected of it and what was found."""

    trial: Trial
    expected: Expectation
    found: Found

    @property
    def wrong(self) -> tuple[str, ...]:
        """In what they differ."""
        return differences(self.expected, self.found, within=limit_of(self.trial.row, self.expected))

    @property
    def rank(self) -> str:
        """The rank that has the fault, and of how many."""
        return f"{self.trial.draw.rank}/{self.trial.draw.ranks}"

    @property
    def seconds(self) -> str:
        """To the verdict."""
        return "-" if self.found.seconds is None else f"{self.found.seconds:.1f}"


def listed(rows: Iterable[Row]) -> str:
    """One line a row: what it is about."""
    return "\n".join(
        _columns((row.name, row.suite, " ".join(row.modes), row.what), _LIST_WIDTHS) for row in rows
    )


def heading() -> str:
    """The line above all trials."""
    return _line(_HEADINGS, "seconds")


def trial_lines(outcome: Outcome) -> str:
    """What was expected and what was found, with reasons where it was not the same."""
    trial, found, wrong = outcome.trial, outcome.found, outcome.wrong
    verdict = f"wrong: {', '.join(wrong)}" if wrong else "ok"
    lines = [
        _line((trial.row.name, trial.mode, outcome.rank, "expected", *_expected(outcome.expected)), ""),
        f"{_line(('', '', '', 'found', *_cells(found.answer)), outcome.seconds)}  {verdict}",
    ]
    if wrong:
        drawn = trial.draw
        names = "".join(f", {old} is {new}" for old, new in drawn.names.items())
        actions = ", ".join(found.actions) or "-"
        place = f"rank {drawn.rank} of {drawn.ranks}, step {drawn.at}, {drawn.file}{names}"
        lines += [
            f"    {trial.row.what}; exit code {found.exit_code}, actions {actions}",
            f"    seed {drawn.seed}: {place}",
        ]
    if wrong or found.seconds is None or not isinstance(outcome.expected, Answer):
        lines += [f"    {remark}" for remark in found.remark.splitlines()]
    return "\n".join(lines)


def summary(outcomes: Iterable[Outcome]) -> str:
    """One line a row: how often it was right, and how long things took."""
    lines = [_columns(_SUMMARY, _SUMMARY_WIDTHS)]
    for row, some in _by_row(outcomes).items():
        found = [one.found for one in some]
        seconds = sorted(one.seconds for one in found if one.seconds is not None)
        cells = (
            row.name,
            row.suite,
            str(len(some)),
            str(sum(not one.wrong for one in some)),
            str(sum(one.exit_code == 0 and not one.severities for one in found)),
            str(sum(bool(one.severities) for one in found)),
            f"{seconds[0]:.1f}-{seconds[-1]:.1f} s" if seconds else "-",
            f"{statistics.median(one.wall for one in found):.0f} s",
        )
        lines.append(_columns(cells, _SUMMARY_WIDTHS))
    return "\n".join(lines)


def markdown(outcomes: Iterable[Outcome], *, title: str) -> str:
    """A page with one line a trial; what differs is in bold."""
    lines = [
        f"# {title}",
        "",
        _HEAD,
        "",
        _cells_of(_MARKDOWN),
        _cells_of("---" for _ in _MARKDOWN),
    ]
    for row, some in _by_row(outcomes).items():
        lines += [_cells_of(_markdown_cells(row, one)) for one in some]
    return "\n".join([*lines, ""])


def _markdown_cells(row: Row, one: Outcome) -> tuple[str, ...]:
    expected, found = _expected(one.expected), _cells(one.found.answer)
    return (
        row.name,
        str(one.trial.draw.seed),
        one.trial.mode,
        one.rank,
        ", ".join(expected),
        ", ".join(found),
        one.seconds,
        f"**{', '.join(one.wrong)}**" if one.wrong else "ok",
    )


def _by_row(outcomes: Iterable[Outcome]) -> Mapping[Row, Sequence[Outcome]]:
    """In the order in which their rows came first; within a row by seed, mode and place of the fault."""
    rows: dict[Row, list[Outcome]] = {}
    for one in outcomes:
        rows.setdefault(one.trial.row, []).append(one)
    return {row: sorted(some, key=_order) for row, some in rows.items()}


def _order(one: Outcome) -> tuple[int, int, bool, int]:
    trial = one.trial
    return (trial.draw.seed, MODES.index(trial.mode), trial.draw.rank == 0, trial.number)


def _expected(expected: Expectation) -> tuple[str, ...]:
    if isinstance(expected, Answer):
        return _cells(expected, no_rule="any")
    if isinstance(expected, Silent):
        return ("none", "-", "-", "-", "-")
    return (f"{expected.severity} at most", "any", "any", "any", "any")


def _cells(answer: Answer, *, no_rule: str = "-") -> tuple[str, ...]:
    """Class, kind, culprits, place and rule."""
    function = "any" if answer.function == ANYWHERE else answer.function
    place = function if answer.line in ("", "-") else f"{function} {answer.line}"
    return (answer.verdict, answer.kind, answer.culprits, place, answer.rule or no_rule)


def _line(cells: Sequence[str], seconds: str) -> str:
    return f"{_columns(cells, _WIDTHS)}  {seconds.rjust(7)}"


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


def _cells_of(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
