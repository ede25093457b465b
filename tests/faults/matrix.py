"""The fault matrix as data: what is run, what is done to it, and what must be found.

Two kinds of rows: faults, where class, culprit, kind and the line's function must be right, and jobs that
are healthy but look hung, where no incident may be opened. How a row is run is ``tests.faults.trial``'s
business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.faults.pauses import pause_everything, pause_workers
from tests.jobs import Job, train_flags

from rankscope.agent.demo.faults import FAULTS
from rankscope.diag.ranks import fold_ranks

ANYWHERE: Final = ""
"""No function is expected: the process left none."""
_PROGRAMS: Final = Path(__file__).parent / "programs"
_FAULT_STEP: Final = 30
"""Three seconds of steps: the clocks have learned the job's rhythm."""
_RANKS: Final = 3
_CULPRITS: Final = {
    "data_loading": 1,
    "loader_worker": 2,
    "lock": 0,
    "frozen": 1,
    "crash": 2,
    "killed": 0,
}
_PAUSE: Final = 15.0
_PATIENCE: Final = 90.0


@dataclass(frozen=True)
class Answer:
    """What a diagnosis says; ``verdict`` is ``none`` when there was no incident.

    Attributes:
        culprits: folded rank set, ``-`` for none.
        function: of the line it points at; ``ANYWHERE`` in an expectation matches all.
    """

    verdict: str
    culprits: str = "-"
    kind: str = "-"
    function: str = "-"

    def differs_in(self, found: Answer) -> tuple[str, ...]:
        """The fields in which ``found`` is not what is expected here."""
        wrong: list[str] = [
            name for name in ("verdict", "culprits", "kind") if getattr(self, name) != getattr(found, name)
        ]
        # Since Python 3.11 a method comes with its class: MetricsWriter.write.
        if self.function not in (ANYWHERE, found.function, found.function.rpartition(".")[2]):
            wrong.append("function")
        return tuple(wrong)


NO_INCIDENT: Final = Answer("none")


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        what: the situation, for a person.
        command: the worker's script with its arguments; gets the job's folder.
        during: what is done to the job while it runs.
        patience: seconds until the row is given up.
    """

    name: str
    what: str
    expected: Answer
    command: Callable[[Path], list[str]]
    ranks: int = _RANKS
    during: Callable[[Job], None] | None = None
    patience: float = _PATIENCE


def _training(folder: Path, *, fault: str, rank: int) -> list[str]:
    return train_flags(folder, fault=fault, fault_rank=rank, fault_step=_FAULT_STEP, steps=2 * _FAULT_STEP)


def _program(folder: Path, *, name: str, flags: tuple[str, ...]) -> list[str]:
    return [str(_PROGRAMS / name), *(flag.format(folder=folder) for flag in flags)]


def _healthy(*flags: str) -> Callable[[Path], list[str]]:
    return partial(_program, name="healthy_job.py", flags=("--checkpoint={folder}/checkpoint", *flags))


def _fault_row(name: str) -> Row:
    fault, culprit = FAULTS[name], _CULPRITS.get(name, 1)
    return Row(
        name=name,
        what=f"rank {culprit}: {fault.what}",
        expected=Answer(fault.verdict, fold_ranks([culprit]), fault.kind, fault.function or ANYWHERE),
        command=partial(_training, fault=name, rank=culprit),
    )


def _startup_row(rank: int) -> Row:
    return Row(
        name=f"startup_rank{rank}",
        what=f"rank {rank} never reaches init_process_group",
        expected=Answer("RankNonCommHang", fold_ranks([rank]), "startup", "claim_device"),
        command=partial(_program, name="startup_hang.py", flags=(f"--late-rank={rank}",)),
        patience=120.0,
    )


_SAME_PLACE: Final = Row(
    name="same_place",
    what="all ranks: the same shard never finishes reading; no culprit, a common cause",
    expected=Answer("RankNonCommHang", "-", "data_loading", "read_shard"),
    command=partial(_training, fault="data_loading", rank=-1),
)
_HEALTHY: Final = (
    Row(
        name="evaluation",
        what="healthy: rank 0 evaluates for 20 s, the others wait in a barrier",
        expected=NO_INCIDENT,
        command=_healthy("--spell=evaluation", "--seconds=20"),
    ),
    Row(
        name="slow_checkpoint",
        what="healthy: rank 0 writes a checkpoint for 15 s, the others wait in the next step",
        expected=NO_INCIDENT,
        command=_healthy("--spell=checkpoint", "--seconds=15"),
    ),
    Row(
        name="long_first_step",
        what="healthy: the first step takes 20 s on all ranks",
        expected=NO_INCIDENT,
        command=_healthy("--spell=warm_up", "--seconds=20"),
    ),
    Row(
        name="epoch_end",
        what="healthy: all ranks wait quietly for 20 s after the first 3 s of steps",
        expected=NO_INCIDENT,
        command=_healthy("--spell=epoch_end", "--seconds=20"),
    ),
    Row(
        name="early_end",
        what="healthy: all but rank 0 have finished, rank 0 waits quietly for 40 s more",
        expected=NO_INCIDENT,
        command=_healthy("--spell=early_end", "--seconds=40"),
    ),
    Row(
        name="job_stopped",
        what="healthy: agent and workers are stopped by SIGSTOP for 15 s, then continued",
        expected=NO_INCIDENT,
        command=_healthy(),
        during=partial(pause_everything, after=f"step {_FAULT_STEP} ", seconds=_PAUSE),
    ),
    Row(
        name="workers_stopped",
        what="healthy: all workers, not the agent, are stopped by SIGSTOP for 15 s, then continued",
        expected=NO_INCIDENT,
        command=_healthy(),
        during=partial(pause_workers, after=f"step {_FAULT_STEP} ", seconds=_PAUSE),
    ),
    Row(
        name="no_torch",
        what="healthy: 75 s of sleeping and computing, no torch, no steps",
        expected=NO_INCIDENT,
        command=partial(_program, name="without_torch.py", flags=("--seconds=75",)),
        ranks=2,
        patience=120.0,
    ),
)
ROWS: Final[tuple[Row, ...]] = (
    *(_fault_row(name) for name in FAULTS),
    _SAME_PLACE,
    _startup_row(1),
    _startup_row(0),
    *_HEALTHY,
)
