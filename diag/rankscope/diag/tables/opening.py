"""What a name means, and all the folders of jobs below a root."""

from __future__ import annotations

import contextlib
from pathlib import Path

from rankscope.diag.errors import UsageError
from rankscope.diag.jobs_list.read import job_paths
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import JobFolder, find_job, home, is_job_folder


def job_or_path(name: str | Path) -> JobFolder | IncidentFolder | Path:
    """A job's folder, an incident's, or a path with dumps, as ``diag analyze`` reads a name.

    Raises:
        UsageError: there is nothing of that name.
    """
    path = Path(name)
    with contextlib.suppress(OSError, ValueError):  # too long for a path, or no path at all
        if str(name) and path.exists() and not is_job_folder(path):
            incident = IncidentFolder(path)
            return incident if incident.is_complete else path
    if isinstance(name, Path) and not _is_there(path):
        raise UsageError(f"no such job: {str(name)!r}")
    return find_job(str(name))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def job_folders(root: str | Path | None) -> tuple[Path, tuple[Path, ...], list[str]]:
    """The folders of all jobs.

    Args:
        root: ``$RANKSCOPE_HOME`` of the jobs, or the folder ``jobs`` in one; ``None`` for this user's.

    Returns:
        The folder that was looked in, the jobs' folders in it by name, and what was left out.

    Raises:
        UsageError: the root is no folder.
        StoreError: it cannot be read.
    """
    base = home() if root is None else Path(root)
    if root is not None:
        if not base.is_dir():
            raise UsageError(f"{base}: no such folder")
        if not (base / "jobs").is_dir() and base.name == "jobs":
            base = base.parent
    jobs = base / "jobs"
    found = job_paths(base)
    return jobs, found, [] if found else [f"{jobs}: no job has been recorded yet"]
