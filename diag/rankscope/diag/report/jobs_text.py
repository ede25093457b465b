"""The list of jobs for a person: one line a job, the newest first. It renders and decides nothing.

A run id is never cut: it is there to be copied. Everything that came from a job is shown inert.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rankscope.diag.jobs_list.model import JobRow
from rankscope.diag.periods import age_text
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.report.text import inert
from rankscope.diag.store.events import unix_time

_HEADS: Final = ("JOB", "STATE", "AGE", "RESTARTS", "RANKS", "NODES", "LAST VERDICT")
_RIGHT: Final = frozenset({2, 3, 4, 5})


def render_jobs(rows: Sequence[JobRow], *, now: float, width: int | None = None) -> str:
    """A table.

    Args:
        rows: in the order in which they are shown.
        now: unix time that "heard 3h ago" is counted to.
        width: columns at which lines are cut, ``None`` for never (a pipe).
    """
    table = [_HEADS, *(_cells(row, now) for row in rows)]
    widths = [max(len(line[at]) for line in table) for at in range(len(_HEADS))]
    return "".join(f"{_cut(_line(line, widths), width)}\n" for line in table)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [
        cell.rjust(widths[at]) if at in _RIGHT else cell.ljust(widths[at]) for at, cell in enumerate(cells)
    ]
    return "  ".join(aligned).rstrip()


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def _cells(row: JobRow, now: float) -> tuple[str, ...]:
    return (
        inert(row.job),
        inert(_state(row, now)),
        "-" if row.age is None else age_text(row.age),
        str(row.restarts),
        str(row.world_size or "-"),
        str(len(row.nodes) or "-"),
        inert(_verdict(row)),
    )


def _state(row: JobRow, now: float) -> str:
    if row.state == "ended":
        return row.result.partition(" by ")[0] or "ended"
    if row.state != "silent":
        return row.state
    heard = unix_time(row.heard) if row.heard is not None else None
    return "never heard" if heard is None else f"heard {age_text(max(0.0, now - heard))} ago"


def _verdict(row: JobRow) -> str:
    parts = [row.verdict or "-"]
    if row.kind not in (None, "none"):
        parts.append(str(row.kind))
    if row.culprits:
        parts.append(f"rank{'s' * (len(row.culprits) > 1)} {fold_ranks(row.culprits)}")
    notes = f"  ({'; '.join(row.notes)})" if row.notes else ""
    return " ".join(parts) + notes
