"""The faults of the demonstration and of a job's start: class, culprit, kind and function must be right."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from tests.faults.draw import Draw
from tests.faults.rows import ANYWHERE, LITTLE_TOLD, Answer, Row, culprit, program
from tests.jobs import train_flags

from rankscope.agent.demo.faults import FAULTS, Fault

_EVERY_RANK: Final = -1


def _training(folder: Path, draw: Draw, *, fault: str, rank: int | None = None) -> list[str]:
    fault_rank = draw.rank if rank is None else rank
    return train_flags(folder, fault=fault, fault_rank=fault_rank, fault_step=draw.at, steps=2 * draw.at)


def _fault_row(fault: Fault) -> Row:
    return Row(
        name=fault.name,
        suite="faults",
        what=f"one rank: {fault.what}",
        expected=culprit(fault.verdict, fault.kind, fault.function or ANYWHERE),
        command=partial(_training, fault=fault.name),
        most_ranks=4,
        modes=("run",),
    )


ROWS: Final[tuple[Row, ...]] = (
    *(_fault_row(fault) for fault in FAULTS.values()),
    Row(
        name="same_place",
        suite="faults",
        what="all ranks: the same shard never finishes reading; no culprit, a common cause",
        expected=Answer("RankNonCommHang", "-", "data_loading", "read_shard"),
        command=partial(_training, fault="data_loading", rank=_EVERY_RANK),
        most_ranks=4,
        zero=False,
        modes=("run",),
    ),
    Row(
        name="startup",
        suite="faults",
        what="one rank never reaches init_process_group",
        expected=culprit("RankNonCommHang", "startup", "claim_device"),
        command=program("startup_hang.py", "--late-rank={rank}"),
        renames=("claim_device",),
        most_ranks=4,
        modes=("run",),
        within=LITTLE_TOLD,
    ),
)
