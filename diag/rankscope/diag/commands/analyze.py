"""``diag analyze``: explain a job that runs (a fresh pair of snapshots), has ended, or left dumps.

What a name means, in this order: a job folder; a file or folder that exists is dumps; a run id or its
beginning, of the stored jobs first, then of what runs on this host. A job that runs is looked at; what is
stored of it is shown when it does not.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rankscope.diag.chosen import all_jobs, find_named, jobs_of_pids
from rankscope.diag.classify import Catalogue, diagnose
from rankscope.diag.classify.log_words import with_log_facts
from rankscope.diag.commands.analyze_output import say, say_lost, show
from rankscope.diag.commands.analyze_stored import stored_incidents, stored_of_job
from rankscope.diag.commands.at_once import at_once
from rankscope.diag.commands.flags import VerbParser, add_look_flags, add_pid_flag, named
from rankscope.diag.discover.found import FoundJob, FoundPids
from rankscope.diag.dumps import DumpedJob, Problem, read_jobs
from rankscope.diag.dumps.find import STANDARD_INPUT
from rankscope.diag.errors import UsageError
from rankscope.diag.live import source_line, take_pair
from rankscope.diag.model import Diagnosis
from rankscope.diag.store.events import iso_time
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import JobFolder, find_job, is_job_folder, job_folder

SUMMARY = "explain a job: live, dead, plain processes, or dumps"
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
        help="run id (or its beginning) or job folder; or files and folders of dumps, - for standard input; "
        "nothing: all training jobs of this host",
    )
    add_pid_flag(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable, one object a job")
    parser.add_argument("--incident", type=named, metavar="ID", help="a stored incident of the job")
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
    add_look_flags(parser)
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
        show(diagnosis, as_json=options.json, full=options.full)
    # A hang outranks slowness, slowness what could not be told.
    order = (EXIT_HANG, EXIT_SLOW, EXIT_UNKNOWN, EXIT_HEALTHY)
    codes = {_EXIT_CODES[diagnosis.verdict] for diagnosis in diagnoses}
    return next(code for code in order if code in codes)


def _diagnoses(options: argparse.Namespace) -> Sequence[Diagnosis]:
    names: list[str] = options.names
    if options.pid:
        if names:
            raise UsageError("give a job, files or --pid, not several of them")
        return _analyze_all(jobs_of_pids(options.pid), options)
    if not names:
        return _analyze_all(all_jobs("analyze"), options)
    if len(names) > 1 or _means_dumps(names[0]):
        incident = IncidentFolder(Path(names[0]))
        if len(names) == 1 and incident.is_complete and not (options.catalogue or options.user_code):
            return stored_incidents([incident], None, quiet=options.json)
        return _analyze_dumps(names, options)
    return _analyze_named(names[0], options)


def _means_dumps(name: str) -> bool:
    """Whether one name is a file or a folder of dumps; one that is a run id too is said to be one."""
    if name == STANDARD_INPUT:
        return True
    path = Path(name)
    try:
        if not name or not path.exists() or is_job_folder(path):
            return False
    except (OSError, ValueError):  # too long for a path, or no path at all
        return False
    stored = job_folder(name)
    if stored.path.is_dir():
        say(f"{name} is a path here and a job: reading the path (for the job: diag analyze {stored.path})")
    return True


def _analyze_dumps(names: Sequence[str], options: argparse.Namespace) -> Sequence[Diagnosis]:
    if options.incident or options.all:
        raise UsageError("--incident and --all are for a job, not for dumps")
    folders = [name for name in names if name != STANDARD_INPUT and is_job_folder(Path(name))]
    if folders:
        raise UsageError(f"{folders[0]} is a job folder: name it alone, or one of its incidents")
    jobs = read_jobs([Path(name) for name in names], say=say)
    for job in jobs:
        for note in job.notes:
            say(note)
    told = [_diagnose(job, options) for job in jobs]
    problems = [problem for job in jobs for problem in job.problems]
    problems += [Problem("", what, count) for _, unused in told for what, count in unused.items()]
    say_lost(problems, full=options.full)
    return [diagnosis for diagnosis, _ in told]


def _diagnose(job: DumpedJob, options: argparse.Namespace) -> tuple[Diagnosis, dict[str, int]]:
    """The diagnosis, and what of the log lines nothing used."""
    diagnosis = diagnose(
        job.pair,
        catalogue=_catalogue(options),
        source_line=source_line,
        time=iso_time(job.pair[0].time or time.time()),
        samples=job.samples,
    )
    return with_log_facts(diagnosis, job.facts)


def _analyze_named(name: str, options: argparse.Namespace) -> Sequence[Diagnosis]:
    if options.incident or options.all:
        return _stored(find_job(name), options)
    found = find_named(name)
    if found.jobs or found.folder is None:
        return _analyze_all(FoundPids(found.jobs), options)
    return _stored(found.folder, options)


def _stored(folder: JobFolder, options: argparse.Namespace) -> Sequence[Diagnosis]:
    return stored_of_job(folder, options.incident, all_of_them=options.all, quiet=options.json)


def _analyze_all(found: FoundPids, options: argparse.Namespace) -> Sequence[Diagnosis]:
    for line in found.problems:
        say(line)
    for job in found.jobs:
        for note in job.notes:
            say(note if len(found.jobs) == 1 else f"{job.job}: {note}")
    return at_once(found.jobs, lambda job, stop: _analyze_live(job, options, stop))


def _analyze_live(job: FoundJob, options: argparse.Namespace, stop: threading.Event) -> Diagnosis:
    catalogue = _catalogue(options)
    pair = take_pair(
        job,
        timeout=options.timeout,
        interval=options.interval,
        native=options.native,
        local_variables=options.locals,
        catalogue=catalogue,
        stop=stop,
    )
    return diagnose(pair, catalogue=catalogue, source_line=source_line, time=iso_time(time.time()))


def _catalogue(options: argparse.Namespace) -> Catalogue:
    """The catalogue with the user's own file and paths.

    Raises:
        UsageError: the file cannot be read, or is no catalogue.
    """
    catalogue = Catalogue.load()
    if options.catalogue:
        try:
            text = Path(options.catalogue).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--catalogue {options.catalogue}: {error}") from error
        catalogue = catalogue.merge(Catalogue.parse(text))
    return catalogue.with_user_code(options.user_code)
