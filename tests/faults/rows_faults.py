"""The faults of the demonstration and of a job's start: class, culprit, kind and function must be right."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from tests.faults.rows import ANYWHERE, Answer, Row, program
from tests.jobs import train_flags

from rankscope.agent.demo.faults import FAULTS
from rankscope.diag.ranks import fold_ranks

_FAULT_STEP: Final = 30
"""Three seconds of steps: the clocks have learned the job's rhythm."""
_CULPRITS: Final = {
    "data_loading": 1,
    "loader_worker": 2,
    "lock": 0,
    "frozen": 1,
    "crash": 2,
    "killed": 0,
}


def _training(folder: Path, *, fault: str, rank: int) -> list[str]:
    return train_flags(folder, fault=fault, fault_rank=rank, fault_step=_FAULT_STEP, steps=2 * _FAULT_STEP)


def _fault_row(name: str) -> Row:
    fault, culprit = FAULTS[name], _CULPRITS.get(name, 1)
    return Row(
        name=name,
        suite="faults",
        what=f"rank {culprit}: {fault.what}",
        expected=Answer(fault.verdict, fold_ranks([culprit]), fault.kind, fault.function or ANYWHERE),
        command=partial(_training, fault=name, rank=culprit),
    )


def _startup_row(rank: int) -> Row:
    return Row(
        name=f"startup_rank{rank}",
        suite="faults",
        what=f"rank {rank} never reaches init_process_group",
        expected=Answer("RankNonCommHang", fold_ranks([rank]), "startup", "claim_device"),
        command=program("startup_hang.py", f"--late-rank={rank}"),
    )


ROWS: Final[tuple[Row, ...]] = (
    *(_fault_row(name) for name in FAULTS),
    Row(
        name="same_place",
        suite="faults",
        what="all ranks: the same shard never finishes reading; no culprit, a common cause",
        expected=Answer("RankNonCommHang", "-", "data_loading", "read_shard"),
        command=partial(_training, fault="data_loading", rank=-1),
    ),
    _startup_row(1),
    _startup_row(0),
)
