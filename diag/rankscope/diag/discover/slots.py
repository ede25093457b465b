"""A rank's slot in its node's progress page: whose it is, and what the probe wrote into it.

It knows the page's layout by its reader and processes by pid and start time; it must not know how ranks
are found.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Final

from rankscope.diag import proc
from rankscope.diag.discover.found import FoundRank
from rankscope.diag.discover.namespaces import beyond_root, own_number
from rankscope.diag.model import GroupProgress, Progress
from rankscope.watchdog.page import PageReader, SlotView

_NANO: Final = 1e-9


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
    if _is_process(view, pid, start_ticks):
        return True
    lives = view.pid > 0 and proc.start_ticks(view.pid) == view.start_ticks
    return lives and proc.start_ticks(pid) == start_ticks and proc.descends_from(view.pid, (pid,))


def behind_wrapper(rank: FoundRank) -> FoundRank:
    """The rank as the process that claimed its slot, where the worker is a script that started it."""
    view = _slot_of(rank)
    if view is None or _is_process(view, rank.pid, rank.start_ticks):
        return rank
    return replace(rank, pid=view.pid, start_ticks=view.start_ticks)


def _is_process(view: SlotView, pid: int, start_ticks: int) -> bool:
    """Whether the slot was claimed by a process, by the number it has for us or for itself."""
    return view.start_ticks == start_ticks and (view.pid == pid or view.pid == own_number(pid))


def _slot_of(rank: FoundRank) -> SlotView | None:
    if rank.page is None or rank.slot is None:
        return None
    try:
        with contextlib.closing(PageReader(beyond_root(rank.pid, rank.page))) as page:
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
