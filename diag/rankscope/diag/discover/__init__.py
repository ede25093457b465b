"""Find the training jobs of this host: which processes are ranks, and of which job.

The entry point for whoever looks at a job that others launched. What a process says is read in
``candidates``, who is a rank is decided in ``launches`` (variables) and ``function_workers`` (no variables).
Nothing here stops a process or touches a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rankscope.diag import proc
from rankscope.diag.discover.candidates import Candidate, Seen, Table, is_launcher, look_at
from rankscope.diag.discover.found import FoundJob, FoundPids, FoundRank
from rankscope.diag.discover.function_workers import function_jobs
from rankscope.diag.discover.launches import jobs_of, ranks_among, topmost
from rankscope.diag.discover.slots import behind_wrapper, is_slot_of, progress_from_slot, progress_of
from rankscope.diag.errors import UsageError

__all__ = [
    "FoundJob",
    "FoundPids",
    "FoundRank",
    "behind_wrapper",
    "find_all",
    "find_jobs",
    "is_slot_of",
    "jobs_exactly",
    "jobs_named",
    "may_train",
    "progress_from_slot",
    "progress_of",
    "ranks_of_pids",
]


def find_jobs() -> tuple[FoundJob, ...]:
    """All training jobs of this host that we may read, by name of job."""
    return find_all().jobs


def find_all() -> FoundPids:
    """All training jobs of this host, and what may not be read."""
    table = proc.process_table()
    seen = look_at(table, table)
    ranks = ranks_among(seen.named, table)
    jobs = (*jobs_of(ranks, table), *function_jobs(seen.nameless, table, taken=_pids(ranks)))
    return FoundPids(jobs, _unreadable(seen))


def jobs_named(name: str) -> tuple[FoundJob, ...]:
    """The running jobs of a run id, or of a name as ``find_jobs`` gives it, or of the beginning of one.

    Several launches may have one run id (``none``, of every torchrun with ``--master-port``).

    Raises:
        UsageError: jobs of different names begin like that.
    """
    jobs = find_jobs()
    exact = jobs_exactly(name, jobs)
    if exact or not name:
        return exact
    similar = tuple(job for job in jobs if (job.run_id or job.job).startswith(name))
    names = sorted({job.run_id or job.job for job in similar})
    if len(names) > 1:
        raise UsageError(f"several jobs begin with {name!r}: {', '.join(names[:5])}")
    return similar


def jobs_exactly(name: str, jobs: Sequence[FoundJob]) -> tuple[FoundJob, ...]:
    """Those jobs that have this run id, or this name."""
    return tuple(job for job in jobs if name in {job.run_id, job.job})


def may_train(pid: int) -> bool:
    """Whether a process may be a rank although nothing names one: it has torch loaded, or may not be read."""
    if proc.is_python(pid) is None:
        entry = proc.process_table().get(pid)
        return entry is not None and entry.comm.startswith("python")
    return proc.maps_library(pid, "libtorch")


def ranks_of_pids(pids: Sequence[int]) -> FoundPids:
    """The ranks that a user meant by naming processes.

    A given process is the rank that its environment or its stack names; a launcher (an agent, a shell)
    stands for the ranks below it. When no process given has a rank, those that run Python, and launch no
    ranks, are numbered in the order given, with a warning.
    """
    table = proc.process_table()
    problems: list[str] = []
    chosen: dict[int, Candidate] = {}
    nameless = Seen()
    alone: list[proc.ProcessEntry] = []
    for pid in dict.fromkeys(pids):
        if pid not in table:
            problems.append(f"there is no process {pid}")
            continue
        seen = look_at((pid, *proc.descendants(pid, table=table)), table)
        found = ranks_among(seen.named, table)
        chosen.update((candidate.pid, candidate) for candidate in found)
        nameless.nameless.update(seen.nameless)
        nameless.unreadable += seen.unreadable
        if not found:
            alone.append(table[pid])
    functions = function_jobs(nameless.nameless, table, taken=chosen)
    functions = _of_their_launch(functions, table)
    covered = {rank.pid for job in functions for rank in job.ranks}
    alone = [entry for entry in alone if not covered.intersection(_with_below(entry.pid, table))]
    if not chosen and not functions:
        return _number_them(alone, [*problems, *_unreadable(nameless)])
    problems += [f"process {entry.pid} ({entry.comm}) is no rank" for entry in alone]
    named = jobs_of(topmost(chosen.values(), table), table)
    return FoundPids((*named, *functions), (*problems, *_unreadable(nameless)))


def _of_their_launch(jobs: tuple[FoundJob, ...], table: Table) -> tuple[FoundJob, ...]:
    """Named one by one, workers are numbered as they are in the whole of their launch."""
    if not jobs:
        return ()
    everything = look_at(table, table)
    ranks = ranks_among(everything.named, table)
    known = function_jobs(everything.nameless, table, taken=_pids(ranks))
    wanted = {rank.pid for job in jobs for rank in job.ranks}
    chosen = (replace(job, ranks=tuple(rank for rank in job.ranks if rank.pid in wanted)) for job in known)
    return tuple(job for job in chosen if job.ranks)


def _with_below(pid: int, table: Table) -> tuple[int, ...]:
    return pid, *proc.descendants(pid, table=table)


def _pids(ranks: Sequence[Candidate]) -> list[int]:
    return [rank.pid for rank in ranks]


def _unreadable(seen: Seen) -> tuple[str, ...]:
    if not seen.unreadable:
        return ()
    count = len(seen.unreadable)
    processes = f"{count} Python processes" if count > 1 else f"Python process {seen.unreadable[0]}"
    return (f"{processes} may not be read (another user's, or protected): run as that user or as root",)


def _number_them(entries: list[proc.ProcessEntry], problems: list[str]) -> FoundPids:
    reasons = {entry.pid: _no_rank(entry.pid) for entry in entries}
    problems += [
        f"process {each.pid} ({each.comm}) {reasons[each.pid]}" for each in entries if reasons[each.pid]
    ]
    entries = [entry for entry in entries if not reasons[entry.pid]]
    if not entries:
        return FoundPids((), tuple(problems))
    listed = ",".join(str(entry.pid) for entry in entries)
    problems.append(f"no rank in the environment of process {listed}: numbered in the order given")
    ranks = tuple(FoundRank(rank, entry.pid, entry.start_ticks) for rank, entry in enumerate(entries))
    job = FoundJob(f"pid-{entries[0].parent}", ranks, len(ranks), assumed=True)
    return FoundPids((job,), tuple(problems))


def _no_rank(pid: int) -> str:
    """Why a process can be no rank, nor has one below it; ``""`` when it may be one."""
    if proc.is_python(pid) is False:
        return "runs no Python, and no rank runs below it"
    return "launches ranks, and has none now" if is_launcher(pid) else ""
