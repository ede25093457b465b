"""Find the training jobs of this host: which processes are ranks, and of which job.

An environment is inherited, so a variable alone makes no rank. Of a chain of processes that name the same
rank of the same launch, the topmost one that runs Python is the rank (a shell around it is not, its loader
workers are not); a process below which other ranks were launched is a launcher (torchrun inside a Slurm
task or a Kubernetes pod inherits a rank of its own). Function workers get their variables after they
started and cannot be seen here; their agent knows them. This module reads ``/proc`` and never traces.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final
from urllib.parse import unquote

from rankscope.diag import proc
from rankscope.diag.model import GroupProgress, Progress
from rankscope.diag.rank_variables import RankIdentity, identify
from rankscope.watchdog import environment as names
from rankscope.watchdog.page import PageReader, SlotView

_LAUNCHERS: Final = frozenset({"diag", "torchrun", "torch.distributed.run", "torch.distributed.launch"})
_LOADER_WORKER: Final = "pt_data_worker"
_MAX_ANCESTORS: Final = 64
_NANO: Final = 1e-9


@dataclass(frozen=True, slots=True)
class FoundRank:
    """One rank: its process and where its progress is written.

    Attributes:
        rank: global rank.
        pid: its process; with start_ticks its identity.
        local_rank: rank on this node, ``None`` when not given.
        page: path of the node's progress page, ``None`` without a probe.
        slot: its slot in the page.
    """

    rank: int
    pid: int
    start_ticks: int
    local_rank: int | None = None
    page: str | None = None
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class FoundJob:
    """The ranks of one job on this host, in rank order.

    Attributes:
        job: torch's run id, else ``pid-<parent>``: the process that launched them.
        world_size: ranks of the whole job; when no variable says so, the highest rank here and one.
        job_dir: the job's folder, ``None`` for a job that was not started by Rankscope.
    """

    job: str
    ranks: tuple[FoundRank, ...]
    world_size: int
    job_dir: str | None = None


@dataclass(frozen=True, slots=True)
class FoundPids:
    """What ``ranks_of_pids`` made of the pids it was given; ``problems`` has a line for each oddity."""

    jobs: tuple[FoundJob, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    entry: proc.ProcessEntry
    identity: RankIdentity
    variables: Mapping[str, str] = field(repr=False)

    @property
    def pid(self) -> int:
        return self.entry.pid


_Launch = tuple[str, str]


def find_jobs() -> tuple[FoundJob, ...]:
    """All training jobs of this host whose environments we may read, by name of job."""
    table = proc.process_table()
    return _jobs(_ranks(_candidates(table, table), table))


def ranks_of_pids(pids: Sequence[int]) -> FoundPids:
    """The ranks that a user meant by naming processes.

    A given process is the rank that its environment names; a launcher (an agent, a shell) stands for the
    ranks below it. When no process given has a rank, they are numbered in the order given, with a warning.
    """
    table = proc.process_table()
    problems: list[str] = []
    chosen: dict[int, _Candidate] = {}
    alone: list[proc.ProcessEntry] = []
    for pid in dict.fromkeys(pids):
        if pid not in table:
            problems.append(f"there is no process {pid}")
            continue
        below = proc.descendants(pid, table=table)
        found = _ranks(_candidates((pid, *below), table), table)
        chosen.update((candidate.pid, candidate) for candidate in found)
        if not found:
            alone.append(table[pid])
    if not chosen:
        return _number_them(alone, problems)
    problems += [f"process {entry.pid} ({entry.comm}) is no rank" for entry in alone]
    return FoundPids(_jobs(_topmost(chosen.values(), table)), tuple(problems))


def progress_of(rank: FoundRank, *, now_ns: int | None = None) -> Progress | None:
    """What the rank's probe wrote, ``None`` without a page, or when its slot belongs to another process.

    Args:
        rank: as found.
        now_ns: ``time.monotonic_ns()``, the present by default.
    """
    view = _slot_of(rank)
    if view is None:
        return None
    return progress_from_slot(view, now_ns=time.monotonic_ns() if now_ns is None else now_ns)


def is_slot_of(view: SlotView, pid: int, start_ticks: int) -> bool:
    """Whether a process claimed a slot, or a living one below it did (the worker is a shell script)."""
    if (view.pid, view.start_ticks) == (pid, start_ticks):
        return True
    lives = view.pid > 0 and proc.start_ticks(view.pid) == view.start_ticks
    return lives and proc.start_ticks(pid) == start_ticks and proc.descends_from(view.pid, (pid,))


def behind_wrapper(rank: FoundRank) -> FoundRank:
    """The rank as the process that claimed its slot, where the worker is a script that started it."""
    view = _slot_of(rank)
    return rank if view is None else replace(rank, pid=view.pid, start_ticks=view.start_ticks)


def _slot_of(rank: FoundRank) -> SlotView | None:
    if rank.page is None or rank.slot is None:
        return None
    try:
        with contextlib.closing(PageReader(rank.page)) as page:
            view = page.read(rank.slot)
    except (OSError, IndexError):
        return None
    return view if is_slot_of(view, rank.pid, rank.start_ticks) else None


def progress_from_slot(view: SlotView, *, now_ns: int) -> Progress:
    """Turn a slot of the page into ages (seconds) as of ``now_ns`` (``time.monotonic_ns()``)."""
    return Progress(
        step=view.step,
        seconds_since_step=_age(view.step_ns, now_ns),
        seconds_since_beat=_age(view.beat_ns, now_ns),
        groups=tuple(
            GroupProgress(group.name, group.size, group.enqueued, group.completed, group.members_hash)
            for group in view.groups
        ),
        batches=view.batches,
        user_step=view.user_step if view.user_step_ns else None,
        stage=view.stage,
        seconds_since_return=_age(view.returned_ns, now_ns),
    )


def _age(then_ns: int, now_ns: int) -> float | None:
    return max(0, now_ns - then_ns) * _NANO if then_ns else None


def _candidates(pids: Iterable[int], table: Mapping[int, proc.ProcessEntry]) -> dict[int, _Candidate]:
    """Python processes whose environment names a rank, without this process and those it runs under."""
    ours = {os.getpid(), *_ancestors(os.getpid(), table)}
    found: dict[int, _Candidate] = {}
    for pid in pids:
        if pid in ours:
            continue
        variables = proc.environ(pid)
        identity = identify(variables) if variables else None
        if variables and identity and proc.is_python(pid) is not False and not _runs_launcher(pid):
            found[pid] = _Candidate(table[pid], identity, variables)
    return found


def _runs_launcher(pid: int) -> bool:
    """Whether it is a launcher by its program, also before it has launched anything."""
    _python, *arguments = proc.command_line(pid) or ("",)
    program = arguments[1] if arguments[:1] == ["-m"] and len(arguments) > 1 else "".join(arguments[:1])
    return PurePath(program).name in _LAUNCHERS or program.partition(".")[0] == "rankscope"


def _ancestors(pid: int, table: Mapping[int, proc.ProcessEntry]) -> list[int]:
    found: list[int] = []
    while pid in table and len(found) < _MAX_ANCESTORS:
        pid = table[pid].parent
        if pid:
            found.append(pid)
    return found


def _ranks(candidates: Mapping[int, _Candidate], table: Mapping[int, proc.ProcessEntry]) -> list[_Candidate]:
    """Those candidates that are ranks themselves: neither launchers nor children of a rank."""
    launchers = _launchers(candidates, table)
    possible = [
        candidate
        for candidate in candidates.values()
        if candidate.pid not in launchers and not _is_marked_child(candidate)
    ]
    return _one_each(_topmost(possible, table))


def _launchers(candidates: Mapping[int, _Candidate], table: Mapping[int, proc.ProcessEntry]) -> set[int]:
    """Candidates that launched ranks: a worker of theirs says what they themselves do not.

    Either the worker has a run id and the launcher none (torchrun under Slurm, MPI or Kubernetes), or its
    rank comes from another, more specific variable (``deepspeed`` in a Slurm task).
    """
    found: set[int] = set()
    for candidate in candidates.values():
        for pid in _ancestors(candidate.pid, table):
            above = candidates.get(pid)
            if above is not None and _launched(above.identity, candidate.identity):
                found.add(pid)
    return found


def _launched(above: RankIdentity, below: RankIdentity) -> bool:
    return above.run_id is None and (below.run_id is not None or below.source != above.source)


def _is_marked_child(candidate: _Candidate) -> bool:
    """Whether the probe's mark, or the kernel's name of it, says that it is the child of a rank."""
    mark = candidate.variables.get(names.RANK_PID)
    return candidate.entry.comm == _LOADER_WORKER or mark not in {None, str(candidate.pid)}


def _topmost(candidates: Iterable[_Candidate], table: Mapping[int, proc.ProcessEntry]) -> list[_Candidate]:
    """Without those that run below another one: a child of a rank is never a rank of its own."""
    by_pid = {candidate.pid: candidate for candidate in candidates}
    return [
        candidate
        for pid, candidate in by_pid.items()
        if not any(above in by_pid for above in _ancestors(pid, table))
    ]


def _one_each(candidates: list[_Candidate]) -> list[_Candidate]:
    """One process a rank: a later restart counts, then the one that has torch loaded, then the elder.

    In a pod every Python program inherits the pod's ``RANK``, a TensorBoard beside the training too.
    """
    best: dict[tuple[_Launch, int], _Candidate] = {}
    for candidate in sorted(candidates, key=lambda one: one.entry.start_ticks):
        key = (_launch_of(candidate), candidate.identity.rank)
        rival = best.get(key)
        if rival is None or _merit(candidate) > _merit(rival):
            best[key] = candidate
    return list(best.values())


def _merit(candidate: _Candidate) -> tuple[int, bool]:
    return candidate.identity.restart_count, proc.maps_library(candidate.pid, "libtorch")


def _launch_of(candidate: _Candidate) -> _Launch:
    """Name of the job, and what tells it from others of that name: its folder, else where its ranks meet.

    Every torchrun with ``--master-port`` has the run id "none".
    """
    variables = candidate.variables
    folder = variables.get(names.JOB_DIR)
    if folder:
        return unquote(PurePath(folder).name), folder
    name = candidate.identity.run_id or f"pid-{candidate.entry.parent}"
    return name, f"{variables.get('MASTER_ADDR', '')}:{variables.get('MASTER_PORT', '')}"


def _jobs(ranks: Iterable[_Candidate]) -> tuple[FoundJob, ...]:
    by_job: dict[_Launch, list[_Candidate]] = {}
    for candidate in ranks:
        by_job.setdefault(_launch_of(candidate), []).append(candidate)
    used = Counter(name for name, _place in by_job)
    return tuple(
        _job(name if used[name] == 1 else f"{name} (pid {found[0].entry.parent})", found)
        for (name, _place), found in sorted(by_job.items())
    )


def _job(job: str, candidates: list[_Candidate]) -> FoundJob:
    ranks = tuple(sorted(map(_found_rank, candidates), key=lambda rank: rank.rank))
    sizes = (candidate.identity.world_size or 0 for candidate in candidates)
    folders = (candidate.variables.get(names.JOB_DIR) for candidate in candidates)
    return FoundJob(
        job=job,
        ranks=ranks,
        world_size=max(ranks[-1].rank + 1, *sizes),
        job_dir=next(filter(None, folders), None),
    )


def _found_rank(candidate: _Candidate) -> FoundRank:
    slot = candidate.variables.get(names.SLOT, "")
    return FoundRank(
        rank=candidate.identity.rank,
        pid=candidate.pid,
        start_ticks=candidate.entry.start_ticks,
        local_rank=candidate.identity.local_rank,
        page=candidate.variables.get(names.PAGE) or None,
        slot=int(slot) if slot.isascii() and slot.isdigit() else candidate.identity.local_rank,
    )


def _number_them(entries: list[proc.ProcessEntry], problems: list[str]) -> FoundPids:
    if not entries:
        return FoundPids((), tuple(problems))
    listed = ",".join(str(entry.pid) for entry in entries)
    problems.append(f"no rank in the environment of process {listed}: numbered in the order given")
    ranks = tuple(FoundRank(rank, entry.pid, entry.start_ticks) for rank, entry in enumerate(entries))
    return FoundPids((FoundJob(f"pid-{entries[0].parent}", ranks, len(ranks)),), tuple(problems))
