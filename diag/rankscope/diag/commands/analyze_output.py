"""How ``diag analyze`` prints: one diagnosis after the other, as JSON or for a person."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from rankscope.diag.dumps.problem import Problem
from rankscope.diag.errors import StoreError
from rankscope.diag.model import Diagnosis
from rankscope.diag.report import render_json
from rankscope.diag.report.text import inert

_SHOWN_INPUTS: Final = 3


def say(text: str) -> None:
    """One line on stderr."""
    if sys.stderr is not None:
        sys.stderr.write(f"diag analyze: {inert(text)}\n")


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
    if sys.stdout is None:
        return
    try:
        _print(diagnosis, as_json=as_json, full=full)
    except BrokenPipeError:
        # The reader has seen enough; the verdict is the exit status all the same.
        sys.stdout = None
    except OSError as error:
        sys.stdout = None
        raise StoreError(f"the answer cannot be written: {error.strerror or error}") from error


def _print(diagnosis: Diagnosis, *, as_json: bool, full: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(render_json(diagnosis) + b"\n")
        sys.stdout.buffer.flush()
        return
    from rich.console import Console

    from rankscope.diag.report.text import render_text

    try:
        render_text(diagnosis, console=Console(highlight=False), full=full)
        sys.stdout.flush()
    except SystemExit:
        # That is how rich says that the reader has gone.
        raise BrokenPipeError from None
