"""What is published of one worker: its steps, since when it makes none, where it is. Pure.

Nothing is made up: a step that nobody saw, and a place that nobody told, are left open.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from rankscope.agent.health import WorkerHealth
from rankscope.agent.workers.model import WorkerRef
from rankscope.diag.model import Diagnosis, RankState
from rankscope.diag.top.whereabouts import told_place
from rankscope.watchdog.page import SlotView

_LONGEST: Final = 200
_NS: Final = 1e9


def worker_health(
    worker: WorkerRef, slot: SlotView | None, *, state: RankState, now: float, diagnosis: Diagnosis | None
) -> WorkerHealth:
    """What is published of a worker.

    Args:
        worker: the worker.
        slot: its slot of the progress page, ``None`` without one.
        state: what the detector makes of it.
        now: ``time.monotonic()``.
        diagnosis: of the incident that holds, ``None`` while there is none.
    """
    stepped_ns = max(slot.step_ns, slot.user_step_ns) if slot is not None else 0
    return WorkerHealth(
        rank=worker.rank,
        local_rank=worker.local_rank,
        pid=worker.pid,
        state=state,
        step=_step(slot),
        seconds_since_progress=now - stepped_ns / _NS if stepped_ns else None,
        where=(_found(worker, diagnosis) or (told_place(slot) if slot is not None else ""))[:_LONGEST],
    )


def _step(slot: SlotView | None) -> int | None:
    if slot is None:
        return None
    if slot.step_ns:
        return slot.step
    return slot.user_step if slot.user_step_ns else None


def _found(worker: WorkerRef, diagnosis: Diagnosis | None) -> str:
    """Where the last look of the incident found it."""
    if diagnosis is None:
        return ""
    place = diagnosis.location
    for finding in diagnosis.ranks:
        if (finding.rank, finding.pid) != (worker.rank, worker.pid):
            continue
        if place is not None and place.rank == worker.rank:
            return f"{place.function} ({PurePath(place.file).name}:{place.line})"
        return finding.position
    return ""
