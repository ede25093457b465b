"""The fault matrix: the rows of all suites, in the order in which they are run."""

from __future__ import annotations

from typing import Final

from tests.faults import (
    rows_alone,
    rows_busy,
    rows_collectives,
    rows_faults,
    rows_features,
    rows_groups,
    rows_healthy,
    rows_meetings,
    rows_messages,
    rows_network,
    rows_processes,
    rows_slow,
)
from tests.faults.rows import Row

ROWS: Final[tuple[Row, ...]] = (
    *rows_faults.ROWS,
    *rows_healthy.ROWS,
    *rows_alone.ROWS,
    *rows_busy.ROWS,
    *rows_collectives.ROWS,
    *rows_groups.ROWS,
    *rows_messages.ROWS,
    *rows_meetings.ROWS,
    *rows_features.ROWS,
    *rows_processes.ROWS,
    *rows_network.ROWS,
    *rows_slow.ROWS,
)
