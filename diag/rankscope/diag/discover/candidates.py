"""The Python processes of this host that may be ranks, and what each says of itself.

Reads ``/proc`` and the memory of processes that have torch loaded (their environment as it is now); it
stops nobody. Whether a candidate *is* a rank is decided in ``launches`` and ``function_workers``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Final

from rankscope.diag import proc
from rankscope.diag.discover.live_environment import live_environ
from rankscope.diag.discover.rank_variables import RankIdentity, identify
from rankscope.diag.proc_files import read_file

LOADER_WORKER: Final = "pt_data_worker"
# torch 2.13 names its threads so, gloo one of its own; no thread outlives a fork, so whoever has one has
# a process group himself (measured; the NCCL names as in ProcessGroupNCCL.cpp of torch 2.6-2.13).
_GROUP_THREADS: Final = ("pt_gloo_runloop", "gloo_tcp_loop", "pt_nccl_watchdg", "pt_nccl_heartbt")
_LAUNCHERS: Final = frozenset(
    {
        "diag",
        "torchrun",
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate",
        "accelerate-launch",
        "accelerate.commands.launch",
        "accelerate.commands.accelerate_cli",
        "deepspeed",
        "deepspeed.launcher.launch",
        "deepspeed.launcher.runner",
        "horovodrun",
    }
)
# Programs that people run beside a training, and that load torch: an inherited variable makes none a rank.
_BESIDE: Final = frozenset({"ipykernel_launcher", "ipykernel", "jupyter", "tensorboard", "tensorboard.main"})
_WITH_VALUE: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SPAWNED: Final = re.compile(r"multiprocessing\.spawn import spawn_main|--multiprocessing-fork")
_FORK_SERVER: Final = re.compile(r"multiprocessing\.forkserver import main")
_MOST_ANCESTORS: Final = 64

Table = Mapping[int, proc.ProcessEntry]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that names a rank.

    Attributes:
        entry: its line of the process table.
        identity: the rank it names.
        variables: its environment.
        has_torch: whether it has torch loaded.
    """

    entry: proc.ProcessEntry
    identity: RankIdentity
    variables: Mapping[str, str] = field(repr=False)
    has_torch: bool = False

    @property
    def pid(self) -> int:
        """Its process."""
        return self.entry.pid


@dataclass(frozen=True, slots=True)
class Nameless:
    """A process that may be a rank although no variable says which.

    Attributes:
        entry: its line of the process table.
        variables: its environment.
        has_group: whether it has a process group: a thread of one runs in it.
        is_function: whether ``multiprocessing`` started it, by any of its methods.
    """

    entry: proc.ProcessEntry
    variables: Mapping[str, str] = field(repr=False)
    has_group: bool
    is_function: bool

    @property
    def pid(self) -> int:
        """Its process."""
        return self.entry.pid


@dataclass(slots=True)
class Seen:
    """What was seen of some processes.

    Attributes:
        named: candidates by pid.
        nameless: by pid.
        unreadable: Python processes whose environment we may not read.
    """

    named: dict[int, Candidate] = field(default_factory=dict[int, Candidate])
    nameless: dict[int, Nameless] = field(default_factory=dict[int, Nameless])
    unreadable: list[int] = field(default_factory=list[int])


def look_at(pids: Iterable[int], table: Table) -> Seen:
    """Sort processes into those that name a rank, those that may be one, and those we may not read.

    This process and those it runs under are left out, and so are launchers.
    """
    ours = {os.getpid(), *ancestors(os.getpid(), table)}
    seen = Seen()
    for pid in pids:
        if pid not in ours:
            _look_at(table[pid], table, seen)
    return seen


def ancestors(pid: int, table: Table) -> list[int]:
    """Parent, its parent and so on."""
    found: list[int] = []
    while pid in table and len(found) < _MOST_ANCESTORS:
        pid = table[pid].parent
        if pid:
            found.append(pid)
    return found


def is_fork_server(pid: int) -> bool:
    """Whether a process is the server that ``multiprocessing`` forks children from."""
    return bool(_FORK_SERVER.search(" ".join(proc.command_line(pid))))


def is_launcher(pid: int) -> bool:
    """Whether a process runs a program that launches ranks."""
    return program_of(proc.command_line(pid)) in _LAUNCHERS


def program_of(command: Sequence[str]) -> str:
    """Name of the module or script that a Python command line runs, ``""`` for none."""
    arguments = iter(command[1:])
    for argument in arguments:
        if argument == "-m":
            return next(arguments, "")
        if argument in _WITH_VALUE:
            next(arguments, "")
        elif argument == "-c":
            return ""
        elif not argument.startswith("-"):
            return PurePath(argument).name.removesuffix(".py")
    return ""


def _look_at(entry: proc.ProcessEntry, table: Table, seen: Seen) -> None:
    is_python = proc.is_python(entry.pid)
    started_with = None if is_python is False else proc.environ(entry.pid)
    if started_with is None:
        if is_python is None and entry.comm.startswith("python") and _is_forbidden(entry.pid):
            seen.unreadable.append(entry.pid)
        return
    has_torch = proc.maps_library(entry.pid, "libtorch")
    variables = (live_environ(entry.pid) if has_torch else None) or started_with
    identity = identify(variables)
    command = proc.command_line(entry.pid)
    program = program_of(command)
    if not variables or program in _LAUNCHERS or program.partition(".")[0] == "rankscope":
        return
    if identity is None:
        if has_torch and entry.comm != LOADER_WORKER:
            _keep_nameless(entry, variables, command, table, seen)
    elif program not in _BESIDE or identify(started_with) != identity:
        seen.named[entry.pid] = Candidate(entry, identity, variables, has_torch)


def _is_forbidden(pid: int) -> bool:
    """Whether an environment may not be read, rather than gone with its process."""
    try:
        os.close(os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _keep_nameless(
    entry: proc.ProcessEntry, variables: Mapping[str, str], command: Sequence[str], table: Table, seen: Seen
) -> None:
    found = Nameless(
        entry, variables, has_group=_has_group(entry.pid), is_function=_is_function(entry, command, table)
    )
    if found.has_group or found.is_function:
        seen.nameless[entry.pid] = found


def _has_group(pid: int) -> bool:
    return any(name.startswith(_GROUP_THREADS) for name in _thread_names(pid))


def _thread_names(pid: int) -> list[str]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - hot path
    except OSError:
        return []
    names = (read_file(f"/proc/{pid}/task/{thread}/comm") for thread in threads)
    return [name.decode("ascii", "replace").strip() for name in names if name]


def _is_function(entry: proc.ProcessEntry, command: Sequence[str], table: Table) -> bool:
    """Spawned ones say so; forked ones have the command line of their parent or of a fork server."""
    if _SPAWNED.search(" ".join(command)):
        return True
    return entry.parent in table and bool(command) and proc.command_line(entry.parent) == tuple(command)
