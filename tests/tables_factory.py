"""Jobs for the tests of tables: a real one of the documentation's examples, and made ones."""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
from tests.history_factory import BEGAN

from rankscope.diag import IncompleteRecords
from rankscope.diag.model import (
    Collective,
    FlightRecord,
    Frame,
    GroupProgress,
    JobSnapshot,
    Progress,
    RankSnapshot,
    RecordedGroup,
    ThreadStack,
)
from rankscope.diag.tables.declare import Table
from rankscope.diag.tables.declared import OF_A_JOB
from rankscope.diag.tables.opened import Tables

RECORDED: Final = Path(__file__).parents[1] / "docs" / "examples" / "records" / "jobs"
ALL: Final = tuple(table.name for table in OF_A_JOB)


def the_recorded_job() -> Path:
    """The folder of a real job: four ranks, one of which hangs, is explained and restarted."""
    (job,) = RECORDED.iterdir()
    return job


def a_copy(folder: Path, name: str = "run-7") -> Path:
    """The real job in a store below a folder, under another name."""
    job = folder / "jobs" / name
    shutil.copytree(the_recorded_job(), job)
    stored = json.loads((job / "job.json").read_bytes())
    (job / "job.json").write_text(json.dumps({**stored, "run_id": name}))
    return job


@contextmanager
def quietly() -> Generator[None]:
    """What is missing is looked at in ``warnings`` of the tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IncompleteRecords)
        yield


def frames(tables: Tables) -> dict[str, pd.DataFrame]:
    """All tables of one job."""
    return {name: tables.frame(name) for name in ALL}


def shapes(frame: pd.DataFrame) -> dict[str, str]:
    """The dtypes of a frame as the reference page writes them."""
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


def declared(table: Table) -> dict[str, str]:
    """The dtypes that a table declares."""
    return {column.name: column.kind.dtype for column in table.columns}


def plain(value: object) -> Any:
    """A cell as JSON would have it."""
    if isinstance(value, tuple):
        return list(value)
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    return value.item() if isinstance(value, np.generic) else value


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON would have them; times as pandas has them."""
    return [
        {str(name): plain(value) for name, value in row.items()}
        for row in frame.astype(object).to_dict(orient="records")
    ]


def an_all_reduce(seq: int, called: float, group: str = "0") -> Collective:
    """A call, that many seconds after the begin."""
    return Collective(
        group,
        seq,
        "all_reduce",
        is_completed=True,
        input_sizes=((4, 1024), (8,)),
        input_dtypes=("Float",),
        created_ns=int(BEGAN) * 1_000_000_000 + round(called * 1e9),
        frames=(Frame("all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 3245),),
    )


def a_seen_rank(rank: int, node: str, step: int, *calls: Collective) -> RankSnapshot:
    """A rank with a stack, a page and a record."""
    newest = max((call.seq for call in calls), default=-1)
    return RankSnapshot(
        rank=rank,
        node=node,
        pid=100 + rank,
        time=BEGAN + 100,
        source="py-spy",
        threads=(ThreadStack(100 + rank, "MainThread", (Frame("step", "/w/train.py", 8),), is_main=True),),
        progress=Progress(step, 2.5, 0.5, (GroupProgress("0", 3, newest, newest),), user_step=10 + step),
        record=FlightRecord((RecordedGroup("0", "default_pg", (), newest, -1, newest),), calls),
    )


def a_snapshot(*ranks: RankSnapshot, at: float = 100.0) -> JobSnapshot:
    """All ranks at one time."""
    return JobSnapshot("run-7", BEGAN + at, len(ranks), ranks)


def rewritten(path: Path, **fields: object) -> None:
    """A stored JSON file with other values in it."""
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), **fields}))
