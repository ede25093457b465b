"""``diag export``: the tables of jobs as a Parquet dataset, partitioned by job and date."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.diag.commands.flags import VerbParser, named
from rankscope.diag.errors import UsageError

if TYPE_CHECKING:
    from rankscope.diag.tables.exporting import Exported

SUMMARY = "the records of jobs as a Parquet dataset, for any engine"
_SHOWN = 3
"""Warnings of one job that are said one by one."""


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag export``."""
    parser = VerbParser(
        prog="diag export",
        description="Write the records of jobs as a Parquet dataset: a folder a table, partitioned by job "
        "and date. A job that is exported again replaces what the dataset has of it.",
    )
    parser.add_argument(
        "job", nargs="?", type=named, help="run id, unambiguous beginning of one, or job folder"
    )
    parser.add_argument("--all", action="store_true", help="all stored jobs")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        type=named,
        metavar="DIR",
        help="the dataset's folder; made if missing",
    )
    parser.add_argument("--json", action="store_true", help="say what was written, one object a job and line")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Export jobs.

    Returns:
        0, also when parts of their records are missing; that is said.

    Raises:
        UsageError: no such job, no place to write to, or pyarrow is not installed.
        StoreError: the dataset cannot be written.
    """
    options = prepare_parser().parse_args(arguments)
    if (options.job is None) != options.all:
        raise UsageError("which job? a run id, a job folder, or --all", hint="`diag jobs` lists them")
    folder = Path(options.output)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"-o {folder}: that is a file; name a folder")
    from rankscope.diag.tables.exporting import check_place
    from rankscope.diag.tables.parquet import require_pyarrow

    check_place(folder, flag="-o")
    require_pyarrow()
    done = rows = 0
    for exported in _exported(options.job, folder):
        done += 1
        rows += exported.rows
        _say(exported)
        if options.json:
            _print(exported.line())
    if not options.json:
        _print(f"{done} job{'s' * (done != 1)}, {rows:,} rows: {folder}")
    return 0


def _exported(job: str | None, folder: Path) -> Iterator[Exported]:
    from rankscope.diag.jobs_list.read import job_paths
    from rankscope.diag.tables.exporting import export_job
    from rankscope.diag.waiting_bar import waiting_for

    if job is not None:
        yield export_job(job, folder)
        return
    for path in waiting_for(job_paths(), "exporting jobs"):
        yield export_job(path, folder)


def _say(exported: Exported) -> None:
    from rankscope.diag.streams import tell

    for text in exported.warnings[:_SHOWN]:
        tell(f"diag export: {exported.job}: {text}\n")
    more = len(exported.warnings) - _SHOWN
    if more > 0:
        tell(f"diag export: {exported.job}: {more} more (diag history {exported.job})\n")


def _print(text: str) -> None:
    from rankscope.diag.streams import answer

    answer(lambda out: print(text, file=out))
