"""``diag top``: a job as it runs, rank by rank; looking costs the job nothing."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rankscope.diag.commands.flags import VerbParser, add_pid_flag, named, seconds
from rankscope.diag.errors import UsageError

if TYPE_CHECKING:
    from rankscope.diag.top.following import Following
    from rankscope.diag.top.model import TopPage

SUMMARY = "a job as it runs, rank by rank: steps, communication, CPU"
_INTERVAL: Final = 2.0
_LEAST: Final = 0.1
_FIRST: Final = 1.0
"""Seconds between the two looks that a single answer takes: rates need two."""


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag top``."""
    parser = VerbParser(
        prog="diag top",
        description="Show a running job rank by rank. Keys: h. Not on a terminal: once, and done.",
    )
    parser.add_argument(
        "job", nargs="?", type=named, help="run id (or its beginning), job folder, or process numbers: 12,13"
    )
    add_pid_flag(parser)
    parser.add_argument(
        "--interval",
        type=seconds,
        default=_INTERVAL,
        metavar="S",
        help=f"seconds between two looks (default {_INTERVAL:g})",
    )
    parser.add_argument("--once", action="store_true", help="print it once, also on a terminal")
    parser.add_argument("--json", action="store_true", help="once, machine-readable, one object")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Show a job.

    Returns:
        0, or 128 and the number of the signal that ended it.

    Raises:
        UsageError: no such job, or it does not run on this host.
    """
    options = prepare_parser().parse_args(arguments)
    if bool(options.pid) == (options.job is not None):
        raise UsageError(
            "which job? a run id, a job folder, or --pid", hint="`diag jobs --running` lists them"
        )
    if options.interval < _LEAST:
        raise UsageError(f"--interval {options.interval:g}: {_LEAST} s at least")
    from rankscope.diag.top.following import Following

    following = Following(options.job, options.pid)
    if not (options.once or options.json) and _can_draw():
        from rankscope.diag.top.loop import show

        return show(following, interval=options.interval, colours=not os.environ.get("NO_COLOR"))
    _print(_once(following, min(options.interval, _FIRST)), as_json=options.json)
    return 0


def _can_draw() -> bool:
    from rankscope.diag.top.terminal import can_draw

    return can_draw(os.environ)


def _once(following: Following, interval: float) -> TopPage:
    """One page, of two looks."""
    import contextlib

    from rankscope.diag.top.pages import Pages

    with contextlib.closing(Pages(following)) as pages:
        pages.take()
        time.sleep(interval)
        return pages.take()


def _print(page: TopPage, *, as_json: bool) -> None:
    from rankscope.diag.streams import answer, json_line
    from rankscope.diag.top.screen import plain

    text = json_line(page) if as_json else plain(page)
    answer(lambda out: print(text, end="", file=out))
