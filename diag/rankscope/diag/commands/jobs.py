"""``diag jobs``: which jobs are stored here, and how each stands."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankscope.diag.commands.flags import VerbParser
from rankscope.diag.errors import UsageError

if TYPE_CHECKING:
    from rankscope.diag.jobs_list.model import JobRow

SUMMARY = "the stored jobs: state, age, restarts, last verdict"


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag jobs``."""
    parser = VerbParser(
        prog="diag jobs",
        description="The stored jobs, the newest first: how each stands, its age, restarts, last verdict.",
    )
    parser.add_argument(
        "--since",
        metavar="WHEN",
        help="only jobs that run, or were heard of since: 36h or 2d ago, or a date (UTC)",
    )
    parser.add_argument("--running", action="store_true", help="only jobs that run on this host")
    parser.add_argument("--json", action="store_true", help="machine-readable, one object a job and line")
    return parser


def main(arguments: Sequence[str]) -> int:
    """List the jobs.

    Returns:
        0, also when there are none.

    Raises:
        UsageError: a wrong command line.
        StoreError: the folder of jobs cannot be read.
    """
    options = prepare_parser().parse_args(arguments)
    now = time.time()
    since = _since(options.since, now)
    from rankscope.diag.history.here import this_host
    from rankscope.diag.jobs_list.order import newest_first, wanted
    from rankscope.diag.jobs_list.read import job_paths, read_row
    from rankscope.diag.store.job import home
    from rankscope.diag.streams import tell
    from rankscope.diag.waiting_bar import waiting_for

    here = this_host()
    paths = job_paths()
    rows = [read_row(path, here, now=now) for path in waiting_for(paths, "reading jobs")]
    chosen = newest_first(wanted(rows, since=since, running=options.running))
    if not chosen:
        of = f" (of {len(rows)}; leave out --since and --running to see all)" if rows else ""
        tell(f"diag jobs: no job in {home()}/jobs{of}\n")
    _show(chosen, now, as_json=options.json)
    return 0


def _since(text: str | None, now: float) -> float | None:
    from rankscope.diag.periods import since_time

    try:
        return None if text is None else since_time(text, now)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--since {error}") from None


def _show(rows: Sequence[JobRow], now: float, *, as_json: bool) -> None:
    from rankscope.diag.report.jobs_text import render_jobs
    from rankscope.diag.streams import answer, json_line

    if as_json:
        text = "".join(json_line(row) for row in rows)
    elif rows:
        text = render_jobs(rows, now=now, width=_width())
    else:
        text = ""
    answer(lambda out: print(text, end="", file=out))


def _width() -> int | None:
    """Columns of the terminal, ``None`` when it is none."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    try:
        return max(20, os.get_terminal_size(sys.stdout.fileno()).columns or 80)
    except OSError:
        return 80
