"""Jobs that go on, but slowly: a straggler, or all ranks alike.

The answers were written from the faults and from DIAGNOSIS.md's rows S1 and S3. Under ``diag run`` nothing is
asked for: steps that take 20 % longer than the job's own did have it looked at. Beside torchrun ``--samples``
asks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.faults.outside_slow import neighbours_end, slow_source, start_neighbours
from tests.faults.rows import ANYWHERE, Answer, Beside, Row, culprit, program

_BESIDE: Final = Beside(quiet=1.0, after="step {at}", goes_on=True, flags=("--samples=40", "--interval=0.35"))
_ROW: Final = Row(
    "straggler_compute",
    "diagnosis",
    "one rank computes 0.3 s longer from a step on",
    culprit("RankNonCommSlow", "user_code", "refine", rule="S1", line="compute"),
    program("paced_job.py", "--fault=compute", "--rank={rank}", "--at={at}"),
    renames=("refine",),
    most_ranks=4,  # what the other ranks need of two cores is what this one lacks
    beside=_BESIDE,
    by_itself=True,
)
ROWS: Final[tuple[Row, ...]] = (
    _ROW,
    replace(
        _ROW,
        name="straggler_loading",
        what="the data set of one rank is 0.3 s slower from a step on",
        expected=culprit(
            "RankNonCommSlow", "data_loading", "Examples.__getitem__", rule="S1", line="loading"
        ),
        command=program("paced_job.py", "--fault=loading", "--rank={rank}", "--at={at}"),
        renames=("Examples",),
        most_ranks=8,
    ),
    replace(
        _ROW,
        name="straggler_neighbour",
        what="other processes run on the core of one rank",
        # Nothing in the program is at fault: no kind, and any line.
        expected=culprit("RankNonCommSlow", "none", ANYWHERE, rule="S1"),
        command=program(
            "paced_job.py", "--fault=none", "--rank={rank}", "--at={at}", "--work=0.05", "--step-time=0.1"
        ),
        renames=(),
        most_ranks=3,
        around=neighbours_end,
        during=start_neighbours,
    ),
    replace(
        _ROW,
        name="slow_storage",
        what="all ranks wait 0.7 s for their records from a step on",
        expected=Answer("RankNonCommSlow", "-", "storage", "next_records", "S3", "storage"),
        command=program("paced_job.py", "--fault=storage", "--at={at}", "--source={folder}"),
        renames=("next_records",),
        most_ranks=8,
        zero=False,  # no rank has it: all have
        around=slow_source,
    ),
)
