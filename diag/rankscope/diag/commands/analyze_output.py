"""How ``diag analyze`` prints: one diagnosis after the other, as JSON or for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TextIO

from rankscope.diag.dumps.problem import Problem
from rankscope.diag.model import Diagnosis
from rankscope.diag.report import render_json
from rankscope.diag.report.text import inert
from rankscope.diag.streams import answer, tell

_SHOWN_INPUTS: Final = 3


class _Speaker:
    """In whose name lines are said; a process runs one command."""

    name = "diag analyze"


def speak_as(verb: str) -> None:
    """Say what is said from now on in the name of a verb."""
    _Speaker.name = f"diag {verb}"


def say(text: str) -> None:
    """One line on stderr."""
    tell(f"{_Speaker.name}: {inert(text)}\n")


def say_lost(problems: Sequence[Problem], *, full: bool) -> None:
    """What was not understood: how much of which input, and with ``full`` what it was."""
    if not problems:
        return
    if full:
        for problem in problems:
            times = f" ({problem.count} times)" if problem.count > 1 else ""
            say(f"{problem.where or 'all inputs'}: {problem.what}{times}")
        return
    inputs = dict.fromkeys(problem.where for problem in problems if problem.where)
    named = ", ".join(list(inputs)[:_SHOWN_INPUTS]) or "the inputs"
    more = f" and {len(inputs) - _SHOWN_INPUTS} more" if len(inputs) > _SHOWN_INPUTS else ""
    count = sum(problem.count for problem in problems)
    say(f"{count} thing{'s' * (count != 1)} in {named}{more} not understood (--full)")


def show(diagnosis: Diagnosis, *, as_json: bool, full: bool) -> None:
    """Print a diagnosis; a reader that has gone is no error.

    Raises:
        StoreError: it cannot be written (a full disk).
    """
    answer(lambda out: _print(diagnosis, out, as_json=as_json, full=full))


def _print(diagnosis: Diagnosis, out: TextIO, *, as_json: bool, full: bool) -> None:
    if as_json:
        out.buffer.write(render_json(diagnosis) + b"\n")
        return
    from rich.console import Console

    from rankscope.diag.report.text import render_text

    try:
        render_text(diagnosis, console=Console(file=out, highlight=False), full=full)
    except SystemExit:
        # That is how rich says that the reader has gone.
        raise BrokenPipeError from None
