"""A running job's pair of snapshots: where its processes are, and two looks some seconds apart.

The shell around capture for ``diag analyze``; it knows processes and agents' files, not what they mean.
"""

from __future__ import annotations

import linecache
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from rankscope.diag import look_times, proc
from rankscope.diag.capture import Target, capture_ranks
from rankscope.diag.classify import Catalogue, messaging_ranks, unclear_ranks
from rankscope.diag.closer_look import look_closer
from rankscope.diag.discover import FoundJob, FoundRank, behind_wrapper, progress_of
from rankscope.diag.model import ExitFacts, JobSnapshot, RankSnapshot
from rankscope.diag.slow_looks import as_job, take_looks
from rankscope.diag.store.job import AgentFile, JobFolder

INTERVAL: Final = look_times.INTERVAL
"""Seconds between the two snapshots."""
_ELSEWHERE: Final = "this rank is not on this host; run `diag snapshot` or `diag analyze` on its node"
_GOES_ON: Final = "no process of it is left, and its launcher goes on"
NO_PROCESS: Final = "no process of it on this host: ended or never started"


def running_job(folder: JobFolder, *, by_watch: bool = False) -> FoundJob | None:
    """The workers of a job that run on this host, ``None`` when none does.

    Args:
        folder: the job's.
        by_watch: as a ``diag watch`` beside the job sees them, which may be a part of them; else as an agent
            that launched them.
    """
    agents = [agent for agent in _living_agents(folder) if agent.beside is by_watch]
    ranks = [rank for agent in agents for rank in _ranks_of(agent)]
    if not ranks:
        return None
    world_size = max(agent.world_size for agent in agents)
    return FoundJob(
        job=folder.run_id,
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        world_size=world_size,
        job_dir=None if by_watch else str(folder.path),
    )


def is_running(folder: JobFolder) -> bool:
    """Whether an agent that launched this job runs on this host."""
    return any(not agent.beside for agent in _living_agents(folder))


def _living_agents(folder: JobFolder) -> list[AgentFile]:
    return [agent for agent in folder.agents() if _lives(agent.pid, agent.start_ticks)]


def _ranks_of(agent: AgentFile) -> list[FoundRank]:
    """All workers of an agent; none when they have all ended."""
    if not any(_lives(worker.pid, worker.start_ticks) for worker in agent.workers):
        return []
    return [
        behind_wrapper(
            FoundRank(
                rank=worker.rank,
                pid=worker.pid,
                start_ticks=worker.start_ticks,
                local_rank=worker.local_rank,
                page=agent.page or None,
                slot=worker.local_rank,
            )
        )
        for worker in agent.workers
    ]


def _lives(pid: int, start_ticks: int) -> bool:
    return proc.start_ticks(pid) == start_ticks


def take_pair(
    job: FoundJob,
    *,
    timeout: float,
    interval: float = INTERVAL,
    node: str | None = None,
    native: bool = False,
    local_variables: bool = False,
    catalogue: Catalogue | None = None,
    between: Callable[[JobSnapshot], None] | None = None,
    stop: threading.Event | None = None,
) -> tuple[JobSnapshot, JobSnapshot]:
    """Look at all ranks of a job twice.

    Args:
        job: its ranks on this host.
        timeout: seconds one look may take.
        interval: seconds between the two looks.
        node: name of this host in the result.
        native: ask for C++ frames too.
        local_variables: ask for local variables too.
        catalogue: what frames mean: ranks whose Python stack does not tell what they wait for are looked at
            once more, with C++ frames and the peers of their sends and receives.
        between: is given the first look at once, before the second is waited for.
        stop: ends the wait between the looks.

    Raises:
        InterruptedError: it was stopped between the looks.
    """
    first = _take(job, timeout=timeout, node=node, native=native, local_variables=local_variables)
    if between is not None:
        between(first)
    if (stop or threading.Event()).wait(max(0.0, interval - (time.time() - first.time))):
        raise InterruptedError("stopped between the two looks")
    second = take_closer(
        job, timeout=timeout, node=node, native=native, local_variables=local_variables, catalogue=catalogue
    )
    return first, second


def take_closer(
    job: FoundJob,
    *,
    timeout: float,
    node: str | None = None,
    native: bool = False,
    local_variables: bool = False,
    catalogue: Catalogue | None = None,
) -> JobSnapshot:
    """One look at all ranks of a job, as ``take_pair`` takes its second; arguments as there."""
    look = _take(job, timeout=timeout, node=node, native=native, local_variables=local_variables)
    if catalogue is None or (native and local_variables):
        return look
    return look_closer(
        look,
        unclear_ranks(look, catalogue),
        messaging=messaging_ranks(look, catalogue),
        timeout=timeout,
        local_variables=local_variables,
    )


