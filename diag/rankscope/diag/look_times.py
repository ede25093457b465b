"""How often, and how far apart, a job is looked at. Numbers only: a command line names them in its help."""

from __future__ import annotations

from typing import Final

INTERVAL: Final = 4.0
"""Seconds between the two snapshots (DIAGNOSIS.md, "Noticing")."""
LOOKS: Final = 20
"""Looks for slowness: enough to tell shares that differ by a third from chance (``classify.slow_limits``)."""
SLOW_INTERVAL: Final = 0.5
"""Seconds between two of these, on average."""
LEAST: Final = 3
"""Looks that show a beginning, an end and something in between."""
TIMEOUT: Final = 20.0
"""Seconds that one look may take."""
