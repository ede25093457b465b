"""``open_job`` and ``open_jobs``: the stored records as DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from rankscope.diag.errors import UsageError
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import JobFolder
from rankscope.diag.tables.building import FROM_LOOKS, FROM_RECORDS, Known, from_looks, from_records
from rankscope.diag.tables.columns import Columns
from rankscope.diag.tables.declare import Table
from rankscope.diag.tables.declared import OF_A_JOB, OF_JOBS
from rankscope.diag.tables.frames import frame_of, own_copy
from rankscope.diag.tables.of_history import JOBS, facts_of
from rankscope.diag.tables.opening import job_folders, job_or_path
from rankscope.diag.tables.records import StoredIncident, StoredJob
from rankscope.diag.tables.stored import incident_paths, incidents_of, stored_job
from rankscope.diag.tables.warned import warn_of
from rankscope.diag.unhurried import without_collector

if TYPE_CHECKING:
    from rankscope.diag.tables.parquet import Written


class Tables:
    """The tables of one job, or of many; docs/reference/dataframes.md has their columns.

    Each method returns a new frame. A table is made when it is asked for first; what its files lack is added
    to ``warnings`` then.

    Attributes:
        warnings: what is missing, or could not be read, a sentence each.
    """

    def __init__(
        self,
        name: str,
        tables: Mapping[str, Table],
        columns: dict[str, Columns],
        incidents: Callable[[], Iterable[StoredIncident]],
    ) -> None:
        self.warnings: list[str] = []
        self._name = name
        self._tables = tables
        self._columns = columns
        self._incidents = incidents
        self._frames: dict[str, pd.DataFrame] = {}

    def incidents(self) -> pd.DataFrame:
        """One row an incident: verdict, culprits, place, when it was noticed, what was decided."""
        return self.frame("incidents")

    def ranks(self) -> pd.DataFrame:
        """One row a rank in an incident: its state, and whom it waits for."""
        return self.frame("ranks")

    def stacks(self) -> pd.DataFrame:
        """One row a stack and all who show it, rarest first."""
        return self.frame("stacks")

    def evidence(self) -> pd.DataFrame:
        """One row a fact behind a diagnosis."""
        return self.frame("evidence")

    def threads(self) -> pd.DataFrame:
        """One row a thread in a look."""
        return self.frame("threads")

    def steps(self) -> pd.DataFrame:
        """One row a rank in a look: how far it had come."""
        return self.frame("steps")

    def collectives(self) -> pd.DataFrame:
        """One row an operation in the flight record of a rank: when it was called, how late."""
        return self.frame("collectives")

    def groups(self) -> pd.DataFrame:
        """One row a rank and process group in a look."""
        return self.frame("groups")

    def restarts(self) -> pd.DataFrame:
        """One row a restart."""
        return self.frame("restarts")

    def faults(self) -> pd.DataFrame:
        """One row a worker that ended by itself."""
        return self.frame("faults")

    def cycles(self) -> pd.DataFrame:
        """One row a launch on a node, with the seconds in each stage."""
        return self.frame("cycles")

    def spent(self) -> pd.DataFrame:
        """One row a cause that time of a node went into."""
        return self.frame("spent")

    def events(self) -> pd.DataFrame:
        """One row an event."""
        return self.frame("events")

    def frame(self, name: str) -> pd.DataFrame:
        """A table by its name.

        Raises:
            UsageError: there is none of that name.
        """
        if name not in self._tables:
            raise UsageError(f"no such table: {name!r} (there are {', '.join(self._tables)})")
        frame = self._frames.get(name)
        if frame is None:
            if name not in self._columns:
                self._read_looks(next(names for names in FROM_LOOKS if name in names))
            with without_collector():
                frame = self._frames[name] = frame_of(self._tables[name], self._columns.pop(name).values())
        return own_copy(frame)

    def _read_looks(self, names: tuple[str, ...]) -> None:
        said: list[str] = []
        known = Known()
        new = {name: Columns(self._tables[name]) for name in names}
        with without_collector():
            for incident in self._incidents():
                for name, rows in from_looks(names, incident, known, said.append).items():
                    new[name].add(rows, *self._first_of(incident))
        self._columns |= new
        said = [text for text in dict.fromkeys(said) if text not in self.warnings]
        self.warnings += said
        warn_of(said, where=self._name, stacklevel=4)

    def _first_of(self, incident: StoredIncident) -> tuple[str, ...]:
        """What each row has before all else."""
        return (incident.job,) if "jobs" in self._tables else ()


class JobTables(Tables):
    """The tables of one job.

    Attributes:
        job: the job itself.
    """

    def __init__(self, stored: StoredJob, incidents: Callable[[], Iterable[StoredIncident]]) -> None:
        rows = from_records(stored)
        (self._row,) = rows.pop("jobs")
        tables = {table.name: table for table in OF_A_JOB}
        columns = {name: Columns(tables[name]) for name in rows}
        for name, some in rows.items():
            columns[name].add(some)
        super().__init__(stored.name, tables, columns, incidents)
        self.job = facts_of(self._row)
        self.warnings += stored.warnings

    def frame_of_job(self) -> pd.DataFrame:
        """The job's own row, as ``open_jobs().jobs()`` would have it."""
        return frame_of(JOBS, [[value] for value in self._row])

    def export(self, folder: str | Path, kind: str = "parquet") -> tuple[Written, ...]:
        """Write all tables into a dataset, in place of what it has of this job.

        Args:
            folder: of the dataset; made if it is missing.
            kind: format of its files; ``parquet`` is the only one.

        Returns:
            What was written, a table each.

        Raises:
            UsageError: another format, pyarrow is not installed, or the folder is among the stored jobs.
            StoreError: it cannot be written.
        """
        from rankscope.diag.tables import exporting

        exporting.check_format(kind)
        return exporting.write_job(self, Path(folder))


