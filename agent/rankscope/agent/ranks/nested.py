"""The ranks of a launcher that runs as a worker: ``diag run --no-python -- mpirun -n 4 python train.py``.

torch's agent knows one process, the launcher; the ranks of the job are among its descendants, and say so in
their environment (``watchdog.nested``). They are looked for once a tick, and told as a launch of their own.
torch's workers stay those that are started, stopped and waited for. It must not know how ranks are watched,
nor decide anything.

One worker of a node may be such a launcher: the ranks of two would have the same numbers.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import PurePath
from typing import Final

from torch.distributed.elastic.agent.server.api import WorkerSpec

from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.agent.workers.stopping import stop_processes
from rankscope.diag import proc
from rankscope.diag.discover import FoundJob
from rankscope.diag.discover.candidates import look_at
from rankscope.diag.discover.launches import jobs_of, ranks_among
from rankscope.watchdog.nested import nested_rank

SPARE_SLOTS: Final = 64
"""Slots of the progress page for ranks below a command, 4 KiB each; at least one a CPU."""
SETTLED: Final = 2
"""Looks that must show the same processes: ranks do not start all at once."""
LOOK_AGAIN: Final = 10
"""Looks after which processes that stay the same are asked again: a shell may become a rank."""


def slots_for(spec: WorkerSpec) -> int:
    """How many slots of the progress page the workers of a spec may need on this node."""
    command = spec.entrypoint
    if not isinstance(command, str) or PurePath(command).name.startswith("python"):
        return spec.local_world_size  # the worker is the rank itself
    return spec.local_world_size + max(SPARE_SLOTS, os.cpu_count() or 0)


class NestedRanks:
    """Finds the ranks below the workers of a launch. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._base: Launch | None = None
        self._found: Launch | None = None
        self._below: tuple[int, ...] = ()
        self._looks = 0

    def begin(self, launch: Launch) -> None:
        """Torch has started other workers (main thread)."""
        with self._lock:
            self._base, self._found = launch, None
            self._below, self._looks = (), 0

    def look(self) -> Launch | None:
        """The ranks that are there now, if they are others than before (watch thread).

        Returns:
            A launch of them, once two looks have shown the same; torch's own when they have all ended and
            their launcher lives; else ``None``.
        """
        with self._lock:
            base = self._base
            if base is None:
                return None
            below = _below(base)
            self._looks = self._looks + 1 if below == self._below else 1
            self._below = below
            if self._looks % LOOK_AGAIN != SETTLED or not (below or self._found):
                return None
            return self._tell(base, _job_below(base, below))

    def _tell(self, base: Launch, job: FoundJob | None) -> Launch | None:
        if job is None:
            was, self._found = self._found, None
            return base if was is not None and _lives(base) else None
        workers = tuple(
            WorkerRef(rank.rank, _slot(rank.slot, index), rank.pid, rank.start_ticks)
            for index, rank in enumerate(job.ranks)
        )
        if self._found is not None and set(workers) <= set(self._found.workers):
            return None  # the same, or fewer: who watches them sees them end
        self._found = Launch(
            workers, base.restart_count, world_size=job.world_size, group_rank=base.group_rank
        )
        return self._found

    def stop_looking(self) -> None:
        """The workers are about to be stopped, or have ended."""
        with self._lock:
            self._base = None

    def end_left(self) -> tuple[WorkerRef, ...]:
        """End ranks that outlived their launcher, which was to end them; returns those that are left."""
        with self._lock:
            found, self._found = self._found, None
        if found is None:
            return ()
        return stop_processes(found.workers, death_sig=signal.SIGKILL, timeout=0.0, as_groups=False)


def _slot(slot: int | None, index: int) -> int:
    return index if slot is None else slot


def _below(base: Launch) -> tuple[int, ...]:
    """The processes below those workers that run no Python, which would be ranks themselves."""
    launchers = (worker.pid for worker in base.workers if proc.is_python(worker.pid) is False)
    return tuple(pid for launcher in launchers for pid in proc.descendants(launcher))


def _job_below(base: Launch, below: tuple[int, ...]) -> FoundJob | None:
    """The job that ranks below one worker form; ``None`` when there are none, or below several."""
    table = proc.process_table()
    seen = look_at([pid for pid in below if pid in table], table)
    named = {pid: one for pid, one in seen.named.items() if nested_rank(one.variables) is not None}
    launchers = [worker for worker in base.workers if any(_is_below(pid, worker) for pid in named)]
    jobs = jobs_of(ranks_among(named, table), table)
    return jobs[0] if len(launchers) == len(jobs) == 1 else None


def _is_below(pid: int, worker: WorkerRef) -> bool:
    return proc.descends_from(pid, (worker.pid,))


def _lives(base: Launch) -> bool:
    return any(proc.start_ticks(worker.pid) == worker.start_ticks for worker in base.workers)
