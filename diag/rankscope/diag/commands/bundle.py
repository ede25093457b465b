"""``diag bundle``: one archive of a job for a ticket, redacted; what it holds is listed first."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rankscope.diag.commands.flags import VerbParser, named
from rankscope.diag.commands.output_files import (
    STANDARD_OUTPUT,
    check_outputs,
    free_name,
    is_special,
    write_output,
)
from rankscope.diag.errors import UsageError

if TYPE_CHECKING:
    from rankscope.diag.bundle.archive import Packing
    from rankscope.diag.bundle.model import Contents

SUMMARY = "one archive of a job for a ticket, redacted"


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag bundle``."""
    parser = VerbParser(
        prog="diag bundle",
        description="Pack what is stored of a job for a ticket, without secrets, local variables, users and "
        "hosts. `diag analyze FILE` reads it again.",
    )
    parser.add_argument("job", type=named, help="run id, unambiguous beginning of one, or job folder")
    parser.add_argument(
        *("-o", "--output"),
        type=named,
        metavar="FILE",
        help="FILE.tar.gz or FILE.tar.zst, - for standard output (default: JOB.tar.gz here)",
    )
    parser.add_argument("--no-logs", action="store_true", help="without the ends of the workers' logs")
    parser.add_argument("--keep-hosts", action="store_true", help="hosts and addresses keep their names")
    parser.add_argument("--dry-run", action="store_true", help="list what it would hold, and write nothing")
    parser.add_argument("--json", action="store_true", help="list it machine-readable, one object")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Pack a job.

    Returns:
        0, also when some files could not be read; those are listed.

    Raises:
        UsageError: no such job, or a name that is none of an archive.
        StoreError: the archive cannot be written.
    """
    options = prepare_parser().parse_args(arguments)
    from rankscope.diag.bundle.contents import contents_of
    from rankscope.diag.store.job import find_job
    from rankscope.diag.waiting_bar import waiting_for

    folder = find_job(options.job)
    target = None if options.dry_run else _checked(options.output, folder.run_id)
    contents = contents_of(folder, logs=not options.no_logs, keep_hosts=options.keep_hosts, each=waiting_for)
    if not contents.data:
        raise UsageError(f"{folder.path}: there is nothing in it to bundle")
    _list(contents, as_json=options.json, aside=target is not None and target[0] == STANDARD_OUTPUT)
    if target is not None:
        _write(contents, *target)
    return 0


def _checked(output: str | None, job: str) -> tuple[str, Packing]:
    """Where the archive goes and how it is packed; seen to before the work.

    Raises:
        UsageError: that can be no archive, or has no place to be written to.
    """
    from rankscope.diag.bundle.archive import bundle_name, packing_of

    name = output or free_name(bundle_name(job))
    if name == STANDARD_OUTPUT and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError("-o -: an archive is nothing for a terminal", hint="diag bundle JOB -o - > FILE")
    packing = "gz" if name == STANDARD_OUTPUT or is_special(name) else packing_of(name)
    if packing is None:
        raise UsageError(f"-o {name}: a name that ends in .tar.gz or .tar.zst expected")
    check_outputs({"-o": name})
    return name, packing


def _list(contents: Contents, *, as_json: bool, aside: bool) -> None:
    """Say what the bundle holds; on stderr when stdout takes the bundle."""
    from rankscope.diag.report.bundle_text import render_contents
    from rankscope.diag.streams import answer, json_line, tell

    text = json_line(contents.manifest) if as_json else render_contents(contents.manifest)
    if aside:
        tell(text)
    else:
        answer(lambda out: print(text, end="", file=out))


def _write(contents: Contents, name: str, packing: Packing) -> None:
    from rankscope.diag.bundle.archive import archive_bytes
    from rankscope.diag.periods import size_text
    from rankscope.diag.streams import tell

    data = archive_bytes(contents, packing)
    write_output(name, data)
    if name != STANDARD_OUTPUT:
        size = size_text(len(data))
        tell(f"diag bundle: written to {name}, {size}; read it through before you send it\n")
