"""How long a test waits for what must happen: long enough for a machine on which eight others work too."""

from typing import Final

DEADLINE: Final = 300.0
"""Seconds until anything that a test waits for has happened; the slowest job takes 30 s on two idle cores."""
LONGEST: Final = 1200
"""Seconds until an integration test, its fixtures included, is given up; they wait for several things."""
