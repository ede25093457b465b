"""Which rank a process is, read from the environment its launcher gave it.

Pure: an environment in, an identity out. It knows the launchers' variables (INTERFACES.md: torchrun, Open
MPI, PMIx, PMI, Slurm, TensorFlow's ``TF_CONFIG``), most specific first, and must not know of processes:
an environment is inherited, so whether a process *is* the rank that its environment names is decided in
``discover``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rankscope.diag.ranks import MAX_RANKS
from rankscope.watchdog.nested import nested_rank

RUN_ID: Final = "TORCHELASTIC_RUN_ID"
RESTART_COUNT: Final = "TORCHELASTIC_RESTART_COUNT"
_OMPI: Final = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
# Rank, world size, local rank, ranks of the node; a set of variables is only ever read together.
_VARIABLES: Final = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", *_OMPI),
    ("PMIX_RANK", *_OMPI),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
)
_SLURM_NODES: Final = ("SLURM_STEP_NUM_NODES", "1")
_MAX_DIGITS: Final = 10
_TF_CHIEFS: Final = ("chief", "master")


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """What an environment says.

    Attributes:
        rank: global rank.
        source: the variable that says so.
        run_id: ``TORCHELASTIC_RUN_ID``, ``None`` outside torch's elastic agent.
        restart_count: torch's restart count of the worker group.
        world_size: ranks of the job, ``None`` when not given.
        local_rank: rank on its node, ``None`` when not given.
        local_size: ranks that its node was given, ``None`` when not said.
    """

    rank: int
    source: str
    run_id: str | None = None
    restart_count: int = 0
    world_size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None


class _TfTask(msgspec.Struct, frozen=True):
    type: str = ""
    index: int = -1


class _TfConfig(msgspec.Struct, frozen=True):
    cluster: dict[str, list[str]] = msgspec.field(default_factory=dict)
    task: _TfTask = _TfTask()


def identify(environment: Mapping[str, str]) -> RankIdentity | None:
    """The rank that an environment names, ``None`` for none."""
    # A rank of mpirun below a worker of torch's agent has inherited that worker's variables.
    sets = _VARIABLES if nested_rank(environment) is None else _VARIABLES[1:]
    for rank_name, size_name, local_name, _here_name in sets:
        rank = _number(environment.get(rank_name))
        if rank is not None:
            world_size = _number(environment.get(size_name))
            return RankIdentity(
                rank=rank,
                source=rank_name,
                run_id=environment.get(RUN_ID) or None,
                restart_count=_number(environment.get(RESTART_COUNT)) or 0,
                world_size=world_size,
                local_rank=_number(environment.get(local_name)),
                local_size=_local_size(environment, world_size, sets),
            )
    config = environment.get("TF_CONFIG")
    return _identify_tensorflow(config) if config else None


def _local_size(
    environment: Mapping[str, str], world_size: int | None, sets: Sequence[tuple[str, str, str, str]]
) -> int | None:
    """Ranks of the node, by the first that says so of a job of this size.

    A script under mpirun that sets ``RANK`` for torch sets nothing for the node.
    """
    for _rank_name, size_name, _local_name, here_name in sets:
        size = _number(environment.get(size_name))
        one_node = not here_name and environment.get(_SLURM_NODES[0]) == _SLURM_NODES[1]
        here = size if one_node else _number(environment.get(here_name))
        if here is not None and size is not None and size == world_size:
            return here
    return None


def _number(text: str | None) -> int | None:
    """A small number, else ``None``: anything may stand in an environment."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS):
        return None
    return number if (number := int(text)) <= MAX_RANKS else None


def _identify_tensorflow(text: str) -> RankIdentity | None:
    """Chief first, then the workers; parameter servers and evaluators are no ranks."""
    try:
        config = msgspec.json.decode(text, type=_TfConfig)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    chiefs = sum(len(config.cluster.get(name, ())) for name in _TF_CHIEFS)
    workers = len(config.cluster.get("worker", ()))
    if config.task.index < 0:
        return None
    if config.task.type in _TF_CHIEFS:
        rank = config.task.index
    elif config.task.type == "worker":
        rank = chiefs + config.task.index
    else:
        return None
    return RankIdentity(rank, "TF_CONFIG", world_size=chiefs + workers or None)
