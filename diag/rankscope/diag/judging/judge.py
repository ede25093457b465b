"""What is explained: running jobs, what is stored of a job, dumps.

What a name means, in this order: a job folder; a file or folder that exists is dumps; a run id or its
beginning, of the stored jobs first, then of what runs on this host. A job that runs is looked at; what is
stored of it is shown when it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankscope.diag.chosen import NamedJob, all_jobs, find_named, jobs_of_pids
from rankscope.diag.discover.found import FoundJob, FoundPids
from rankscope.diag.dumps import Problem, read_jobs
from rankscope.diag.dumps.find import STANDARD_INPUT
from rankscope.diag.errors import UsageError
from rankscope.diag.judging.at_once import at_once
from rankscope.diag.judging.catalogue import catalogue_of
from rankscope.diag.judging.dumped import judge_dumped
from rankscope.diag.judging.judged import Judged
from rankscope.diag.judging.running import judge_running
from rankscope.diag.judging.stored import incidents_of_job, stored_incidents, stored_of_job
from rankscope.diag.judging.wanted import Say, Wanted
from rankscope.diag.look_times import INTERVAL, SLOW_INTERVAL
from rankscope.diag.remote.client import is_url
from rankscope.diag.store.incidents import IncidentFolder, incident_folders
from rankscope.diag.store.job import JobFolder, find_job, is_job_folder, job_folder


def judge_all(wanted: Wanted) -> Sequence[Judged]:
    """All that is asked for, each explained.

    Args:
        wanted: what, and how.

    Raises:
        UsageError: no such job, or the flags do not fit it.
        StoreError: nothing of what is stored can be read.
    """
    names = wanted.names
    if wanted.samples and (wanted.native or wanted.locals):
        raise UsageError("--samples stops no rank; C++ frames and local variables cannot be had so")
    if wanted.pids:
        if names:
            raise UsageError("give a job, files or --pid, not several of them")
        return _analyze_all(jobs_of_pids(wanted.pids), wanted)
    if not names:
        return _analyze_all(all_jobs("analyze"), wanted)
    if any(is_url(name) for name in names):
        if len(names) > 1:
            raise UsageError("one agent's URL, and nothing beside it")
        from rankscope.diag.remote.judged import judge_remote

        return judge_remote(names[0], wanted)
    if len(names) > 1 or _means_dumps(names[0], wanted.say):
        _refuse_samples(wanted, "dumps are not")
        incident = IncidentFolder(Path(names[0]))
        if len(names) == 1 and incident.is_complete and not (wanted.catalogue or wanted.user_code):
            return stored_incidents([incident], None, quiet=wanted.quiet, say=wanted.say)
        return _analyze_dumps(names, wanted)
    return _analyze_named(names[0], wanted)


def _refuse_samples(wanted: Wanted, why: str) -> None:
    """Looks are taken of running jobs only.

    Raises:
        UsageError: they were asked for.
    """
    if wanted.samples:
        raise UsageError(f"--samples looks at a running job, and {why}; leave it out")


def _means_dumps(name: str, say: Say) -> bool:
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


def _analyze_dumps(names: Sequence[str], wanted: Wanted) -> Sequence[Judged]:
    if wanted.incident or wanted.all:
        raise UsageError("--incident and --all are for a job, not for dumps")
    return _judge_dumps(names, wanted)


def _judge_dumps(names: Sequence[str], wanted: Wanted, *, job_dir: str | None = None) -> Sequence[Judged]:
    folders = [name for name in names if name != STANDARD_INPUT and is_job_folder(Path(name))]
    if folders:
        raise UsageError(f"{folders[0]} is a job folder: name it alone, or one of its incidents")
    jobs = read_jobs([Path(name) for name in names], say=wanted.say)
    for job in jobs:
        for note in job.notes:
            wanted.say(note)
    told = [judge_dumped(job, catalogue_of(wanted, job_dir)) for job in jobs]
    problems = [problem for job in jobs for problem in job.problems]
    problems += [Problem("", what, count) for _, unused in told for what, count in unused.items()]
    wanted.say_lost(problems)
    folder = JobFolder(Path(job_dir)) if job_dir is not None else None
    return [
        Judged(diagnosis, look=job.pair[1] or job.pair[0], folder=folder)
        for job, (diagnosis, _) in zip(jobs, told, strict=True)
    ]


def _analyze_named(name: str, wanted: Wanted) -> Sequence[Judged]:
    if wanted.incident or wanted.all:
        return _stored(find_job(name), wanted)
    found = find_named(name)
    if wanted.stored_first and found.folder is not None and incident_folders(found.folder.incidents):
        return _stored(found.folder, wanted)
    if found.folder is not None and (of_all := _by_agents(found, wanted)) is not None:
        return of_all
    if found.jobs or found.folder is None:
        return _analyze_all(FoundPids(found.jobs), wanted)
    return _stored(found.folder, wanted)


def _by_agents(found: NamedJob, wanted: Wanted) -> Sequence[Judged] | None:
    """What the agents of a job on several hosts find together, ``None`` where they are not to be asked."""
    from rankscope.diag.remote.whole_job import judge_whole_job

    return judge_whole_job(found, wanted)


def _stored(folder: JobFolder, wanted: Wanted) -> Sequence[Judged]:
    _refuse_samples(wanted, f"job {folder.run_id} is shown as it is stored")
    if wanted.catalogue or wanted.user_code:
        incidents = incidents_of_job(folder, wanted.incident, all_of_them=wanted.all)
        wanted.say("judged anew from what is stored; how long the job had stood still does not count then")
        judged = [_judge_dumps([str(one.path)], wanted, job_dir=str(folder.path)) for one in incidents]
        return [one for of_incident in judged for one in of_incident]
    return stored_of_job(folder, wanted.incident, all_of_them=wanted.all, quiet=wanted.quiet, say=wanted.say)


def _analyze_all(found: FoundPids, wanted: Wanted) -> Sequence[Judged]:
    for line in found.problems:
        wanted.say(line)
    for job in found.jobs:
        for note in job.notes:
            wanted.say(note if len(found.jobs) == 1 else f"{job.job}: {note}")
    if wanted.say_begun is not None and found.jobs:
        wanted.say_begun(_what_comes(found.jobs, wanted))
    return at_once(found.jobs, lambda job, stop: judge_running(job, wanted, stop))


def _what_comes(jobs: Sequence[FoundJob], wanted: Wanted) -> str:
    """For one who waits: what was found, and what is done now."""
    count = sum(len(job.ranks) for job in jobs)
    what = f"{count} rank{'s' * (count != 1)} found"
    if len(jobs) > 1:
        what += f" in {len(jobs)} jobs"
    if wanted.samples:
        return f"{what}; {wanted.samples} looks, {wanted.interval or SLOW_INTERVAL:g} s apart"
    interval = f"{wanted.interval or INTERVAL:g} s"
    return f"{what}; second look in {interval}, then a closer one where that does not tell"
