"""Writes the reference page of the tables: ``python -m rankscope.diag.tables.page > FILE``.

``make docs`` writes it anew; a test says when the one in ``docs/`` is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from rankscope.diag.tables.declare import Table
from rankscope.diag.tables.declared import OF_A_JOB
from rankscope.diag.tables.of_history import JOBS

_HEAD: Final = """\
# DataFrames

A job's stored records as pandas DataFrames:

```python
from rankscope.diag import open_job, open_jobs

job = open_job("run-7")  # run id, its beginning, a job folder; also an incident's folder, or dumps
job.job  # run id, state, result, begin, end, nodes, world size
job.incidents()  # one row an incident
job.ranks().explode("waits_for")[["incident", "rank", "waits_for"]]  # the wait-for graph's edges
job.warnings  # what is missing, or could not be read

jobs = open_jobs()  # all of $RANKSCOPE_HOME; open_jobs(root) of another one
jobs.jobs()  # one row a job
jobs.restarts()  # the same tables, with a column `job` before all others
```

- Each method gives a new frame; a table without rows has all columns with their dtypes.
- Every figure is the one that `diag history JOB --json` and `diag analyze JOB --all --json` show: nothing is
  computed a second time. Where one run id was used for several jobs, restarts, faults, cycles, spent and
  events are those of the last, as `diag history` has it; `open_job(JOB, earlier=True)` is `diag history
  --all`.
- Times are `datetime64[ns, UTC]`, durations seconds as float, ranks int; `Int64`, `boolean` and `string`
  are pandas' nullable types: `<NA>` is "not known", or "there is none". Several values in one place are a
  tuple, empty for none.
- What is half written, of another version or missing is left out, said in `.warnings`, and by one Python
  warning of the category `rankscope.diag.IncompleteRecords`.
- Reading starts nothing, asks no agent, and writes nothing.
- `job.export(FOLDER, "parquet")`, and [`diag export`](cli.md#diag-export), write the same tables as a
  dataset, see [below](#parquet).

`make docs` writes this page from `diag/rankscope/diag/tables/`: change it there.
"""
_TAIL: Final = """\
## Parquet

```
DIR/<table>/job=<run id>/date=<YYYY-MM-DD>/part-0.parquet
```

`date` is the day in UTC of the row's time (of `jobs` `started`, of `restarts` `restart_time`, of `cycles`
`began`), or else that of the job's begin. `job` is percent-encoded; both are in the folders' names and not in
the files, as Hive has it. Exporting a job again replaces its files, and removes those of days that it no
longer has; a reader finds a file whole or not at all. A table without rows for a job has no file for it.
Types: `string`, `int64`, `double`, `bool`, `timestamp[ns, UTC]`, `list<int64>`, `list<string>`.

```python
import pyarrow as pa
import pyarrow.dataset as ds

hive = ds.partitioning(pa.schema([("job", pa.string()), ("date", pa.date32())]), flavor="hive")
ds.dataset("DIR/incidents", partitioning=hive).to_table().to_pandas()
```

```sql
SELECT kind, count(*)
FROM read_parquet('DIR/incidents/*/*/*.parquet', hive_types = {'job': VARCHAR, 'date': DATE})
GROUP BY kind;
```
"""


def page() -> str:
    """The page, as Markdown."""
    return "\n".join([_HEAD, *map(_section, (JOBS, *OF_A_JOB)), _TAIL])


def _section(table: Table) -> str:
    return "\n".join(_lines(table))


def _lines(table: Table) -> Iterator[str]:
    yield f"## {table.name}()"
    yield ""
    only = " Of `open_jobs` only." if table is JOBS else ""
    yield f"One row: {table.row}.{only} Made of {table.made_of}."
    yield ""
    yield "| column | dtype | unit | meaning |"
    yield "|---|---|---|---|"
    for column in table.columns:
        meaning = column.meaning.replace("|", "\\|")
        yield f"| `{column.name}` | `{column.kind.value}` | {column.unit} | {meaning} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(page())
