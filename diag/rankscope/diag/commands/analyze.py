"""``diag analyze``: explain a job, live (a fresh pair of snapshots) or ended (the stored incident)."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NoReturn

from rankscope.diag.classify import Catalogue, diagnose
from rankscope.diag.discover import FoundJob, find_jobs, ranks_of_pids
from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.live import INTERVAL, is_running, pids_of, running_job, source_line, take_pair
from rankscope.diag.model import Diagnosis
from rankscope.diag.report import render_json
from rankscope.diag.store.events import iso_time
from rankscope.diag.store.incidents import IncidentFolder, find_incident, incident_folders
from rankscope.diag.store.job import JobFolder, find_job

SUMMARY = "explain a job: live, dead, or plain processes"
EXIT_HEALTHY: Final = 0
EXIT_USAGE: Final = 2
EXIT_HANG: Final = 3
EXIT_SLOW: Final = 4
EXIT_UNKNOWN: Final = 5
_LONGEST: Final = 86400.0
"""Seconds; nobody waits longer than a day for a look."""
_EXIT_CODES: Final = {
    "Healthy": EXIT_HEALTHY,
    "RankCommHang": EXIT_HANG,
    "RankNonCommHang": EXIT_HANG,
    "Exited": EXIT_HANG,
    "RankCommSlow": EXIT_SLOW,
    "RankNonCommSlow": EXIT_SLOW,
    "Unknown": EXIT_UNKNOWN,
}


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < _LONGEST:
        raise ValueError
    return value


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (diag analyze --help)")


def prepare_parser() -> argparse.ArgumentParser:
    """The command line of ``diag analyze``."""
    parser = _Parser(prog="diag analyze", description="Explain a job: which rank hangs, where, and why.")
    parser.add_argument(
        "job",
        nargs="?",
        help="run id (or its beginning) or job folder; nothing: all training jobs of this host",
    )
    parser.add_argument(
        "--pid",
        action="append",
        default=[],
        metavar="PID",
        help="training processes, or their launcher: 12,13",
    )
    parser.add_argument("--json", action="store_true", help="machine-readable, one object a job")
    parser.add_argument("--incident", metavar="ID", help="a stored incident of the job")
    parser.add_argument("--all", action="store_true", help="all stored incidents of the job, oldest first")
    parser.add_argument("--catalogue", metavar="FILE", help="a TOML file with frame patterns of your own")
    parser.add_argument(
        "--user-code",
        action="append",
        default=[],
        metavar="PATH",
        help="code below PATH is yours although it is installed (for the culprit's line)",
    )
    parser.add_argument("--full", action="store_true", help="all stacks, auxiliary threads included")
    parser.add_argument(
        "--timeout", type=_seconds, default=20.0, metavar="S", help="seconds one look may take (default 20)"
    )
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=INTERVAL,
        metavar="S",
        help=f"seconds between the two looks (default {INTERVAL:g})",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Explain a job.

    Returns:
        0 healthy, 2 usage or no such job, 3 hang or dead ranks, 4 slow, 5 not enough evidence; the worst
        of several jobs.
    """
    options = prepare_parser().parse_args(arguments)
    diagnoses = list(_diagnoses(options))
    for diagnosis in diagnoses:
        _show(diagnosis, options)
    # A hang outranks slowness, slowness what could not be told.
    order = (EXIT_HANG, EXIT_SLOW, EXIT_UNKNOWN, EXIT_HEALTHY)
    codes = {_EXIT_CODES[diagnosis.verdict] for diagnosis in diagnoses}
    return next(code for code in order if code in codes)


def _diagnoses(options: argparse.Namespace) -> Sequence[Diagnosis]:
    if options.pid:
        if options.job:
            raise UsageError("give a job or --pid, not both")
        return _analyze_all(_jobs_of_pids(options.pid), options)
    if options.job is None:
        jobs = find_jobs()
        if not jobs:
            raise UsageError(
                "no training job runs on this host",
                hint="name one: diag analyze RUN_ID, or --pid PID",
            )
        return _analyze_all(jobs, options)
    folder = find_job(options.job)
    if options.incident or options.all:
        return _stored(folder, options)
    running = running_job(folder)
    return [_analyze_live(running, options)] if running is not None else _stored(folder, options)


