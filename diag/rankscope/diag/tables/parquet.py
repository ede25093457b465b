"""A Parquet dataset of tables, partitioned by job and date as Hive has it: ``TABLE/job=NAME/date=DAY``.

Every file is written beside its place and renamed, so a reader finds it whole or not at all; what a job had
before and has no longer goes last. What is in a table is not known here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pandas as pd

from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.model import SCHEMA
from rankscope.diag.store.job import folder_name
from rankscope.diag.store.whole_file import whole_file
from rankscope.diag.tables.declare import Kind, Table

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

FORMAT: Final = "parquet"
_FILE: Final = "part-0.parquet"
_PLAIN: Final = "-_.~@+,:"
_LONGEST: Final = 200
"""A file name may have 255 bytes."""
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive, Spark, pyarrow and DuckDB read as null."""


@dataclass(frozen=True, slots=True)
class Written:
    """One table of one job in a dataset.

    Attributes:
        files: names below the dataset's folder.
    """

    job: str
    table: str
    rows: int
    files: tuple[str, ...]


def require_pyarrow() -> None:
    """Find out before the work whether it can be written.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        import pyarrow.parquet  # type: ignore[import-untyped]  # it ships no types
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow, which is not installed", hint="pip install 'rankscope[report]'"
        ) from None
    del pyarrow


def write_table(
    folder: Path, table: Table, job: str, frame: pd.DataFrame, *, began: pd.Timestamp | None
) -> Written:
    """Write one table of one job, in place of what the dataset has of it.

    Args:
        folder: of the dataset.
        table: what the frame has, without a column ``job``.
        job: name of the job.
        frame: its rows.
        began: when the job began: the day of rows that have no time.

    Raises:
        StoreError: it cannot be written; what was there before may be replaced in part, whole files each.
    """
    place = folder / table.name / f"job={_folder_of(job)}"
    made = [path for path in (place, *place.parents) if not path.exists()]
    try:
        files = [_write_day(place, day, table, part) for day, part in _by_day(table, frame, began)]
        _remove_others(place, {path.parent.name for path in files})
    except BaseException as error:  # KeyboardInterrupt too
        _remove_made(place, made)
        if not isinstance(error, OSError):
            raise
        raise StoreError(f"{place} cannot be written: {error.strerror or error}") from error
    return Written(job, table.name, len(frame), tuple(str(path.relative_to(folder)) for path in files))


def _folder_of(job: str) -> str:
    name = quote(job, safe=_PLAIN, errors="surrogateescape")
    return name if len(name) <= _LONGEST else folder_name(job).replace("=", "%3D")


def _by_day(
    table: Table, frame: pd.DataFrame, began: pd.Timestamp | None
) -> Iterator[tuple[str, pd.DataFrame]]:
    if frame.empty:
        return
    if not table.dated:
        yield _day(began), frame
        return
    days = frame[table.dated].dt.strftime("%Y-%m-%d").fillna(_day(began))
    for day in sorted(days.unique()):
        yield str(day), frame[days == day]


def _day(time: pd.Timestamp | None) -> str:
    return time.strftime("%Y-%m-%d") if time is not None and not pd.isna(time) else _NO_DAY


def _write_day(place: Path, day: str, table: Table, frame: pd.DataFrame) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = place / f"date={day}" / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as beside:
        pq.write_table(pa.Table.from_pandas(frame, schema=schema_of(table), preserve_index=False), beside)
    return path


def _remove_others(place: Path, days: set[str]) -> None:
    """Remove what an earlier export wrote of this job and this one did not, and leave what is not ours."""
    if not place.is_dir():
        return
    for path in place.glob("date=*"):
        if path.name not in days:
            (path / _FILE).unlink(missing_ok=True)
            _remove_if_empty(path)
    _remove_if_empty(place)


def _remove_made(place: Path, made: Sequence[Path]) -> None:
    """Remove the folders that were made for nothing, the lowest first."""
    for path in (*place.glob("date=*"), *made):
        _remove_if_empty(path)


def _remove_if_empty(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()


def schema_of(table: Table) -> pa.Schema:
    """The Arrow schema of a table's files."""
    import pyarrow as pa

    types: Mapping[Kind, pa.DataType] = {
        Kind.TEXT: pa.string(),
        Kind.INT: pa.int64(),
        Kind.MAYBE_INT: pa.int64(),
        Kind.NUMBER: pa.float64(),
        Kind.BOOL: pa.bool_(),
        Kind.MAYBE_BOOL: pa.bool_(),
        Kind.TIME: pa.timestamp("ns", "UTC"),
        Kind.INTS: pa.list_(pa.int64()),
        Kind.TEXTS: pa.list_(pa.string()),
    }
    fields = [pa.field(column.name, types[column.kind]) for column in table.columns]
    return pa.schema(fields, metadata={"rankscope.schema": str(SCHEMA)})
