"""``diag analyze``: explain a job that runs (a fresh pair of snapshots), has ended, or left dumps.

Its command line only: what runs is in ``judging``, and is imported when something is to run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from rankscope.diag.commands.flags import VerbParser, add_look_flags, add_pid_flag, named
from rankscope.diag.commands.report_files import add_file_flags, check_files, takes_stdout, write_files
from rankscope.diag.look_times import LEAST, LOOKS, SLOW_INTERVAL

SUMMARY = "explain a job: live, dead, plain processes, or dumps"
_DIGITS: Final = 6
"""Of a number of looks: nobody takes a million."""
EXIT_HEALTHY: Final = 0
EXIT_USAGE: Final = 2
EXIT_HANG: Final = 3
EXIT_SLOW: Final = 4
EXIT_UNKNOWN: Final = 5
_EXIT_CODES: Final = {
    "Healthy": EXIT_HEALTHY,
    "RankCommHang": EXIT_HANG,
    "RankNonCommHang": EXIT_HANG,
    "Exited": EXIT_HANG,
    "RankCommSlow": EXIT_SLOW,
    "RankNonCommSlow": EXIT_SLOW,
    "Unknown": EXIT_UNKNOWN,
}


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag analyze``."""
    parser = VerbParser(prog="diag analyze", description="Explain a job: which rank hangs, where, and why.")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="JOB|FILE",
        help="run id (or its beginning), job folder, bundle, or agent's URL; or files and folders of dumps, "
        "- for standard input; nothing: all training jobs of this host",
    )
    add_pid_flag(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable, one object a job")
    parser.add_argument("--incident", type=named, metavar="ID", help="a stored incident of the job")
    parser.add_argument(
        "--token-file", type=named, metavar="FILE", help="the job's token, for a URL; else RANKSCOPE_TOKEN"
    )
    parser.add_argument("--all", action="store_true", help="all stored incidents of the job, oldest first")
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
    parser.add_argument(
        "--full",
        action="store_true",
        help="all stacks, auxiliary threads included, and what was not understood",
    )
    parser.add_argument(
        "--samples",
        type=_looks,
        metavar="N",
        help=f"find out what is slow: N looks ({LOOKS} tell most) that stop no rank, --interval seconds apart"
        f" (then {SLOW_INTERVAL:g} by default)",
    )
    add_file_flags(parser)
    add_look_flags(parser)
    parser.set_defaults(interval=None, stored_first=False, verb="analyze")
    return parser


def _looks(text: str) -> int:
    """A number of looks.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else 0
    if value < LEAST:
        raise argparse.ArgumentTypeError(f"{text!r}: a number of looks expected, {LEAST} at least")
    return value


def main(arguments: Sequence[str]) -> int:
    """Explain a job.

    Returns:
        0 healthy, 2 usage or no such job, 3 hang or dead ranks, 4 slow, 5 not enough evidence; the worst
        of several jobs.
    """
    options = prepare_parser().parse_args(arguments)
    check_files(options)
    from rankscope.diag.bundle.unpacked import unpacked
    from rankscope.diag.commands.analyze_jobs import judge_asked
    from rankscope.diag.commands.analyze_output import show

    with unpacked(options.names) as options.names:
        judged = judge_asked(options)
        if not takes_stdout(options):
            for one in judged:
                show(one.diagnosis, as_json=options.json, full=options.full)
        write_files(judged, options)
    # A hang outranks slowness, slowness what could not be told.
    order = (EXIT_HANG, EXIT_SLOW, EXIT_UNKNOWN, EXIT_HEALTHY)
    codes = {_EXIT_CODES[one.diagnosis.verdict] for one in judged}
    return next(code for code in order if code in codes)
