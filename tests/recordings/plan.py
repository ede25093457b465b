"""The jobs that the notebooks are shown on: what is launched, where, and how it should end. Data only.

The programs are those of the demonstration and of the fault matrix. Three of the jobs have their trouble on
one node, for a fleet's report to find.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.agent import demo
from rankscope.diag.model import Verdict

_PROGRAMS: Final = Path(__file__).parents[1] / "faults" / "programs"
_TRAIN: Final = Path(demo.__file__).with_name("train.py")
_CHECKPOINT: Final = "--checkpoint={folder}/checkpoint.pt"
_SOON: Final = "--job-hang-interval=15"
"""The default of 180 s is longer than a recording should take."""

_IMPATIENT: Final = ("--diagnose-after=12",)
"""Longer than the start of a job takes, shorter than what the job does once."""


@dataclass(frozen=True)
class Recording:
    """One job.

    Attributes:
        run_id: its name.
        node: the host name it runs under.
        program: the training script, and its arguments; ``{folder}`` is a folder of the job's own.
        flags: of ``diag run``.
        exit_code: how it ends.
        found: verdict and culprits of its incidents, in order; looks that find the same again count once.
    """

    run_id: str
    node: str
    ranks: int
    program: Path
    arguments: tuple[str, ...]
    flags: tuple[str, ...] = ()
    exit_code: int = 0
    found: tuple[tuple[Verdict, tuple[int, ...]], ...] = ()


RECORDINGS: Final = (
    Recording(
        "loader-hang",
        "node-b",
        4,
        _TRAIN,
        (_CHECKPOINT, "--fault=data_loading", "--fault-rank=2", "--fault-step=25"),
        ("--max-restarts=2", _SOON),
        found=(("RankNonCommHang", (2,)),),
    ),
    Recording(
        "lock-hang",
        "node-a",
        3,
        _PROGRAMS / "locking_job.py",
        ("--fault=crossed", "--rank=1"),
        (_SOON,),
        exit_code=75,
        found=(("RankNonCommHang", (1,)),),
    ),
    Recording(
        "crash",
        "node-b",
        3,
        _TRAIN,
        (_CHECKPOINT, "--fault=crash", "--fault-rank=1", "--fault-step=20", "--steps=40"),
        ("--max-restarts=2",),
        found=(("Exited", (1,)),),
    ),
    Recording(
        "killed",
        "node-b",
        2,
        _TRAIN,
        (_CHECKPOINT, "--fault=killed", "--fault-rank=0", "--fault-step=12", "--steps=20"),
        ("--max-restarts=2",),
        found=(("Exited", (0,)),),
    ),
    Recording(
        "exit-hang",
        "node-a",
        2,
        _PROGRAMS / "exit_hang.py",
        ("--keeps=thread", "--rank=1", "--steps=40"),
        ("--job-exit-hang-interval=10", _SOON),
        exit_code=75,
        found=(("RankNonCommHang", (1,)),),
    ),
    Recording(
        "straggler",
        "node-c",
        3,
        _PROGRAMS / "paced_job.py",
        ("--fault=compute", "--rank=1", "--at=40", "--then-rank=2", "--then-at=100", "--steps=160"),
        ("--straggler-interval=15",),
        found=(("RankNonCommSlow", (1,)), ("RankNonCommSlow", (2,))),
    ),
    Recording(
        "quiet-epoch-end",
        "node-c",
        2,
        _PROGRAMS / "healthy_job.py",
        (_CHECKPOINT, "--spell=epoch_end", "--seconds=22"),
        _IMPATIENT,
        found=(("RankNonCommHang", ()),),
    ),
    Recording(
        "slow-checkpoint",
        "node-a",
        2,
        _PROGRAMS / "healthy_job.py",
        (_CHECKPOINT, "--spell=checkpoint", "--seconds=14"),
        _IMPATIENT,
    ),
    Recording("healthy", "node-a", 2, _TRAIN, (_CHECKPOINT, "--steps=60")),
)
BY_NAME: Final = {one.run_id: one for one in RECORDINGS}
