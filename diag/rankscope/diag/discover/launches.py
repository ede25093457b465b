"""Which candidates are ranks, and which of them belong to one job.

An environment is inherited, so a variable alone makes no rank. Of a chain of processes that name the same
rank of the same launch, the topmost one that runs Python is the rank (a shell around it is not, its loader
workers are not, an entry point in Python that never loads torch is not); a process below which other ranks
were launched is a launcher (torchrun inside a Slurm task or a Kubernetes pod inherits a rank of its own).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Final
from urllib.parse import unquote

from rankscope.diag import proc
from rankscope.diag.discover.candidates import LOADER_WORKER, Candidate, Table, ancestors
from rankscope.diag.discover.found import FoundJob, FoundRank
from rankscope.diag.discover.namespaces import beyond_root, own_number
from rankscope.diag.discover.rank_variables import RankIdentity
from rankscope.watchdog import environment as names
from rankscope.watchdog.nested import nested_rank, task_named

_NO_RUN_ID: Final = "none"
"""What torchrun calls a job that was given no ``--rdzv-id``."""
Launch = tuple[str, str]


def ranks_among(candidates: Mapping[int, Candidate], table: Table) -> list[Candidate]:
    """Those candidates that are ranks themselves: neither launchers nor children of a rank."""
    launchers = _launchers(candidates, table) | _wrappers(candidates, table)
    possible = [
        candidate
        for candidate in candidates.values()
        if candidate.pid not in launchers and not _is_marked_child(candidate)
    ]
    return _one_each(topmost(possible, table), table)


def topmost(candidates: Iterable[Candidate], table: Table) -> list[Candidate]:
    """Without those that run below another one: a child of a rank is never a rank of its own."""
    by_pid = {candidate.pid: candidate for candidate in candidates}
    return [
        candidate
        for pid, candidate in by_pid.items()
        if not any(above in by_pid for above in ancestors(pid, table))
    ]


def jobs_of(ranks: Iterable[Candidate], table: Table) -> tuple[FoundJob, ...]:
    """The ranks grouped by launch, by name of job."""
    by_job: dict[Launch, list[Candidate]] = {}
    for candidate in ranks:
        by_job.setdefault(_launch_of(candidate, table), []).append(candidate)
    used = Counter(name for name, _place in by_job)
    return tuple(
        _job(_shown(name, found, table) if used[name] > 1 or _is_nobodys(name, found) else name, found)
        for (name, _place), found in sorted(by_job.items())
    )


def _is_nobodys(name: str, ranks: Iterable[Candidate]) -> bool:
    """Whether a name is torch's own for a launch without one: another such may come and go beside it."""
    return name == _NO_RUN_ID and not any(rank.variables.get(names.JOB_DIR) for rank in ranks)


def _shown(name: str, ranks: list[Candidate], table: Table) -> str:
    """A name with the process that launched the ranks: the nearest Python program above them."""
    above = ancestors(ranks[0].pid, table)
    launcher = next((pid for pid in above if proc.is_python(pid)), ranks[0].entry.parent)
    return f"{name} (pid {launcher})"


def _launchers(candidates: Mapping[int, Candidate], table: Table) -> set[int]:
    """Candidates that launched ranks: a worker of theirs says what they themselves do not.

    Either the worker has a run id and the launcher none (torchrun under Slurm, MPI or Kubernetes), or its
    rank comes from another, more specific variable (``deepspeed`` in a Slurm task).
    """
    found: set[int] = set()
    for candidate in candidates.values():
        for pid in ancestors(candidate.pid, table):
            above = candidates.get(pid)
            if above is not None and _launched(above.identity, candidate.identity):
                found.add(pid)
    return found


def _wrappers(candidates: Mapping[int, Candidate], table: Table) -> set[int]:
    """Python programs around a rank: without torch, while one below that names the same rank has it loaded.

    In a pod the entry point inherits the rank of the training that it starts.
    """
    found: set[int] = set()
    for candidate in candidates.values():
        for pid in ancestors(candidate.pid, table) if candidate.has_torch else ():
            above = candidates.get(pid)
            if above is not None and not above.has_torch and above.identity == candidate.identity:
                found.add(pid)
    return found


def _launched(above: RankIdentity, below: RankIdentity) -> bool:
    return above.run_id is None and (below.run_id is not None or below.source != above.source)