def _take(
    job: FoundJob,
    *,
    timeout: float,
    node: str | None = None,
    native: bool = False,
    local_variables: bool = False,
) -> JobSnapshot:
    """Look at all ranks of a job once; ranks on other hosts are named as not observed."""
    host = node or socket.gethostname()
    started = time.time()
    seen = capture_ranks(
        targets_of(job, host), timeout=timeout, native=native, local_variables=local_variables
    )
    absent = absent_ranks(job, job.world_size, {rank.rank for rank in job.ranks}, elsewhere=_ELSEWHERE)
    return JobSnapshot(
        job=job.job, time=started, world_size=max(job.world_size, len(seen)), ranks=(*seen, *absent)
    )


def take_many(
    job: FoundJob,
    *,
    count: int,
    interval: float,
    timeout: float,
    stop: threading.Event | None = None,
) -> tuple[JobSnapshot, ...]:
    """Look at all ranks of a job many times without stopping any, to find out what is slow.

    Args:
        job: its ranks on this host.
        count: how often.
        interval: seconds between two looks, on average.
        timeout: seconds that the first look and the last may take.
        stop: ends it between two looks.

    Raises:
        InterruptedError: it was stopped.
    """
    host = socket.gethostname()
    looks = take_looks(
        lambda: targets_of(job, host),
        pause=(stop or threading.Event()).wait,
        count=count,
        interval=interval,
        timeout=timeout,
    )
    if not looks:
        raise InterruptedError("stopped between two looks")
    absent = absent_ranks(job, job.world_size, {rank.rank for rank in job.ranks}, elsewhere=_ELSEWHERE)
    return as_job(looks, job=job.job, world_size=job.world_size, absent=absent)


def targets_of(job: FoundJob, host: str) -> list[Target]:
    """The ranks of a job on this host, as they are captured; ``host`` is their node's name.

    Of one that has ended since it was found nothing is known but what its launcher does.
    """
    alive = {rank.pid for rank in job.ranks if _lives(rank.pid, rank.start_ticks)}
    ended = ExitFacts(code=None)
    if len(alive) < len(job.ranks) and _launcher_goes_on(job):
        ended = ExitFacts(code=0, message=_GOES_ON)
    return [
        Target(
            rank=rank.rank,
            pid=rank.pid,
            start_ticks=rank.start_ticks,
            node=host,
            progress=progress_of(rank),
            exit=None if rank.pid in alive else ended,
            answers=rank.answers or "",
        )
        for rank in job.ranks
    ]


def absent_ranks(
    job: FoundJob | None, world_size: int, seen: Collection[int], *, elsewhere: str
) -> tuple[RankSnapshot, ...]:
    """The ranks of a job that have no process here, each with the reason: gone, or of another host.

    Args:
        job: what says which ranks this host was given, ``None`` when nothing does.
        world_size: ranks of the whole job.
        seen: the ranks that have a process here.
        elsewhere: what to say of a rank of another host.
    """
    missing = [rank for rank in range(world_size) if rank not in seen]
    here = [rank for rank in missing if job is not None and job.is_here(rank)]
    left = ExitFacts(code=0, message=_GOES_ON) if here and _launcher_goes_on(job) else None
    return tuple(
        RankSnapshot(
            rank=rank,
            observed=False,
            reason=NO_PROCESS if rank in here else elsewhere,
            exit=left if rank in here else None,
        )
        for rank in missing
    )


def _launcher_goes_on(job: FoundJob | None) -> bool:
    """Whether an agent of torch's runs these ranks and no others: had one failed, it would have ended all.

    Of a launcher that has other children, one may be the rank that was not found, or not asked for.
    """
    if job is None or job.run_id is None:
        return False
    table = proc.process_table()
    ranks = {rank.pid for rank in job.ranks}
    parents = {table[pid].parent for pid in ranks if pid in table}
    if len(parents) != 1 or not proc.is_python(*parents):
        return False
    return ranks.issuperset(proc.children(*parents, table=table))


def source_line(file: str, line: int) -> str | None:
    """The text of a source line, ``None`` when the file cannot be read."""
    if not file or line <= 0 or not Path(file).is_file():
        return None
    linecache.checkcache(file)
    return linecache.getline(file, line).strip() or None


def pids_of(texts: Sequence[str]) -> list[int]:
    """Process ids from ``--pid 12,13``.

    Raises:
        ValueError: one of them is no number.
    """
    return [int(part) for text in texts for part in text.replace(" ", ",").split(",") if part]
