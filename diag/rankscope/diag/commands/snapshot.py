"""``diag snapshot``: this host's evidence of running jobs into a folder, for ``diag analyze`` elsewhere.

For ``srun --overlap``, ``kubectl exec`` or ``pdsh`` on every host of a job, into one shared folder or into
one each. It judges nothing and does nothing to the job beyond two looks at it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rankscope.diag.commands.flags import VerbParser, add_look_flags, add_pid_flag, named
from rankscope.diag.errors import UsageError

SUMMARY = "store this host's evidence in a folder, for analyze elsewhere"


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag snapshot``."""
    parser = VerbParser(
        prog="diag snapshot",
        description="Store this host's evidence of running jobs, for `diag analyze DIR`.",
    )
    parser.add_argument(
        "job",
        nargs="?",
        help="run id (or its beginning) or job folder; nothing: all training jobs of this host",
    )
    parser.add_argument(
        *("-o", "--output"),
        required=True,
        type=named,
        metavar="DIR",
        help="folder to write into; hosts may share it",
    )
    add_pid_flag(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable, one object a job")
    add_look_flags(parser)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Store evidence.

    Returns:
        0 when every job's evidence is on disk, 1 when it cannot be written, 2 usage or no such job.
    """
    options = prepare_parser().parse_args(arguments)
    if options.pid and options.job is not None:
        raise UsageError("give a job or --pid, not both")
    from rankscope.diag.commands.snapshot_jobs import store_all
    from rankscope.diag.store.outside_jobs import check_outside_jobs

    check_outside_jobs(Path(options.output), flag="-o")
    store_all(options)
    return 0
