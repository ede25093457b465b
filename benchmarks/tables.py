"""Rows about DataFrames: ten thousand jobs, and a job of 16,384 ranks, from their folders to frames.

Each is loaded by a process of its own, which says its CPU seconds and peak memory, imports included. Of many
jobs the tables that need no snapshot are asked for, of the large one all.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.row import Row
from benchmarks.stored_jobs import write_fleet, write_large
from rankscope.diag.tables.building import FROM_LOOKS, FROM_RECORDS

JOBS: Final = 10_000
RANKS: Final = 16_384
SECONDS_BAR: Final = 10.0
MEMORY_BAR: Final = 2.0
_SHARED_MEMORY: Final = Path("/dev/shm")
_OF_LOOKS: Final = tuple(itertools.chain.from_iterable(FROM_LOOKS))
_LOAD: Final = """
import json, resource, sys, time
from rankscope.diag import {opener}
tables = {opener}(sys.argv[1])
rows = {{name: len(tables.frame(name)) for name in sys.argv[2:]}}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20, rows]))
"""


def rows() -> list[Row]:
    """Measure: about two minutes, most of it writing the jobs."""
    return [
        _measured(
            f"{JOBS:,} jobs as DataFrames, their records",
            lambda folder: write_fleet(folder, JOBS),
            opener="open_jobs",
            what="",
            wanted={**dict.fromkeys(FROM_RECORDS), "jobs": JOBS, "incidents": JOBS, "restarts": JOBS},
        ),
        _measured(
            f"a job of {RANKS:,} ranks as DataFrames, all tables",
            lambda folder: write_large(folder, RANKS),
            opener="open_job",
            what="jobs/large",
            wanted={
                **dict.fromkeys((*FROM_RECORDS[1:], *_OF_LOOKS)),
                "ranks": RANKS,
                "threads": 2 * 4 * RANKS,
                "collectives": 15 * RANKS,
            },
        ),
    ]


def _measured(
    name: str, write: Callable[[Path], None], *, opener: str, what: str, wanted: Mapping[str, int | None]
) -> Row:
    """Load some tables in a process of its own; of those with a number, so many rows are right."""
    with tempfile.TemporaryDirectory(dir=_place()) as folder:
        write(Path(folder))
        done = subprocess.run(
            [sys.executable, "-c", _LOAD.format(opener=opener), str(Path(folder, what)), *wanted],
            capture_output=True,
            check=True,
            timeout=300,
        )
    seconds, gibibytes, found = msgspec.json.decode(done.stdout, type=tuple[float, float, dict[str, int]])
    is_right = all(count in (None, found[table]) for table, count in wanted.items())
    return Row(
        name,
        f"{seconds:.1f} s CPU, {gibibytes:.2f} GiB{'' if is_right else ', rows are missing'}",
        "none",
        0.0,
        f"<= {SECONDS_BAR:.0f} s, <= {MEMORY_BAR:.0f} GiB",
        is_right and seconds <= SECONDS_BAR and gibibytes <= MEMORY_BAR,
    )


def _place() -> Path | None:
    """Where the jobs are written: a disk that flushes each file would take minutes."""
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
