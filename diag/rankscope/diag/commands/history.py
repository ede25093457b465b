"""``diag history``: what a job has been through, by its records; of processes it asks if agents live."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from typing import Final

from rankscope.diag.commands.flags import VerbParser, named
from rankscope.diag.errors import UsageError

SUMMARY = "what a job has been through: cycles, restarts, incidents, where the time went"
_FIRST_TABLE: Final = "restarts"
_NARROW: Final = 60
_WIDE: Final = 120


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag history``."""
    parser = VerbParser(
        prog="diag history",
        description="What a job has been through: where its time went, its cycles and restarts, what was "
        "slow, hung and decided, and the settings in force.",
    )
    parser.add_argument(
        "job", nargs="?", type=named, help="run id, unambiguous beginning of one, job folder, or bundle"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="every fault behind a restart, every node's own record, every event, and earlier jobs of the "
        "same run id",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable, one object")
    parser.add_argument(
        "--csv",
        nargs="?",
        const=_FIRST_TABLE,
        metavar="TABLE",
        help="one table as CSV: restarts (default), cycles, spent, faults, moments, settings",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Show a job's history.

    Returns:
        0, also when parts of it are missing; that is said.

    Raises:
        UsageError: no such job, or no such table.
    """
    options = prepare_parser().parse_args(arguments)
    from rankscope.diag.bundle.unpacked import unpacked
    from rankscope.diag.history.read import read_job
    from rankscope.diag.history.story import history_of
    from rankscope.diag.history.tables import TABLES, csv_text
    from rankscope.diag.report.history_text import WIDTH, render_history
    from rankscope.diag.store.job import find_job
    from rankscope.diag.streams import json_line, tell

    job, table = _job_and_table(options, tuple(TABLES))
    with unpacked([job]) as (place,):
        history = history_of(read_job(find_job(place)), unfold=options.all)
    for warning in history.warnings:
        tell(f"diag history: {warning}\n")
    if options.json:
        _show(json_line(history))
    elif table is not None:
        _show(csv_text(history, table))
    else:
        width = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout and sys.stdout.isatty() else WIDTH
        _show(render_history(history, width=min(_WIDE, max(_NARROW, width)), full=options.all))
    return 0


def _job_and_table(options: argparse.Namespace, tables: Sequence[str]) -> tuple[str, str | None]:
    """Which job, and which table; ``--csv`` before the job has taken it for its own value."""
    job, table = options.job, options.csv
    if options.json and table is not None:
        raise UsageError("--json and --csv: one of them")
    if job is None and table is not None and table not in tables:
        job, table = table, _FIRST_TABLE
    if job is None:
        raise UsageError("which job? a run id or a job folder", hint="`diag analyze` alone lists live jobs")
    if table is not None and table not in tables:
        raise UsageError(f"--csv {table!r}: {', '.join(tables)} expected")
    return job, table


def _show(text: str) -> None:
    from rankscope.diag.streams import answer

    answer(lambda out: print(text, end="", file=out))
