"""``diag snapshot``: this host's evidence of running jobs into a folder, for ``diag analyze`` elsewhere.

For ``srun --overlap``, ``kubectl exec`` or ``pdsh`` on every host of a job, into one shared folder or into
one each. It judges nothing and does nothing to the job beyond two looks at it.
"""

from __future__ import annotations

import argparse
import functools
import json
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.diag.chosen import all_jobs, jobs_called, jobs_of_pids
from rankscope.diag.commands.at_once import at_once
from rankscope.diag.commands.flags import VerbParser, add_look_flags, add_pid_flag, named
from rankscope.diag.discover.found import FoundJob, FoundPids
from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.live import take_pair
from rankscope.diag.model import JobSnapshot
from rankscope.diag.own_catalogue import found_catalogue
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.report.text import inert
from rankscope.diag.source_lines import SourceReader, with_sources
from rankscope.diag.store.look import LookFolder
from rankscope.diag.streams import answer, tell

SUMMARY = "store this host's evidence in a folder, for analyze elsewhere"


@dataclass(frozen=True, slots=True)
class _Written:
    """What one job's line says."""

    job: str
    path: Path
    snapshot: JobSnapshot

    def ranks(self) -> str:
        """Ranks with stacks, folded."""
        return fold_ranks(rank.rank for rank in self.snapshot.ranks if rank.observed)

    def facts_only(self) -> str:
        """Ranks of this host of which only process facts are known."""
        return fold_ranks(rank.rank for rank in self.snapshot.ranks if not rank.observed and rank.pid)


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
    found = _found(options)
    for line in (*found.problems, *(note for job in found.jobs for note in job.notes)):
        tell(f"diag snapshot: {line}\n")
    host = socket.gethostname()
    for written in at_once(found.jobs, lambda job, stop: _store(job, host, options, stop)):
        _show(written, as_json=options.json)
    return 0


def _found(options: argparse.Namespace) -> FoundPids:
    if options.pid:
        return jobs_of_pids(options.pid)
    return all_jobs("snapshot -o DIR") if options.job is None else jobs_called(options.job)


def _store(job: FoundJob, host: str, options: argparse.Namespace, stop: threading.Event) -> _Written:
    """Take the pair and write it; the first look is on disk before the second is waited for."""
    reader = SourceReader()
    catalogue = found_catalogue(job.job_dir, say=_say_once)
    folder: LookFolder | None = None

    def keep_first(first: JobSnapshot) -> None:
        nonlocal folder
        folder = LookFolder.create(
            Path(options.output), host, with_sources(first, catalogue=catalogue, reader=reader)
        )

    try:
        _, second = take_pair(
            job,
            timeout=options.timeout,
            interval=options.interval,
            node=host,
            native=options.native,
            local_variables=options.locals,
            catalogue=catalogue,
            between=keep_first,
            stop=stop,
        )
        assert folder is not None  # noqa: S101 - set between the two looks
        folder.add_second(with_sources(second, catalogue=catalogue, reader=reader))
    except OSError as error:
        raise StoreError(f"{options.output}: cannot be written: {error.strerror or error}") from error
    return _Written(job.job, folder.path, second)


@functools.cache
def _say_once(text: str) -> None:
    """One line on stderr, once however many jobs there are."""
    tell(f"diag snapshot: {inert(text)}\n")


def _show(written: _Written, *, as_json: bool) -> None:
    """One line a job, on stdout: where, and whose evidence."""
    line = _line(written, as_json=as_json)
    answer(lambda out: print(line, file=out))


def _line(written: _Written, *, as_json: bool) -> str:
    size = written.snapshot.world_size
    if as_json:
        return json.dumps(
            {
                "job": written.job,
                "path": str(written.path),
                "world_size": size,
                "observed": written.ranks(),
                "facts_only": written.facts_only(),
            }
        )
    only = written.facts_only()
    seen = f"stacks of ranks {written.ranks()}" if written.ranks() else "no stacks"
    seen += f", facts only of ranks {only}" if only else ""
    return f"{written.path}  job {written.job} of {size}: {seen}"
