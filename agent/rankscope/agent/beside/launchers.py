"""Who launched a job's ranks: while a launcher lives, ranks that have ended may come again.

The nearest ancestor that is no shell. One that is known to launch ranks (torchrun, mpirun, Slurm's step
daemon, ...) is believed for as long as it lives; any other, a notebook that spawned workers, is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from rankscope.diag import proc
from rankscope.diag.discover.found import FoundJob

_SHELLS: Final = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "timeout", "numactl", "env"}
)
_LAUNCHERS: Final = frozenset(
    {
        "torchrun", "torch.distributed.run", "torch.distributed.launch", "diag", "rankscope.agent",
        "accelerate", "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.launch",
        "deepspeed.launcher.runner", "mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "prte",
        "hydra_pmi_proxy", "mpiexec.hydra", "slurmstepd", "srun", "horovodrun", "colossalai", "composer",
    }
)  # fmt: skip
_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class Launcher:
    """A process that started ranks.

    Attributes:
        pid: with start_ticks its identity.
        is_known: whether it is a program that launches ranks, and restarts them perhaps.
        is_step: whether it is Slurm's, in whose batch script several launches may run side by side.
    """

    pid: int
    start_ticks: int
    is_known: bool
    is_step: bool = False

    @property
    def lives(self) -> bool:
        """Whether it still runs."""
        return lives(self.pid, self.start_ticks)


@dataclass(frozen=True, slots=True)
class Origin:
    """What tells one launch from another, whatever the two are called.

    Attributes:
        launchers: of its ranks.
        meeting: where its ranks meet, ``""`` when not known.
    """

    launchers: frozenset[Launcher]
    meeting: str = ""

    def is_same(self, other: Origin) -> bool:
        """Whether two sets of ranks are of one launch, one of them perhaps its restart.

        A known launcher launches one job, and lets its ranks meet elsewhere after a restart; any other (a
        notebook, a script that starts several jobs) may have launched both.
        """
        shared = self.launchers & other.launchers
        if any(launcher.is_known and not launcher.is_step for launcher in shared):
            return True
        if shared:
            return self.meeting == other.meeting or not (self.meeting and other.meeting)
        nobody = not self.launchers and not other.launchers
        return nobody and bool(self.meeting) and self.meeting == other.meeting


def origin_of(job: FoundJob) -> Origin:
    """Where a job's ranks come from, by the processes as they are now."""
    table = proc.process_table()
    return Origin(launchers_of((rank.pid for rank in job.ranks), table=table), job.meeting)


def lives(pid: int, start_ticks: int) -> bool:
    """Whether a process runs; a zombie, whom nobody has collected yet, does not."""
    facts = proc.read_facts(pid, now=0.0)
    return facts is not None and facts.start_ticks == start_ticks and facts.state not in "ZX"


def launchers_of(pids: Iterable[int], *, table: Mapping[int, proc.ProcessEntry]) -> frozenset[Launcher]:
    """The launchers of these processes, without those that cannot be told from ``init`` or a login.

    The first process of a container may be a launcher.
    """
    found = (_launcher_of(pid, table) for pid in pids)
    return frozenset(one for one in found if one is not None)


def is_launcher(command: tuple[str, ...]) -> bool:
    """Whether a command line is that of a program that launches ranks."""
    words = [PurePath(word).name for word in command[:1]]
    rest = command[1:]
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[1:]
    if rest[:1] == ("-m",):
        words += rest[1:2]
    elif rest and words and words[0].startswith(("python", "pypy")):
        words.append(PurePath(rest[0]).name)
    return any(word.rstrip(":") in _LAUNCHERS for word in words) or _is_slurm(command)


def _is_slurm(command: tuple[str, ...]) -> bool:
    # "slurmstepd: [123.0]" is one word: the daemon rewrites its title.
    return bool(command) and command[0].startswith("slurmstepd")


def _launcher_of(pid: int, table: Mapping[int, proc.ProcessEntry]) -> Launcher | None:
    for _ in range(_MOST):
        entry = table.get(pid)
        parent = table.get(entry.parent) if entry is not None else None
        if parent is None:
            return None
        command = proc.command_line(parent.pid)
        is_known = is_launcher(command)
        if parent.pid == 1 and not is_known:
            return None
        if is_known or parent.comm not in _SHELLS:
            return Launcher(parent.pid, parent.start_ticks, is_known, _is_slurm(command))
        pid = parent.pid
    return None
