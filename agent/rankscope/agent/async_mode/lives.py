"""Where each independent worker is: runs, waits for its next start, is done, or is lost. Pure: times come in.

It must not know of processes, nor why a worker may or may not be started again (``policy``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

QUICK: Final = 10.0
"""Seconds; a worker that fails within them gets a pause before its next start. Longer than importing torch
takes on a busy machine (2-8 s here), shorter than any work worth restarting at once for."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds before the next start of a worker that fails at once; doubled with each such failure in a row."""

State = Literal["running", "waiting", "done", "lost"]


@dataclass(frozen=True, slots=True)
class Life:
    """One worker.

    Attributes:
        state: ``waiting`` for its next start, ``done`` when it ended with 0, ``lost`` when it ends the job.
        restarts: how often it has been started again, the start that it waits for included.
        since: when it was started last (monotonic seconds, as all times here).
        ended: when it ended last.
        due: when it is to be started again.
        quick: failures in a row that came within ``QUICK`` seconds of a start.
    """

    since: float
    state: State = "running"
    restarts: int = 0
    ended: float = 0.0
    due: float = 0.0
    quick: int = 0

    def done(self, now: float) -> Life:
        """It ended with 0."""
        return replace(self, state="done", ended=now)

    def lost(self, now: float) -> Life:
        """It failed for good."""
        return replace(self, state="lost", ended=now)

    def failed(self, now: float) -> Life:
        """It failed and will be started again: at once if it had run for a while, else after a pause."""
        quick = self.quick + 1 if now - self.since < QUICK else 0
        return replace(
            self, state="waiting", restarts=self.restarts + 1, ended=now, due=now + pause(quick), quick=quick
        )

    def started(self, now: float) -> Life:
        """It runs again."""
        return replace(self, state="running", since=now)


def pause(quick: int) -> float:
    """Seconds before the next start, after so many quick failures in a row."""
    if quick == 0:
        return 0.0
    # An exponent of any size would overflow a float.
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(quick - 1, 16))


def due(lives: Mapping[int, Life], now: float) -> list[int]:
    """The workers whose next start has come, longest overdue first."""
    waiting = [(life.due, key) for key, life in lives.items() if life.state == "waiting" and life.due <= now]
    return [key for _due, key in sorted(waiting)]


def all_done(lives: Iterable[Life]) -> bool:
    """Whether every worker has ended with 0."""
    return all(life.state == "done" for life in lives)