def _jobs_of_pids(texts: Sequence[str]) -> Sequence[FoundJob]:
    try:
        pids = pids_of(texts)
    except ValueError:
        raise UsageError(f"--pid {','.join(texts)}: process numbers expected, as in --pid 12,13") from None
    found = ranks_of_pids(pids)
    for problem in found.problems:
        sys.stderr.write(f"diag analyze: {problem}\n")
    if not found.jobs:
        raise UsageError(f"--pid {','.join(texts)}: no training process there")
    return found.jobs


def _analyze_all(jobs: Sequence[FoundJob], options: argparse.Namespace) -> Sequence[Diagnosis]:
    """All jobs at the same time: each look takes seconds, mostly of waiting."""
    with ThreadPoolExecutor(max_workers=len(jobs)) as pool:
        return list(pool.map(lambda job: _analyze_live(job, options), jobs))


def _analyze_live(job: FoundJob, options: argparse.Namespace) -> Diagnosis:
    pair = take_pair(job, timeout=options.timeout, interval=options.interval)
    return diagnose(pair, catalogue=_catalogue(options), source_line=source_line, time=iso_time(time.time()))


def _catalogue(options: argparse.Namespace) -> Catalogue:
    catalogue = Catalogue.load()
    if options.catalogue:
        try:
            text = Path(options.catalogue).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--catalogue {options.catalogue}: {error}") from error
        catalogue = catalogue.merge(Catalogue.parse(text))
    return catalogue.with_user_code(options.user_code)


def _stored(folder: JobFolder, options: argparse.Namespace) -> Sequence[Diagnosis]:
    if options.all:
        incidents = incident_folders(folder.incidents)
    else:
        found = find_incident(folder.incidents, options.incident)
        incidents = (found,) if found is not None else ()
    if not incidents:
        job = folder.job()
        ended = f"has ended ({job.result})" if job is not None and job.result else "has ended"
        state = "runs, but has no workers just now" if is_running(folder) else ended
        raise UsageError(f"job {folder.run_id} {state} and no incident of it is stored")
    diagnoses: list[Diagnosis] = []
    for incident in incidents:
        try:
            diagnoses.append(incident.diagnosis())
            if not options.json:
                _say_stored(folder, incident)
        except StoreError as error:
            sys.stderr.write(f"diag analyze: skipped: {error}\n")
    if not diagnoses:
        raise StoreError("no stored incident can be read")
    return diagnoses


def _say_stored(folder: JobFolder, incident: IncidentFolder) -> None:
    """What is shown is of the past: from when, what was decided, what became of the job (on stderr)."""
    job, decision = folder.job(), incident.decision()
    parts = [f"stored incident {incident.id}"]
    if decision is not None:
        parts.append(f"decision: {decision.action}")
    if job is not None and job.ended is not None:
        parts.append(f"the job has ended since: {job.result}")
    sys.stderr.write(f"diag analyze: {', '.join(parts)}\n")


def _show(diagnosis: Diagnosis, options: argparse.Namespace) -> None:
    if sys.stdout is None:
        return
    try:
        _print(diagnosis, options)
    except BrokenPipeError:
        # The reader has seen enough; the verdict is the exit status all the same.
        sys.stdout = None
    except OSError as error:
        sys.stdout = None
        raise StoreError(f"the answer cannot be written: {error.strerror or error}") from error


def _print(diagnosis: Diagnosis, options: argparse.Namespace) -> None:
    if options.json:
        sys.stdout.buffer.write(render_json(diagnosis) + b"\n")
        sys.stdout.buffer.flush()
        return
    from rich.console import Console

    from rankscope.diag.report.text import render_text

    try:
        render_text(diagnosis, console=Console(highlight=False), full=options.full)
        sys.stdout.flush()
    except SystemExit:
        # That is how rich says that the reader has gone.
        raise BrokenPipeError from None
