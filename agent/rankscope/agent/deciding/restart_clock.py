"""How long a restart may take (``--job-restart-timeout``): from the decision to running workers.

It must not know what is done about a restart that took too long.
"""

from __future__ import annotations

import time


class RestartClock:
    """Runs while a restart is under way; any thread may ask.

    Args:
        limit: seconds that a restart may take, ``None`` for as long as it takes.
    """

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self._began: float | None = None

    def begin(self) -> None:
        """A restart was decided on; does nothing while one is under way."""
        if self._began is None:
            self._began = time.monotonic()

    def end(self) -> None:
        """The workers run, or the job ends."""
        self._began = None

    @property
    def taken(self) -> float:
        """Seconds since it was decided, 0 when none is under way."""
        return time.monotonic() - self._began if self._began is not None else 0.0

    @property
    def left(self) -> float | None:
        """Seconds that are left, never negative; ``None`` when there is no limit or no restart."""
        if self.limit is None or self._began is None:
            return None
        return max(0.0, self.limit - self.taken)
