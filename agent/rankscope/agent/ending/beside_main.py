"""Ends the job without the main thread, which may wait in torch for a store or for other nodes.

Three things ask for it: a signal that nobody acts on, a restart that has outlasted its limit, and a decision
that nobody carries out. It must not know how workers or the process end.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import Final

from rankscope.agent.deciding.decider import Decider
from rankscope.agent.deciding.restart_clock import RestartClock
from rankscope.agent.ending.signals import StopSignals

logger = logging.getLogger(__name__)
_LATE: Final = 10.0
"""Seconds past the limit of a restart that the main thread has to act on it before somebody else does."""
_NOT_TAKEN: Final = 60.0
"""Seconds for the main thread to come for what was decided; its loop turns every few seconds at most."""


class BesideMain:
    """Ends things in the main thread's place.

    Args:
        signals: those that end the agent.
        clock: of restarts.
        decider: decides about one that took too long.
        say: shows a line.

    Attributes:
        end_workers: ends the workers; set by the agent.
        abandon: ends the process, told with which result; set by whoever owns the process.
    """

    def __init__(
        self, *, signals: StopSignals, clock: RestartClock, decider: Decider, say: Callable[[str], None]
    ) -> None:
        self._signals = signals
        self._clock = clock
        self._decider = decider
        self._say = say
        self._is_ending = False
        self.end_workers: Callable[[signal.Signals], None] | None = None
        self.abandon: Callable[[str], None] | None = None

    def on_signal(self, sent: signal.Signals) -> None:
        """A signal came, and the main thread does not act on it (signals' thread)."""
        self._say(
            f"{sent.name} came, and the main thread does not answer: it waits in torch, for a store that "
            "does not answer or for other nodes; the job ends without it"
        )
        self._end_workers(sent)
        if self.abandon is not None and not self._signals.is_acted_on:
            self.abandon(f"stopped by {sent.name}")

    def look_at_restart(self) -> None:
        """End the job if a restart takes too long, and the main thread leaves it at that (watch thread)."""
        limit = self._clock.limit
        if limit is None or self.abandon is None or self._clock.taken < limit + _LATE:
            return
        self._decider.on_restart_timeout(self._clock.taken, limit)
        self._clock.end()
        threading.Thread(target=self._end_job, name="rankscope-late-restart", daemon=True).start()

    def look_at_due(self, action: str, seconds: float) -> None:
        """End the job if what was decided ``seconds`` ago is not carried out (watch thread)."""
        if self.abandon is None or self._is_ending or seconds < _NOT_TAKEN:
            return
        self._is_ending = True
        self._decider.on_stuck_agent(action, seconds)
        threading.Thread(target=self._end_job, name="rankscope-not-carried-out", daemon=True).start()

    def _end_job(self) -> None:
        self._end_workers(signal.SIGTERM)
        if self.abandon is not None:
            self.abandon("failed")

    def _end_workers(self, sent: signal.Signals) -> None:
        """End the workers; the process ends whatever becomes of that."""
        if self.end_workers is None:
            return
        try:
            self.end_workers(sent)
        except Exception:  # the thread's edge; the process must end all the same
            logger.exception("rankscope could not end the workers beside the main thread")
