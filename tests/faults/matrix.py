"""The fault matrix: the rows of all suites, in the order in which they are run."""

from __future__ import annotations

from typing import Final

from tests.faults import (
    rows_alone,
    rows_busy,
    rows_collectives,
    rows_faults,
    rows_healthy,
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
    *rows_processes.ROWS,
    *rows_network.ROWS,
    *rows_slow.ROWS,
)
