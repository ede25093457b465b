"""What the watch thread finds, recorded and said: the part that the agent and a watch beside a job share.

What is done about it is for those who derive from it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.telling.bulletin import Bulletin
from rankscope.agent.watching.reporter import Reporter
from rankscope.diag.classify import Slowdown
from rankscope.diag.model import Diagnosis, Severity
from rankscope.watchdog.observations import Cleared, Confirmed, Recovered, Suspected


class Announcer(Reporter, ABC):
    """Records and says what was found.

    Attributes:
        records: where incidents are stored.
        ledger: where events are.
        bulletin: keeps the last diagnosis.
    """

    records: Records
    ledger: Ledger
    bulletin: Bulletin

    @abstractmethod
    def tell(self, text: str) -> None:
        """Say something to the person who reads along."""

    def is_shown(self, severity: Severity) -> bool:  # noqa: ARG002 - for those who derive
        """Whether what has this severity is told; it is recorded all the same."""
        return True

    def on_suspected(self, incident: str, suspected: Suspected) -> None:
        """Record a suspicion; nothing is shown yet."""
        self.ledger.suspected(incident, suspected)

    def on_stopped(self, *, seconds: float, continued: bool) -> None:
        """Say that somebody has stopped the whole job by a signal, or continued it."""
        if continued:
            self.tell(f"all ranks here run again; they had been stopped by a signal for {seconds:.0f} s")
        else:
            self.tell("all ranks here are stopped by a signal (state T): no hang, the clocks stand still")
        self.ledger.stopped(seconds, continued=continued)

    def on_cleared(self, incident: str, cleared: Cleared) -> None:
        """Record that a suspicion was dropped."""
        self.ledger.cleared(incident, cleared.reason, cleared.gap)

    def on_diagnosed(self, diagnosis: Diagnosis, confirmed: Confirmed) -> None:
        """Record and show a diagnosis; one that says that all is well only clears the suspicion."""
        silent = time.monotonic() - confirmed.since
        if diagnosis.verdict == "Healthy":
            self.ledger.cleared(diagnosis.incident, diagnosis.summary, silent)
            return
        self.bulletin.last = diagnosis
        self.ledger.confirmed(diagnosis, confirmed, silent)
        if self.is_shown(diagnosis.severity):
            self.tell(self.bulletin.announcement(diagnosis, silent, self.stored_at(diagnosis)))

    def on_recovered(self, diagnosis: Diagnosis, recovered: Recovered) -> None:
        """Say that a published hang is over."""
        self.ledger.recovered(diagnosis.incident, recovered.gap)
        self.tell(f"recovered by itself after {recovered.gap:.0f} s without progress")

    def on_slow(self, diagnosis: Diagnosis, slowdown: Slowdown | None, *, seconds: float) -> None:
        """Record what is slow, and show it; that steps take longer on all ranks alike is only recorded."""
        self.ledger.slow(diagnosis, slowdown, seconds)
        if diagnosis.verdict == "Healthy":
            return
        self.bulletin.last = diagnosis
        if self.is_shown(diagnosis.severity):
            self.tell(self.bulletin.slow(diagnosis, slowdown, self.stored_at(diagnosis)))

    def on_slow_no_more(self, diagnosis: Diagnosis, reason: str) -> None:
        """Say that what was slow is over."""
        self.ledger.slow_no_more(diagnosis.incident, reason)
        if self.is_shown(diagnosis.severity):
            self.tell(f"{reason}; it was: {diagnosis.summary}")

    def stored_at(self, diagnosis: Diagnosis) -> str:
        """Where a diagnosis lies on disk, ``""`` when it does not."""
        if diagnosis.incident is None or not self.records.is_stored(diagnosis.incident):
            return ""
        return str(self.records.incident(diagnosis.incident).path)
