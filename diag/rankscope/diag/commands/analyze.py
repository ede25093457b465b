"""``diag analyze``: explain a job that runs (a fresh pair of snapshots), has ended, or left dumps.

What a name means, in this order: a job folder; a file or folder that exists is dumps; a run id or its
beginning, of the stored jobs first, then of what runs on this host. A job that runs is looked at; what is
stored of it is shown when it does not.
"""

from __future__ import annotations

import argparse
import functools
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rankscope.diag.chosen import all_jobs, find_named, jobs_of_pids
from rankscope.diag.classify import Catalogue, SlowLook, diagnose
from rankscope.diag.classify.log_words import with_log_facts
from rankscope.diag.commands.analyze_output import say, say_lost, show
from rankscope.diag.commands.analyze_stored import incidents_of_job, stored_incidents, stored_of_job
from rankscope.diag.commands.at_once import at_once
from rankscope.diag.commands.flags import VerbParser, add_look_flags, add_pid_flag, named
from rankscope.diag.discover.found import FoundJob, FoundPids
from rankscope.diag.dumps import DumpedJob, Problem, read_jobs
from rankscope.diag.dumps.find import STANDARD_INPUT
from rankscope.diag.errors import UsageError
from rankscope.diag.live import INTERVAL, source_line, take_many, take_pair
from rankscope.diag.model import Diagnosis
from rankscope.diag.own_catalogue import found_catalogue, named_catalogue, user_code_paths
from rankscope.diag.quick_looks import quick_looks
from rankscope.diag.slow_looks import INTERVAL as SLOW_INTERVAL
from rankscope.diag.slow_looks import LEAST, LOOKS
from rankscope.diag.store.events import iso_time
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import JobFolder, find_job, is_job_folder, job_folder

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
    parser.add_argument(
        "--samples",
        type=_looks,
        metavar="N",
        help=f"find out what is slow: N looks ({LOOKS} tell most) that stop no rank, --interval seconds apart"
        f" (then {SLOW_INTERVAL:g} by default)",
    )
    add_look_flags(parser)
    parser.set_defaults(interval=None)
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
    diagnoses = list(_diagnoses(options))
    for diagnosis in diagnoses:
        show(diagnosis, as_json=options.json, full=options.full)
    # A hang outranks slowness, slowness what could not be told.
    order = (EXIT_HANG, EXIT_SLOW, EXIT_UNKNOWN, EXIT_HEALTHY)
    codes = {_EXIT_CODES[diagnosis.verdict] for diagnosis in diagnoses}
    return next(code for code in order if code in codes)


def _diagnoses(options: argparse.Namespace) -> Sequence[Diagnosis]:
    names: list[str] = options.names
    if options.samples and (options.native or options.locals):
        raise UsageError("--samples stops no rank; C++ frames and local variables cannot be had so")
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
    return _judge_dumps(names, options)


def _judge_dumps(
    names: Sequence[str], options: argparse.Namespace, *, job_dir: str | None = None
) -> Sequence[Diagnosis]:
    folders = [name for name in names if name != STANDARD_INPUT and is_job_folder(Path(name))]
    if folders:
        raise UsageError(f"{folders[0]} is a job folder: name it alone, or one of its incidents")
    jobs = read_jobs([Path(name) for name in names], say=say)
    for job in jobs:
        for note in job.notes:
            say(note)
    told = [_diagnose(job, options, job_dir) for job in jobs]
    problems = [problem for job in jobs for problem in job.problems]
    problems += [Problem("", what, count) for _, unused in told for what, count in unused.items()]
    say_lost(problems, full=options.full)
    return [diagnosis for diagnosis, _ in told]


def _diagnose(
    job: DumpedJob, options: argparse.Namespace, job_dir: str | None
) -> tuple[Diagnosis, dict[str, int]]:
    """The diagnosis, and what of the log lines nothing used."""
    diagnosis = diagnose(
        job.pair,
        catalogue=_catalogue(options, job_dir),
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
    if options.catalogue or options.user_code:
        incidents = incidents_of_job(folder, options.incident, all_of_them=options.all)
        say("judged anew from what is stored; how long the job had stood still does not count then")
        judged = [_judge_dumps([str(one.path)], options, job_dir=str(folder.path)) for one in incidents]
        return [diagnosis for of_one in judged for diagnosis in of_one]
    return stored_of_job(folder, options.incident, all_of_them=options.all, quiet=options.json)


def _analyze_all(found: FoundPids, options: argparse.Namespace) -> Sequence[Diagnosis]:
    for line in found.problems:
        say(line)
    for job in found.jobs:
        for note in job.notes:
            say(note if len(found.jobs) == 1 else f"{job.job}: {note}")
    return at_once(found.jobs, lambda job, stop: _analyze_live(job, options, stop))


def _analyze_live(job: FoundJob, options: argparse.Namespace, stop: threading.Event) -> Diagnosis:
    catalogue = _catalogue(options, job.job_dir)
    if options.samples:
        looks = take_many(
            job,
            count=options.samples,
            interval=options.interval or SLOW_INTERVAL,
            timeout=options.timeout,
            stop=stop,
        )
        return diagnose(
            (looks[0], looks[-1]),
            catalogue=catalogue,
            source_line=source_line,
            time=iso_time(time.time()),
            samples=looks[1:-1],
            slow=SlowLook(),
        )
    pair = take_pair(
        job,
        timeout=options.timeout,
        interval=options.interval or INTERVAL,
        native=options.native,
        local_variables=options.locals,
        catalogue=catalogue,
        stop=stop,
    )
    judge = functools.partial(diagnose, pair, catalogue=catalogue, source_line=source_line)
    diagnosis = judge(time=iso_time(time.time()))
    looks = quick_looks(job, diagnosis, timeout=options.timeout, stop=stop)
    return judge(time=iso_time(time.time()), samples=looks) if looks else diagnosis


@functools.cache
def _say_once(text: str) -> None:
    """A line of a file that all jobs read."""
    say(text)


def _catalogue(options: argparse.Namespace, job_dir: str | None = None) -> Catalogue:
    """The catalogue with the user's own files and paths.

    Raises:
        UsageError: the named file cannot be read, or has mistakes.
    """
    catalogue = found_catalogue(job_dir, say=_say_once)
    if options.catalogue:
        catalogue = catalogue.merge(named_catalogue(Path(options.catalogue)))
    return catalogue.with_user_code(user_code_paths(options.user_code))
