"""The end of the workers of one launch: evidence first, once and within its budget, then they are stopped.

Whoever comes first carries it out: the main thread inside torch's process context, or, when that does not
turn, the thread that hears signals; the other one waits. It must not know what the evidence is nor what it
says.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Final

from rankscope.agent.ending.signals import StopSignals
from rankscope.agent.workers.model import WorkerRef
from rankscope.agent.workers.stopping import HURRIED_AT, stop_processes

logger = logging.getLogger(__name__)
Evidence = Callable[[float], None]
"""Takes evidence; told when it must be done (monotonic seconds)."""
_PAUSE: Final = 0.02


class Ending:
    """How the workers of one launch end.

    Args:
        workers: the processes.
        as_groups: whether each leads a process group of its own.
        signals: those that come meanwhile.
        stopping: called between evidence and the first signal.

    Attributes:
        evidence_taken: whether what there is to know has been stored, or has been given up.
        left: workers that could not be ended.
    """

    def __init__(
        self,
        workers: tuple[WorkerRef, ...],
        *,
        as_groups: bool,
        signals: StopSignals,
        stopping: Callable[[], None],
    ) -> None:
        self._workers = workers
        self._as_groups = as_groups
        self._signals = signals
        self._stopping = stopping
        self._lock = threading.Lock()
        self._stopped = False
        self._last_look: threading.Thread | None = None
        self._seen = threading.Event()
        self.evidence_taken = False
        self.left: tuple[WorkerRef, ...] = ()

    def take_evidence(self, take: Evidence, *, budget: float) -> None:
        """Take evidence, unless it has been; returns after ``budget`` seconds at the latest.

        A further signal ends the wait: whoever asks twice is in a hurry.
        """
        with self._lock:
            self._take(take, budget)

    def stop(
        self,
        take: Evidence | None,
        *,
        budget: float,
        death_sig: signal.Signals,
        timeout: float,
        decide: Callable[[], None] = lambda: None,
    ) -> None:
        """Take evidence unless it has been taken, and end the workers, once.

        Args:
            take: takes it, ``None`` when there is none to take.
            budget: seconds that it may take.
            decide: called after that and before anything is stopped; must not raise.
            death_sig: what the workers get first.
            timeout: seconds until they get SIGKILL.
        """
        with self._lock:
            if self._stopped:
                return
            if take is not None:
                self._take(take, budget)
            decide()
            self._stopping()
            self.left = stop_processes(
                self._workers,
                death_sig=death_sig,
                timeout=timeout,
                as_groups=self._as_groups,
                askings=self._signals.askings,
            )
            self._stopped = True

    def _take(self, take: Evidence, budget: float) -> None:
        if self.evidence_taken:
            return
        self.evidence_taken = True
        began = time.monotonic()

        def look() -> None:
            try:
                take(began + budget)
            except Exception:  # the thread's edge
                logger.exception("rankscope could not take evidence before the workers are stopped")

        thread = threading.Thread(target=look, name="rankscope-last-look", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the host has no room for another thread
            logger.warning("no thread can be started to look at the workers; they are stopped all the same")
            return
        self._last_look = thread
        while thread.is_alive() and not self._seen.is_set() and time.monotonic() < began + budget:
            thread.join(_PAUSE)
            if self._signals.askings() >= HURRIED_AT:
                break
        if thread.is_alive() and not self._seen.is_set():
            logger.warning("the last look at the workers is not done; they are stopped all the same")

    def enough(self) -> None:
        """All is seen; to judge and store it the workers are not needed (any thread)."""
        self._seen.set()

    def finish(self, timeout: float) -> None:
        """Wait for a last look that was not waited for, ``timeout`` seconds at most."""
        if self._last_look is not None:
            self._last_look.join(timeout)