def _is_marked_child(candidate: Candidate) -> bool:
    """Whether the probe's mark, or the kernel's name of it, says that it is the child of a rank."""
    mark = candidate.variables.get(names.RANK_PID)
    if candidate.entry.comm == LOADER_WORKER:
        return True
    # The probe writes the number that the rank has for itself; in a container that is another one.
    return mark not in {None, str(candidate.pid)} and mark != str(own_number(candidate.pid))


def _one_each(candidates: list[Candidate], table: Table) -> list[Candidate]:
    """One process a rank: a later restart counts, then the one that has torch loaded, then the elder.

    In a pod every Python program inherits the pod's ``RANK``, a TensorBoard beside the training too.
    """
    best: dict[tuple[Launch, int], Candidate] = {}
    for candidate in sorted(candidates, key=lambda one: one.entry.start_ticks):
        key = (_launch_of(candidate, table), candidate.identity.rank)
        rival = best.get(key)
        if rival is None or _merit(candidate) > _merit(rival):
            best[key] = candidate
    return list(best.values())


def _merit(candidate: Candidate) -> tuple[int, bool]:
    return candidate.identity.restart_count, candidate.has_torch


def _launch_of(candidate: Candidate, table: Table) -> Launch:
    """Name of the job, and what tells it from others of that name: its folder, else where its ranks meet.

    Every torchrun with ``--master-port`` has the run id "none".
    """
    variables = candidate.variables
    folder = variables.get(names.JOB_DIR)
    if folder:
        return unquote(PurePath(folder).name), folder
    name = candidate.identity.run_id or f"pid-{_launched_by(candidate, table)}"
    return name, _meeting(variables)


def _meeting(variables: Mapping[str, str]) -> str:
    port = variables.get("MASTER_PORT", "")
    return f"{variables.get('MASTER_ADDR', '')}:{port}" if port else ""


def _launched_by(candidate: Candidate, table: Table) -> int:
    """The process that launched it: its parent, or above the shells of the same MPI or Slurm task."""
    above = candidate.entry.parent
    task = task_named(candidate.variables)
    while task and above in table and _is_shell_of(task, above):
        above = table[above].parent
    return above


def _is_shell_of(task: str, pid: int) -> bool:
    """Whether a process is part of a task but no Python program, which would have launched ranks itself."""
    return proc.is_python(pid) is False and task_named(proc.environ(pid) or {}) == task


def _job(job: str, candidates: list[Candidate]) -> FoundJob:
    ranks = tuple(sorted(map(_found_rank, candidates), key=lambda rank: rank.rank))
    sizes = (candidate.identity.world_size or 0 for candidate in candidates)
    world_size = max(ranks[-1].rank + 1, *sizes)
    here = (_ranks_here(candidate.identity, world_size) for candidate in candidates)
    folders = (candidate.variables.get(names.JOB_DIR) for candidate in candidates)
    return FoundJob(
        job=job,
        ranks=ranks,
        world_size=world_size,
        job_dir=next(filter(None, folders), None),
        run_id=next((candidate.identity.run_id for candidate in candidates), None),
        meeting=_meeting(candidates[0].variables),
        here=tuple(dict.fromkeys(ranks for ranks in here if ranks)),
    )


def _ranks_here(identity: RankIdentity, world_size: int) -> range:
    """The ranks that a rank's node was given; empty when that cannot be told.

    Torch's agent gives a node ranks that follow each other; others may deal them out one by one.
    """
    size, local = identity.local_size or 0, identity.local_rank
    if size >= world_size:
        return range(world_size)
    if identity.run_id is None or local is None or not local <= identity.rank:
        return range(0)
    return range(identity.rank - local, min(identity.rank - local + size, world_size))


def _found_rank(candidate: Candidate) -> FoundRank:
    slot = candidate.variables.get(names.SLOT, "")
    answers = candidate.variables.get(names.ANSWERS, "")
    nested = nested_rank(candidate.variables)
    if nested is not None:
        slot = str(nested.slot)
    return FoundRank(
        rank=candidate.identity.rank,
        pid=candidate.pid,
        start_ticks=candidate.entry.start_ticks,
        local_rank=candidate.identity.local_rank,
        page=candidate.variables.get(names.PAGE) or None,
        slot=int(slot) if slot.isascii() and slot.isdigit() else candidate.identity.local_rank,
        answers=beyond_root(candidate.pid, answers) if answers else None,
    )
