"""Reads everything that was named, and gives each job's snapshots with what was lost on the way.

The shell of this room: it opens files, one after the other, each as a stream.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rankscope.diag.dumps.find import Found, InputFile, find_inputs
from rankscope.diag.dumps.gather import Gathered, gather
from rankscope.diag.dumps.inputs import chunks_of
from rankscope.diag.dumps.names import NameFacts, read_name
from rankscope.diag.dumps.pieces import Source
from rankscope.diag.dumps.problem import Problem
from rankscope.diag.dumps.stored import StoredJob, read_stored
from rankscope.diag.errors import UsageError
from rankscope.diag.model import JobSnapshot, RankSnapshot
from rankscope.diag.read import Contents, LogFact, StackDump
from rankscope.diag.read.stream import read_contents
from rankscope.diag.unhurried import without_collector


@dataclass(frozen=True, slots=True)
class DumpedJob:
    """One job as its dumps show it.

    Attributes:
        pair: first and last look, ``None`` for the second when every rank was seen once.
        samples: the looks between them, in order of time.
        problems: what was lost, input by input.
        notes: assumptions that were made about ranks and times, a line each.
        facts: what log lines say.
        others: dumps of processes that are no ranks and serve them: engines, front ends, drivers.
        titles: of ranks that were numbered by a guess, what their processes are called.
    """

    pair: tuple[JobSnapshot, JobSnapshot | None]
    samples: tuple[JobSnapshot, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[LogFact, ...] = ()
    others: tuple[StackDump, ...] = ()
    titles: Mapping[int, str] = field(default_factory=dict[int, str])


def read_dumps(paths: Sequence[Path]) -> DumpedJob:
    """Read the dumps of one job.

    Args:
        paths: files and folders; ``-`` is standard input.

    Raises:
        UsageError: a path does not exist, no file can be read, or they hold snapshots of several jobs.
    """
    jobs = read_jobs(paths)
    if len(jobs) > 1:
        names = ", ".join(job.pair[0].job for job in jobs)
        raise UsageError(f"snapshots of several jobs: {names}", hint="name the folders of one of them")
    return next(iter(jobs))


def read_jobs(paths: Sequence[Path], *, say: Callable[[str], None] = lambda _: None) -> tuple[DumpedJob, ...]:
    """Read dumps; stored snapshots may be of several jobs, all other files are of one.

    Args:
        paths: files and folders; ``-`` is standard input.
        say: told at once what is being waited for.

    Raises:
        UsageError: a path does not exist, or no file can be read.
    """
    found = find_inputs(paths)
    problems = [
        Problem("", f"files with names in {ending}, which are no dumps", count)
        for ending, count in sorted(found.left_out.items())
    ]
    stored, unreadable = read_stored(found.stored)
    problems += [Problem(where, what) for where, what in unreadable.items()]
    sources = _read_files(found, problems, say)
    if not sources and not stored:
        raise UsageError(_nothing(paths, problems))
    gathered = gather(sources, job=_job_name(paths), time=_newest(found)) if sources else None
    return _jobs(stored, gathered, problems)


def _read_files(found: Found, problems: list[Problem], say: Callable[[str], None]) -> list[Source]:
    sources: list[Source] = []
    for file in found.files:
        cut_off: list[str] = []
        try:
            with without_collector():
                contents = read_contents(chunks_of(file.path, note=cut_off.append, say=say))
        except OSError as error:
            problems.append(Problem(file.shown, f"cannot be read: {error.strerror or error}"))
            continue
        name = _name_of(file)
        problems += (Problem(file.shown, what) for what in cut_off)
        problems += _lost(file, name, contents)
        sources.append(Source(file.shown, name, contents))
    return _last_attempt(sources, problems)


def _lost(file: InputFile, name: NameFacts, contents: Contents) -> list[Problem]:
    """What was not understood in a file. Nothing is lost where a process said nothing."""
    if name.is_log and not contents.size_bytes:
        return []
    lost = [Problem(file.shown, what, count) for what, count in contents.problems.items()]
    has_something = contents.dumps or contents.records or contents.facts
    if not has_something and not lost and (file.is_named or not name.is_log):
        lost.append(Problem(file.shown, "nothing in it was understood"))
    return lost


def _name_of(file: InputFile) -> NameFacts:
    return read_name(file.parts) if file.parts else NameFacts(name=file.shown)


def _last_attempt(sources: Sequence[Source], problems: list[Problem]) -> list[Source]:
    """Of torchrun's logs only those of the last attempt: the ranks before it are other processes."""
    last = max((source.name.attempt for source in sources if source.name.attempt is not None), default=None)
    kept = [source for source in sources if source.name.attempt in (None, last)]
    if len(kept) < len(sources):
        problems.append(Problem("", "logs of earlier attempts, left out", len(sources) - len(kept)))
    return kept


