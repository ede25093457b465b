"""What was removed, for a person and for a program. It renders and decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankscope.diag.model import SCHEMA
from rankscope.diag.periods import age_text, size_text
from rankscope.diag.prune.plan import Plan, Stored, sum_bytes
from rankscope.diag.report.text import inert
from rankscope.diag.streams import json_line


def render_prune(plan: Plan, gone: Sequence[Stored], *, now: float, dry: bool) -> str:
    """A line a job, and what came of it."""
    return "".join(f"{line}\n" for line in _lines(plan, gone, now=now, dry=dry))


def _lines(plan: Plan, gone: Sequence[Stored], *, now: float, dry: bool) -> Iterator[str]:
    did = "would go" if dry else "removed"
    for job in gone:
        yield f"{did}  {_line(job, now)}"
    for job, reason in plan.stays:
        yield f"stays  {_line(job, now)}: {reason}"
    freed = size_text(sum_bytes(gone))
    count = f"{len(gone)} job{'s' * (len(gone) != 1)}"
    yield f"{count}, {freed} would be freed" if dry else f"{count} removed, {freed} freed"


def _line(job: Stored, now: float) -> str:
    age = age_text(max(0.0, now - job.heard))
    return f"{inert(job.row.job)}  {job.row.state}, {age} ago, {size_text(job.size_bytes)}"


def prune_json(
    plan: Plan, gone: Sequence[Stored], trouble: Sequence[tuple[Stored, str]], *, dry: bool
) -> str:
    """One object."""
    told = {
        "dry_run": dry,
        "removed": [_object(job) for job in gone],
        "stays": [{**_object(job), "reason": reason} for job, reason in plan.stays],
        "failed": [{**_object(job), "reason": reason} for job, reason in trouble],
        "freed_bytes": sum_bytes(gone),
        "schema": SCHEMA,
    }
    return json_line(told)


def _object(job: Stored) -> dict[str, object]:
    row = job.row
    return {
        "job": row.job,
        "path": row.path,
        "state": row.state,
        "heard": row.heard,
        "bytes": job.size_bytes,
    }
