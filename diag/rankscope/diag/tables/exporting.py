"""Which tables of a job go into a dataset: all of them, and its own row."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.diag.errors import UsageError
from rankscope.diag.model import SCHEMA
from rankscope.diag.store.outside_jobs import check_outside_jobs
from rankscope.diag.streams import json_line
from rankscope.diag.tables.declare import Table
from rankscope.diag.tables.declared import OF_A_JOB
from rankscope.diag.tables.of_history import JOBS
from rankscope.diag.tables.parquet import FORMAT, Written, require_pyarrow, write_table
from rankscope.diag.tables.warned import IncompleteRecords

if TYPE_CHECKING:
    import pandas as pd

    from rankscope.diag.tables.opened import FleetTables, JobTables

_JOB_ALONE = Table(JOBS.name, JOBS.row, JOBS.made_of, JOBS.columns[1:], JOBS.dated)
"""The name of the job is in the folder's."""


@dataclass(frozen=True, slots=True)
class Exported:
    """One job in a dataset.

    Attributes:
        tables: what was written of it.
        warnings: what is missing from its records.
    """

    job: str
    tables: tuple[Written, ...]
    warnings: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Rows of all its tables."""
        return sum(one.rows for one in self.tables)

    def line(self) -> str:
        """The same as JSON."""
        tables = {one.table: {"rows": one.rows, "files": one.files} for one in self.tables}
        plain = {"schema": SCHEMA, "job": self.job, "tables": tables, "warnings": self.warnings}
        return json_line(plain).rstrip("\n")


def check_format(wanted: str) -> None:
    """Find out before the work whether it can be written.

    Raises:
        UsageError: a format that is not known, or pyarrow is not installed.
    """
    if wanted != FORMAT:
        raise UsageError(f"export: no such format: {wanted!r} ({FORMAT!r} expected)")
    require_pyarrow()


def check_place(folder: Path, *, flag: str = "") -> None:
    """Find out before the work whether a dataset may lie somewhere.

    Args:
        folder: the dataset's.
        flag: that named it, ``""`` for none.

    Raises:
        UsageError: it, or its table of the jobs, would be among the stored jobs.
    """
    check_outside_jobs(folder, flag=flag)
    check_outside_jobs(folder / JOBS.name, flag=flag)


def export_job(job: str | Path, folder: Path) -> Exported:
    """Read one job and write it into a dataset.

    Raises:
        UsageError: no such job, or its place is among the stored jobs.
        StoreError: it cannot be written.
    """
    from rankscope.diag.tables.opened import open_job

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteRecords)  # they are told by the caller
        tables = open_job(job)
        written = write_job(tables, folder)
    return Exported(tables.job.job, written, tuple(tables.warnings))


def write_job(tables: JobTables, folder: Path) -> tuple[Written, ...]:
    """Write all tables of one job.

    Raises:
        UsageError: its place is among the stored jobs.
        StoreError: it cannot be written.
    """
    check_place(folder)
    own = tables.frame_of_job()
    began = own["started"].iloc[0]
    name = tables.job.job
    frames = [
        (_JOB_ALONE, own.drop(columns="job")),
        *((table, tables.frame(table.name)) for table in OF_A_JOB),
    ]
    return tuple(write_table(folder, table, name, frame, began=began) for table, frame in frames)


def write_jobs(tables: FleetTables, folder: Path) -> tuple[Written, ...]:
    """Write all tables of many jobs, one table after the other.

    Raises:
        UsageError: its place is among the stored jobs.
        StoreError: it cannot be written.
    """
    check_place(folder)
    jobs = tables.jobs()
    began = dict(zip(jobs["job"], jobs["started"], strict=True))
    written: list[Written] = []
    for table in (_JOB_ALONE, *OF_A_JOB):
        frame = tables.frame(table.name)
        parts = {str(job): part.drop(columns="job") for job, part in frame.groupby("job", sort=False)}
        nothing = frame.iloc[:0].drop(columns="job")
        written += _write(folder, table, parts, nothing, began)
    return tuple(written)


def _write(
    folder: Path,
    table: Table,
    parts: dict[str, pd.DataFrame],
    nothing: pd.DataFrame,
    began: dict[str, pd.Timestamp],
) -> Sequence[Written]:
    return [
        write_table(folder, table, job, parts.get(job, nothing), began=started)
        for job, started in began.items()
    ]
