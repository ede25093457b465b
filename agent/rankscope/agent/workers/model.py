"""The workers of one launch, as the watching side knows them. Plain values, no process is touched."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerRef:
    """One worker process: a process is pid *and* start time.

    Attributes:
        rank: global rank.
        local_rank: slot in the node's page, too.
        start_ticks: field 22 of ``/proc/<pid>/stat``; 0 when it was gone at once.
    """

    rank: int
    local_rank: int
    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Launch:
    """Workers that were started together.

    Attributes:
        restart_count: restarts before this launch.
        world_size: ranks of the whole job.
    """

    workers: tuple[WorkerRef, ...]
    restart_count: int
    world_size: int
    group_rank: int = 0
