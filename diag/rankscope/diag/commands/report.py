"""``diag report``: one incident of a job as an HTML file that needs nothing else.

What is stored goes before what runs: the report is of the incident. A job that runs and has none is looked
at.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rankscope.diag.commands.flags import VerbParser, add_look_flags, add_pid_flag, named
from rankscope.diag.commands.output_files import check_outputs, free_name
from rankscope.diag.commands.report_files import write_files
from rankscope.diag.errors import UsageError

if TYPE_CHECKING:
    from rankscope.diag.judging.judged import Judged

SUMMARY = "an incident as one HTML file: verdict, stacks, who waits, ranks, timeline"


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag report``."""
    parser = VerbParser(
        prog="diag report",
        description="One incident as an HTML file that needs no network: verdict, who waits for whom, "
        "stacks, ranks, what could not be seen, evidence, and what the job has been through.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="JOB|FILE",
        help="run id (or its beginning), job folder, or bundle: its last incident; a job without one is "
        "looked at if it runs; or files and folders of dumps, - for standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=named,
        metavar="FILE",
        help="where it goes, - for standard output (default report-JOB.html in the current folder)",
    )
    parser.add_argument("--incident", type=named, metavar="ID", help="a stored incident of the job")
    parser.add_argument("--all", action="store_true", help="all stored incidents of the job, a file each")
    parser.add_argument(
        "--json",
        action="store_true",
        help="say on standard output what was written, with the diagnosis: one object a report and line",
    )
    add_pid_flag(parser)
    parser.add_argument(
        "--catalogue", type=named, metavar="FILE", help="a TOML file with frame patterns of your own"
    )
    parser.add_argument(
        "--user-code",
        action="append",
        default=[],
        type=named,
        metavar="PATH",
        help="code below PATH is yours although it is installed (for the culprit's line)",
    )
    add_look_flags(parser)
    parser.set_defaults(interval=None, samples=None, full=False, folded=None, speedscope=None)
    parser.set_defaults(stored_first=True, verb="report")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Write the report.

    Returns:
        0 when it is written, whatever it says.

    Raises:
        UsageError: no such job, nothing known of it, or no place to write to.
        StoreError: it cannot be written.
    """
    options = prepare_parser().parse_args(arguments)
    if not options.names and not options.pid:
        raise UsageError(
            "which job? a run id, a job folder, --pid, or dumps", hint="`diag analyze` alone lists live jobs"
        )
    check_outputs({"-o": options.output}, json=options.json)
    from rankscope.diag.bundle.unpacked import unpacked
    from rankscope.diag.commands.analyze_jobs import judge_asked

    with unpacked(options.names) as options.names:
        judged = judge_asked(options)
        options.html = options.output or _default_name(judged)
        check_outputs({"-o": options.html})
        written = write_files(judged, options, is_default=options.output is None)
    if options.json:
        _print(judged, written)
    return 0


def _print(judged: Sequence[Judged], written: Sequence[Mapping[str, str]]) -> None:
    from rankscope.diag.report import as_told
    from rankscope.diag.streams import answer, json_line

    told = [
        {"schema": 1, "file": files["html"], "diagnosis": as_told(one.diagnosis)}
        for one, files in zip(judged, written, strict=True)
    ]
    answer(lambda out: print("".join(map(json_line, told)), end="", file=out))


def _default_name(judged: Sequence[Judged]) -> str:
    from rankscope.diag.store.job import folder_name

    if len(judged) > 1:
        return "report.html"  # each gets its job and incident behind it
    one = judged[0]
    job = one.folder.run_id if one.folder is not None else one.diagnosis.job
    return free_name(f"report-{folder_name(job)}.html" if job else "report.html")
