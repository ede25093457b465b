"""Diag explains: it collects stacks and collective state, folds, classifies, names the culprit, stores it.

What a program or a notebook asks for stands here; what does the work is imported when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from rankscope.diag.errors import RankscopeError
from rankscope.diag.tables.warned import IncompleteRecords

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rankscope.diag.model import Diagnosis
    from rankscope.diag.tables.opened import FleetTables, JobTables

__all__ = ["IncompleteRecords", "RankscopeError", "analyze", "open_job", "open_jobs"]


@overload
def analyze(
    job: str | Path | Sequence[str | Path] | None = None,
    *,
    pids: Sequence[int] = (),
    several: Literal[False] = False,
    catalogue: str | Path | None = None,
    user_code: Sequence[str | Path] = (),
    timeout: float = 20.0,
    interval: float | None = None,
    incident: str | None = None,
) -> Diagnosis: ...


@overload
def analyze(
    job: str | Path | Sequence[str | Path] | None = None,
    *,
    pids: Sequence[int] = (),
    several: Literal[True],
    catalogue: str | Path | None = None,
    user_code: Sequence[str | Path] = (),
    timeout: float = 20.0,
    interval: float | None = None,
    incident: str | None = None,
) -> list[Diagnosis]: ...


def analyze(
    job: str | Path | Sequence[str | Path] | None = None,
    *,
    pids: Sequence[int] = (),
    several: bool = False,
    catalogue: str | Path | None = None,
    user_code: Sequence[str | Path] = (),
    timeout: float = 20.0,
    interval: float | None = None,
    incident: str | None = None,
) -> Diagnosis | list[Diagnosis]:
    """What ``diag analyze`` finds: a job that runs is looked at, of one that ended its last incident is read.

    Args:
        job: run id, unambiguous beginning of one, job folder, bundle, or incident's folder; files and folders
            of dumps, alone or in a list; ``None`` for the jobs of this host.
        pids: numbers of training processes instead.
        several: a list, of as many jobs as there are; else there must be one.
        catalogue: a TOML file with frame patterns of your own.
        user_code: code below these paths is yours although it is installed.
        timeout: seconds that one look may take.
        interval: seconds between two looks; ``None`` for what fits.
        incident: id of a stored incident of the job.

    Returns:
        The diagnosis: ``diag analyze --json`` prints the same. What could not be read is said by one warning
        (``IncompleteRecords``).

    Raises:
        UsageError: no such job, several where one was expected, or an argument that does not fit.
        StoreError: nothing of what is stored can be read.
    """
    from rankscope.diag.judging import called

    diagnoses = called.analyze_all(
        job,
        pids=pids,
        catalogue=catalogue,
        user_code=user_code,
        timeout=timeout,
        interval=interval,
        incident=incident,
        stacklevel=2,
    )
    return diagnoses if several else called.the_only(diagnoses)


def open_job(job: str | Path, *, earlier: bool = False) -> JobTables:
    """The stored records of one job as DataFrames (docs/reference/dataframes.md).

    Args:
        job: run id, unambiguous beginning of one, or job folder; or the folder of one incident, or a file or
            folder of dumps, which have no history.
        earlier: all jobs that had this run id, as ``diag history --all`` shows them, and not only the last.

    Returns:
        Its tables; what is missing is in ``warnings``, and said by one warning (``IncompleteRecords``).

    Raises:
        UsageError: no such job, several that begin like that, or no dump that can be read.
        StoreError: the diagnosis in an incident's folder cannot be read.
    """
    from rankscope.diag.tables import opened

    return opened.open_job(job, earlier=earlier, stacklevel=2)


def open_jobs(root: str | Path | None = None) -> FleetTables:
    """The stored records of all jobs as DataFrames, with a column ``job`` before all others.

    Args:
        root: where they are: a ``$RANKSCOPE_HOME``; ``None`` for this user's.

    Returns:
        Their tables; what is missing is in ``warnings``, and said by one warning (``IncompleteRecords``).

    Raises:
        UsageError: there is no such folder.
    """
    from rankscope.diag.tables import opened

    return opened.open_jobs(root, stacklevel=2)
