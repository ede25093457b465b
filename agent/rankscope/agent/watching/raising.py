"""A worker that is raising waits a moment for us: its evidence is taken while all others still live.

Between the watch thread, which hears of it, the collector's, which looks, and the main thread, which waits
for the look. It must not know what becomes of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from rankscope.agent.evidence.taker import EvidenceTaker
from rankscope.agent.observing.observer import Observer
from rankscope.agent.watching.collector import Collector
from rankscope.agent.workers.model import Launch
from rankscope.diag.model import ExitFacts, JobSnapshot
from rankscope.watchdog.page import PageReader

_RAISED_EVIDENCE: Final = 1.5
"""Seconds; a raising worker waits at most two."""


class Raising:
    """The look at the first worker of a launch that raises.

    Args:
        evidence: takes it.
        collector: does so.
        ended: ranks that have ended, and how.
        holds: whether a raising worker waits for its evidence.
    """

    def __init__(
        self,
        evidence: EvidenceTaker,
        collector: Collector,
        *,
        ended: Callable[[], dict[int, ExitFacts]],
        holds: bool,
    ) -> None:
        self._evidence = evidence
        self._collector = collector
        self._ended = ended
        self._holds = holds
        self._page: PageReader | None = None
        self._seen: JobSnapshot | None = None
        self._done = threading.Event()

    def begin(self, page: PageReader | None) -> None:
        """New workers run, with this page (watch thread)."""
        self._page = page
        self._seen = None
        self._done.clear()
        if page is not None:
            page.want_hold(self._holds)

    def end(self) -> None:
        """The workers are being stopped (watch thread)."""
        self._page = None

    def wait(self, timeout: float) -> JobSnapshot | None:
        """The snapshot, if one is there or comes within ``timeout`` seconds."""
        return self._seen if self._done.wait(timeout) else None

    def raised(self, pid: int, launch: Launch, observer: Observer) -> None:
        """A worker raises: have all of them looked at (watch thread)."""
        page = self._page
        if page is None or observer.worker_of(pid) is None:
            return
        page.want_hold(False)

        def take() -> None:
            try:
                self._seen = self._evidence.snapshot(
                    launch, observer, timeout=_RAISED_EVIDENCE, exits=self._ended()
                )
            finally:
                self._done.set()
                for other in launch.workers:
                    page.answer(other.local_rank, time.monotonic_ns())

        self._collector.put(take, urgent=True)
