"""What was found when an incident was stored: how long a job had stood still is known to its watcher only."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.judging.judged import Judged
from rankscope.diag.judging.wanted import Say
from rankscope.diag.live import is_running
from rankscope.diag.store.incidents import IncidentFolder, find_incident, incident_folders
from rankscope.diag.store.job import JobFolder, is_job_folder


def stored_of_job(
    folder: JobFolder, incident: str | None, *, all_of_them: bool, quiet: bool, say: Say
) -> Sequence[Judged]:
    """The stored diagnoses of a job.

    Args:
        folder: the job's.
        incident: id of the one wanted, ``None`` for the last.
        all_of_them: every one.
        quiet: say nothing of when they are from.
        say: is given a line for the user.

    Raises:
        UsageError: there is none, or none of that id.
        StoreError: none can be read.
    """
    incidents = incidents_of_job(folder, incident, all_of_them=all_of_them)
    return stored_incidents(incidents, folder, quiet=quiet, say=say)


def incidents_of_job(
    folder: JobFolder, incident: str | None, *, all_of_them: bool
) -> Sequence[IncidentFolder]:
    """The stored incidents of a job: the named one, the last one, or all, oldest first.

    Raises:
        UsageError: there is none, or none of that id.
    """
    if all_of_them:
        incidents = incident_folders(folder.incidents)
    else:
        found = find_incident(folder.incidents, incident)
        incidents = (found,) if found is not None else ()
    if not incidents:
        job = folder.job()
        ended = f"has ended ({job.result})" if job is not None and job.result else "has ended"
        state = "runs, but has no workers just now" if is_running(folder) else ended
        raise UsageError(f"job {folder.run_id} {state} and no incident of it is stored")
    return incidents


def stored_incidents(
    incidents: Sequence[IncidentFolder], folder: JobFolder | None, *, quiet: bool, say: Say
) -> Sequence[Judged]:
    """The diagnoses of incidents, those that can be read.

    Raises:
        StoreError: none can be read.
    """
    judged: list[Judged] = []
    for incident in incidents:
        try:
            judged.append(Judged(incident.diagnosis(), incident=incident, folder=folder or _job_of(incident)))
            if not quiet:
                say(_stored_line(folder, incident))
        except StoreError as error:
            say(f"skipped: {error}")
    if not judged:
        raise StoreError("no stored incident can be read")
    return judged


def _job_of(incident: IncidentFolder) -> JobFolder | None:
    """The job in whose folder an incident lies, ``None`` for one that was copied elsewhere."""
    path = incident.path.resolve().parents[1]
    return JobFolder(path) if is_job_folder(path) else None


def _stored_line(folder: JobFolder | None, incident: IncidentFolder) -> str:
    """What is shown is of the past: from when, what was decided, what became of the job."""
    job, decision = folder.job() if folder is not None else None, incident.decision()
    parts = [f"stored incident {incident.id}"]
    if decision is not None:
        parts.append(f"decision: {decision.action}")
    if job is not None and job.ended is not None:
        parts.append(f"the job has ended since: {job.result}")
    return ", ".join(parts)
