"""Whether a process is a rank of a launcher that runs as a worker (``diag run --no-python -- mpirun ...``).

Pure and small: an environment in, a place out; ranks import it at their start. The agent says in ``TASK``
which task of MPI or Slurm it runs in itself; whoever was given another one below it is a rank of that
launcher, whatever ``RANK`` it has inherited from torch's agent. It must not know of processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rankscope.watchdog import environment

_TASKS: Final = (
    ("OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"),
    ("PMIX_RANK", "PMIX_NAMESPACE"),
    ("PMI_RANK", "PMI_ID"),
    ("SLURM_PROCID", "SLURM_STEP_ID"),
)
"""The rank's variable, and what tells a launch from another one of its kind."""
_LOCAL_RANKS: Final = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_MAX_DIGITS: Final = 10
_PARTS: Final = 3


class Nested(NamedTuple):
    """A rank of a launcher below a worker.

    Attributes:
        rank: in that launcher's job.
        slot: of the node's progress page.
    """

    rank: int
    slot: int


def task_named(environ: Mapping[str, str]) -> str:
    """The task of MPI, PMIx, PMI or Slurm that an environment was made for, ``""`` for none."""
    for rank_name, launch_name in _TASKS:
        if rank_name in environ:
            return f"{rank_name}={environ[rank_name]} {environ.get(launch_name, '')}"
    return ""


def nested_rank(environ: Mapping[str, str]) -> Nested | None:
    """The rank of a launcher below a worker, ``None`` for a worker of ours and for everybody else."""
    outer = environ.get(environment.TASK)
    if outer is None or task_named(environ) in {"", outer}:
        return None
    rank = next((environ[name] for name, _launch in _TASKS if name in environ), "")
    first = environ.get(environment.SLOT, "0")
    local = next((environ[name] for name in _LOCAL_RANKS if name in environ), rank)
    numbers = [number for text in (rank, first, local) if (number := _number(text)) is not None]
    return Nested(numbers[0], numbers[1] + numbers[2]) if len(numbers) == _PARTS else None


def own_rank(environ: Mapping[str, str]) -> str:
    """The rank that an environment names: that of a launcher below a worker, else torch's; ``""`` for none.

    Scripts that would take torch's for their own are started below a launcher without any ``RANK``.
    """
    nested = nested_rank(environ)
    return environ.get("RANK", "") if nested is None else str(nested.rank)


def _number(text: str) -> int | None:
    """A small number, else ``None``: anything may stand in an environment."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS else None
