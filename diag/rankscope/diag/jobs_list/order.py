"""Which rows are wanted, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rankscope.diag.jobs_list.model import JobRow
from rankscope.diag.store.events import unix_time


def wanted(rows: Iterable[JobRow], *, since: float | None = None, running: bool = False) -> list[JobRow]:
    """The rows that were asked for.

    Args:
        rows: all.
        since: unix time; jobs that run now, or have left a sign of life since.
        running: only those that run on this host.
    """
    kept = [row for row in rows if not running or row.state == "running"]
    if since is None:
        return kept
    return [row for row in kept if row.state == "running" or last_sign(row) >= since]


def newest_first(rows: Iterable[JobRow]) -> list[JobRow]:
    """Those that began last come first; what has no time comes last."""
    return sorted(rows, key=lambda row: (row.created or row.heard or "", row.job), reverse=True)


def last_sign(row: JobRow) -> float:
    """Unix time of the last sign of life, 0 when there is none."""
    times = [unix_time(text) for text in (row.heard, row.ended, row.created) if text is not None]
    return max((time for time in times if time is not None), default=0.0)
