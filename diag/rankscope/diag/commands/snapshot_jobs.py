"""What ``diag snapshot`` does: looks at the jobs, and stores what was seen. Its command line is beside it."""

from __future__ import annotations

import argparse
import functools
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

from rankscope.diag.chosen import all_jobs, jobs_called, jobs_of_pids
from rankscope.diag.discover.found import FoundJob, FoundPids
from rankscope.diag.errors import StoreError
from rankscope.diag.judging.at_once import at_once
from rankscope.diag.live import take_pair
from rankscope.diag.model import JobSnapshot
from rankscope.diag.own_catalogue import found_catalogue
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.report.text import inert
from rankscope.diag.source_lines import SourceReader, with_sources
from rankscope.diag.store.look import LookFolder
from rankscope.diag.streams import answer, json_line, tell


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


def store_all(options: argparse.Namespace) -> None:
    """Store the evidence of the jobs that were asked for, and say where.

    Raises:
        UsageError: there is no such job.
        StoreError: it cannot be written.
    """
    found = _found(options)
    for line in (*found.problems, *(note for job in found.jobs for note in job.notes)):
        _say(line)
    host = socket.gethostname()
    for written in at_once(found.jobs, lambda job, stop: _store(job, host, options, stop)):
        _show(written, as_json=options.json)


def _say(text: str) -> None:
    """One line on stderr."""
    tell(f"diag snapshot: {inert(text)}\n")


_say_once = functools.cache(_say)
"""A line of a file that all jobs read."""


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


def _show(written: _Written, *, as_json: bool) -> None:
    """One line a job, on stdout: where, and whose evidence."""
    line = _line(written, as_json=as_json)
    answer(lambda out: print(line, file=out))


def _line(written: _Written, *, as_json: bool) -> str:
    size = written.snapshot.world_size
    if as_json:
        return json_line(
            {
                "job": written.job,
                "path": str(written.path),
                "world_size": size,
                "observed": written.ranks(),
                "facts_only": written.facts_only(),
            }
        ).rstrip("\n")
    only = written.facts_only()
    seen = f"stacks of ranks {written.ranks()}" if written.ranks() else "no stacks"
    seen += f", facts only of ranks {only}" if only else ""
    return f"{written.path}  job {written.job} of {size}: {seen}"