def _nothing(paths: Sequence[Path], problems: Sequence[Problem]) -> str:
    if problems:
        first = problems[0]
        return f"{first.where or paths[0]}: {first.what}"
    return f"no files in {', '.join(map(str, paths))}"


def _job_name(paths: Sequence[Path]) -> str:
    """The one folder's name, else none."""
    if len(paths) != 1 or not paths[0].is_dir():
        return ""
    return os.fsencode(paths[0].resolve().name).decode("utf-8", "replace")


def _newest(found: Found) -> float:
    """When the newest file was written, unix seconds."""
    times: list[float] = []
    for file in found.files:
        try:
            times.append(file.path.stat().st_mtime if file.path is not None else 0.0)
        except OSError:
            continue
    return max(times, default=0.0)


def _jobs(
    stored: Sequence[StoredJob], gathered: Gathered | None, problems: list[Problem]
) -> tuple[DumpedJob, ...]:
    if gathered is not None:
        problems += [Problem("", what, count) for what, count in gathered.unplaced.items()]
        has_evidence = any(map(_says_something, gathered.snapshots[-1].ranks))
        if not stored:
            *before, last = gathered.snapshots
            pair: tuple[JobSnapshot, JobSnapshot | None] = (before[0], last) if before else (last, None)
            rest = tuple(before[1:])
            return (
                DumpedJob(
                    pair,
                    rest,
                    tuple(problems),
                    gathered.notes,
                    gathered.facts,
                    others=gathered.others,
                    titles=gathered.titles,
                ),
            )
        if has_evidence and len(stored) > 1:
            problems.append(Problem("", "dumps beside the snapshots of several jobs, left out"))
        elif has_evidence:
            (only,) = stored
            pair = _with_dumps(only.pair, gathered)
            return (DumpedJob(pair, (), tuple(problems), (*only.notes, *gathered.notes), gathered.facts),)
    jobs = [DumpedJob(job.pair, notes=job.notes) for job in stored]
    jobs[0] = DumpedJob(jobs[0].pair, (), tuple(problems), jobs[0].notes)
    return tuple(jobs)


def _says_something(rank: RankSnapshot) -> bool:
    return rank.observed or rank.record is not None or rank.exit is not None


def _with_dumps(
    pair: tuple[JobSnapshot, JobSnapshot | None], gathered: Gathered
) -> tuple[JobSnapshot, JobSnapshot | None]:
    """The stored snapshots, with what dumps beside them say of ranks that they do not know."""
    first, second = pair
    newest = second or first
    more = {rank.rank: rank for rank in gathered.snapshots[-1].ranks if _says_something(rank)}
    ranks = {rank.rank: rank for rank in newest.ranks}
    for number, rank in more.items():
        known = ranks.get(number)
        if known is None or not (known.observed or known.facts):
            ranks[number] = rank
        else:
            ranks[number] = msgspec.structs.replace(
                known, record=known.record or rank.record, exit=known.exit or rank.exit
            )
    joined = msgspec.structs.replace(
        newest,
        ranks=tuple(ranks[number] for number in sorted(ranks)),
        world_size=max(newest.world_size, *(number + 1 for number in ranks)),
    )
    return (joined, None) if second is None else (first, joined)