class FleetTables(Tables):
    """The tables of many jobs: those of one, with a column ``job`` before all others, and one of the jobs."""

    def __init__(
        self,
        name: str,
        columns: dict[str, Columns],
        incidents: Callable[[], Iterable[StoredIncident]],
        said: Iterable[str],
    ) -> None:
        super().__init__(name, OF_JOBS, columns, incidents)
        self.warnings += said

    def jobs(self) -> pd.DataFrame:
        """One row a job."""
        return self.frame("jobs")

    def export(self, folder: str | Path, kind: str = "parquet") -> tuple[Written, ...]:
        """Write all tables into a dataset, in place of what it has of these jobs; other jobs stay in it.

        Args:
            folder: of the dataset; made if it is missing.
            kind: format of its files; ``parquet`` is the only one.

        Returns:
            What was written, a job and table each.

        Raises:
            UsageError: another format, pyarrow is not installed, or the folder is among the stored jobs.
            StoreError: it cannot be written.
        """
        from rankscope.diag.tables import exporting

        exporting.check_format(kind)
        return exporting.write_jobs(self, Path(folder))


def open_job(job: str | Path, *, earlier: bool = False, stacklevel: int = 1) -> JobTables:
    """The records of one job: ``rankscope.diag.open_job``.

    Args:
        job: see there; earlier too.
        earlier: see there.
        stacklevel: of the warning, counted from the caller.
    """
    found = job_or_path(job)
    if isinstance(found, JobFolder):
        stored = stored_job(found, earlier=earlier)
        tables = JobTables(stored, lambda: incidents_of(stored.name, incident_paths(found)))
    else:
        from rankscope.diag.tables.from_dumps import dumped_job, incident_alone

        stored, incidents = incident_alone(found) if isinstance(found, IncidentFolder) else dumped_job(found)
        tables = JobTables(stored, lambda: incidents)
    warn_of(tables.warnings, where=tables.job.job, stacklevel=stacklevel + 1)
    return tables


def open_jobs(root: str | Path | None = None, *, stacklevel: int = 1) -> FleetTables:
    """The records of all jobs: ``rankscope.diag.open_jobs``.

    Args:
        root: see there.
        stacklevel: of the warning, counted from the caller.
    """
    where, folders, said = job_folders(root)
    columns = {name: Columns(OF_JOBS[name]) for name in FROM_RECORDS}
    named: list[tuple[str, JobFolder]] = []
    with without_collector():
        for folder in map(JobFolder, folders):
            stored = stored_job(folder)
            for name, rows in from_records(stored).items():
                columns[name].add(rows, *(() if name == "jobs" else (stored.name,)))
            named.append((stored.name, folder))
            said += [f"{stored.name}: {text}" for text in stored.warnings]

    def incidents() -> Iterable[StoredIncident]:
        for name, folder in named:
            yield from incidents_of(name, incident_paths(folder))

    tables = FleetTables(str(where), columns, incidents, said)
    warn_of(said, where=str(where), stacklevel=stacklevel + 1)
    return tables
