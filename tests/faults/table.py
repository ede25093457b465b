"""The matrix on paper: a line expected and a line found for each trial, and the table of all of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from tests.faults.rows import ANYWHERE, Answer, Expectation, Found, Row, Silent, differences

_WIDTHS = (18, 9, 16, 9, 13, 18)
_HEADINGS = ("row", "", "class", "culprit", "kind", "function")
_SUMMARY = ("row", "suite", "trials", "right", "silent", "published", "caught after", "took")
_SUMMARY_WIDTHS = (18, 9, 7, 6, 7, 10, 16, 8)


def heading() -> str:
    """The line above all trials."""
    return _line(_HEADINGS, "seconds")


def trial_lines(row: Row, found: Found) -> str:
    """What was expected and what was found, with reasons where it was not the same."""
    wrong = differences(row.expected, found)
    seconds = "-" if found.seconds is None else f"{found.seconds:.1f}"
    verdict = f"wrong: {', '.join(wrong)}" if wrong else "ok"
    lines = [
        _line((row.name, "expected", *_expected(row.expected)), ""),
        f"{_line(('', 'found', *_cells(found.answer)), seconds)}  {verdict}",
    ]
    if wrong:
        lines.append(
            f"    {row.what}; exit code {found.exit_code}, actions {', '.join(found.actions) or '-'}"
        )
    if wrong or found.seconds is None or not isinstance(row.expected, Answer):
        lines += [f"    {remark}" for remark in found.remark.splitlines()]
    return "\n".join(lines)


def summary(trials: Mapping[Row, Sequence[Found]]) -> str:
    """One line a row: how often it was right, and how long things took."""
    lines = [_columns(_SUMMARY, _SUMMARY_WIDTHS)]
    for row, found in trials.items():
        seconds = sorted(one.seconds for one in found if one.seconds is not None)
        spread = f"{seconds[0]:.1f}-{seconds[-1]:.1f} s" if seconds else "-"
        cells = (
            row.name,
            row.suite,
            str(len(found)),
            str(sum(not differences(row.expected, one) for one in found)),
            str(sum(one.exit_code == 0 and not one.severities for one in found)),
            str(sum(bool(one.severities) for one in found)),
            spread,
            f"{statistics.median(one.wall for one in found):.0f} s" if found else "-",
        )
        lines.append(_columns(cells, _SUMMARY_WIDTHS))
    return "\n".join(lines)


def _expected(expected: Expectation) -> tuple[str, ...]:
    if isinstance(expected, Answer):
        return _cells(expected)
    if isinstance(expected, Silent):
        return ("none", "-", "-", "-")
    return (f"{expected.severity} at most", "any", "any", "any")


def _cells(answer: Answer) -> tuple[str, ...]:
    function = "any" if answer.function == ANYWHERE else answer.function
    return (answer.verdict, answer.culprits, answer.kind, function)


def _line(cells: Sequence[str], seconds: str) -> str:
    return f"{_columns(cells, _WIDTHS)}  {seconds.rjust(7)}"


def _columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
