"""What was found when an incident was stored: how long a job had stood still is known to its watcher only."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diag.commands.analyze_output import say
from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.live import is_running
from rankscope.diag.model import Diagnosis
from rankscope.diag.store.incidents import IncidentFolder, find_incident, incident_folders
from rankscope.diag.store.job import JobFolder


def stored_of_job(
    folder: JobFolder, incident: str | None, *, all_of_them: bool, quiet: bool
) -> Sequence[Diagnosis]:
    """The stored diagnoses of a job.

    Args:
        folder: the job's.
        incident: id of the one wanted, ``None`` for the last.
        all_of_them: every one.
        quiet: say nothing of when they are from.

    Raises:
        UsageError: there is none, or none of that id.
        StoreError: none can be read.
    """
    incidents = incidents_of_job(folder, incident, all_of_them=all_of_them)
    return stored_incidents(incidents, folder, quiet=quiet)


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
    incidents: Sequence[IncidentFolder], folder: JobFolder | None, *, quiet: bool
) -> Sequence[Diagnosis]:
    """The diagnoses of incidents, those that can be read.

    Raises:
        StoreError: none can be read.
    """
    diagnoses: list[Diagnosis] = []
    for incident in incidents:
        try:
            diagnoses.append(incident.diagnosis())
            if not quiet:
                _say_stored(folder, incident)
        except StoreError as error:
            say(f"skipped: {error}")
    if not diagnoses:
        raise StoreError("no stored incident can be read")
    return diagnoses


def _say_stored(folder: JobFolder | None, incident: IncidentFolder) -> None:
    """What is shown is of the past: from when, what was decided, what became of the job (on stderr)."""
    job, decision = folder.job() if folder is not None else None, incident.decision()
    parts = [f"stored incident {incident.id}"]
    if decision is not None:
        parts.append(f"decision: {decision.action}")
    if job is not None and job.ended is not None:
        parts.append(f"the job has ended since: {job.result}")
    say(", ".join(parts))
