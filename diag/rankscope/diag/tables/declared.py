"""All tables, in the order of the page; those of one job, and those of many."""

from __future__ import annotations

from typing import Final

from rankscope.diag.tables.declare import Table
from rankscope.diag.tables.of_history import CYCLES, EVENTS, FAULTS, JOB, JOBS, RESTARTS, SPENT
from rankscope.diag.tables.of_incidents import EVIDENCE, INCIDENTS, RANKS, STACKS
from rankscope.diag.tables.of_looks import COLLECTIVES, GROUPS, STEPS, THREADS

OF_A_JOB: Final = (
    INCIDENTS,
    RANKS,
    STACKS,
    EVIDENCE,
    THREADS,
    STEPS,
    COLLECTIVES,
    GROUPS,
    RESTARTS,
    FAULTS,
    CYCLES,
    SPENT,
    EVENTS,
)
"""What ``open_job`` gives."""
OF_JOBS: Final[dict[str, Table]] = {
    table.name: table for table in (JOBS, *(table.with_first(JOB) for table in OF_A_JOB))
}
"""What ``open_jobs`` gives, and ``diag export`` writes, by name."""
