"""A bar on stderr while something takes long; nothing where stderr is no terminal, or it is soon done."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

_T = TypeVar("_T")
_PATIENCE: Final = 0.5
"""Seconds before a bar is worth its place."""


def waiting_for(things: Sequence[_T], what: str) -> Iterator[_T]:
    """Each of the things, with a bar that says how many are done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield from things
        return
    begun = time.monotonic()
    done = 0
    for thing in things:
        if time.monotonic() - begun > _PATIENCE:
            break
        yield thing
        done += 1
    if done < len(things):
        yield from _with_bar(things, done, what)


def _with_bar(things: Sequence[_T], done: int, what: str) -> Iterator[_T]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
        task = bar.add_task(what, total=len(things), completed=done)
        for thing in things[done:]:
            yield thing
            bar.advance(task)
