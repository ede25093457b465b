"""``diag prune``: remove old jobs. Never one that runs, nor one that another host may run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rankscope.diag.commands.flags import VerbParser
from rankscope.diag.errors import UsageError

if TYPE_CHECKING:
    from rankscope.diag.prune.plan import Limits, Plan, Stored

SUMMARY = "remove old jobs, never one that runs"
_Value = TypeVar("_Value")


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag prune``."""
    parser = VerbParser(
        prog="diag prune",
        description="Remove stored jobs. At least one of --older-than, --max-size and --keep says which.",
    )
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        help="jobs whose last sign of life is longer ago: 12h, 30d, 8w",
    )
    parser.add_argument(
        "--max-size",
        metavar="SIZE",
        help="the oldest, until all jobs together take no more: 500M, 10G",
    )
    parser.add_argument(
        "--keep", type=_count, metavar="N", help="never the newest N; alone: all the others go"
    )
    parser.add_argument("--keep-incidents", action="store_true", help="never a job with incidents")
    parser.add_argument("--dry-run", action="store_true", help="say what would go, and remove nothing")
    parser.add_argument("--json", action="store_true", help="machine-readable, one object")
    return parser


def _count(text: str) -> int:
    """A number of jobs.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004 - digits
        raise argparse.ArgumentTypeError(f"{text!r}: a number of jobs expected")
    return int(text)


def main(arguments: Sequence[str]) -> int:
    """Remove old jobs.

    Returns:
        0 when all that was to go is gone, 1 when some of it could not be removed.

    Raises:
        UsageError: a wrong command line, or nothing that says which jobs.
        StoreError: the folder of jobs cannot be read.
    """
    options = prepare_parser().parse_args(arguments)
    limits = _limits(options)
    from rankscope.diag.history.here import this_host
    from rankscope.diag.jobs_list.read import job_paths
    from rankscope.diag.prune.plan import plan_of
    from rankscope.diag.prune.stored import stored_of
    from rankscope.diag.store.job import home
    from rankscope.diag.waiting_bar import waiting_for

    now = time.time()
    here = this_host()
    paths = job_paths()
    jobs = [stored_of(path, here, now=now) for path in waiting_for(paths, "measuring jobs")]
    plan = plan_of(jobs, limits, now=now)
    gone, trouble = _carry_out(plan, home() / "jobs", dry=options.dry_run)
    _show(plan, gone, trouble, options)
    return 1 if trouble else 0


def _limits(options: argparse.Namespace) -> Limits:
    from rankscope.diag.periods import period_seconds, size_bytes
    from rankscope.diag.prune.plan import Limits

    limits = Limits(
        older_than=_read("--older-than", options.older_than, period_seconds),
        max_size_bytes=_read("--max-size", options.max_size, size_bytes),
        keep=options.keep,
        keep_incidents=options.keep_incidents,
    )
    if not limits.chooses:
        raise UsageError(
            "which jobs? say --older-than 30d, --max-size 10G or --keep 20",
            hint="--dry-run shows what would go",
        )
    return limits


def _read(flag: str, text: str | None, reader: Callable[[str], _Value]) -> _Value | None:
    try:
        return None if text is None else reader(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{flag} {error}") from None


def _carry_out(plan: Plan, jobs: Path, *, dry: bool) -> tuple[list[Stored], list[tuple[Stored, str]]]:
    """Remove what goes: what is gone, and what could not be removed, with the reason."""
    from rankscope.diag.prune.remove import NotRemovedError, opened, remove_job, remove_remains
    from rankscope.diag.prune.stored import is_left_over, may_still_go
    from rankscope.diag.waiting_bar import waiting_for

    if dry or not jobs.is_dir():
        return list(plan.goes), []
    gone: list[Stored] = []
    trouble: list[tuple[Stored, str]] = []
    with opened(jobs) as folder:
        remove_remains(folder, may_go=lambda aside: is_left_over(jobs / aside))
        for job in waiting_for(plan.goes, "removing jobs"):
            name = Path(job.row.path).name
            try:
                remove_job(folder, name, may_go=lambda aside: may_still_go(jobs / aside))
            except NotRemovedError as error:
                trouble.append((job, str(error)))
            else:
                gone.append(job)
    return gone, trouble


def _show(
    plan: Plan, gone: Sequence[Stored], trouble: Sequence[tuple[Stored, str]], options: argparse.Namespace
) -> None:
    from rankscope.diag.report.prune_text import prune_json, render_prune
    from rankscope.diag.report.text import inert
    from rankscope.diag.streams import answer, tell

    if options.json:
        text = prune_json(plan, gone, trouble, dry=options.dry_run)
    else:
        text = render_prune(plan, gone, now=time.time(), dry=options.dry_run)
    answer(lambda out: print(text, end="", file=out))
    for job, why in trouble:
        tell(f"diag prune: {inert(job.row.job)}: not removed: {inert(why)}\n")
