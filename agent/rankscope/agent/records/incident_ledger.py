"""What the agent writes down of silences and slowness: suspicions, verdicts, and that they are over.

A part of the ``Ledger``. It neither judges nor decides: each event says what was found by others.
"""

from __future__ import annotations

import time

from rankscope.agent.records.launch_ledger import LaunchLedger
from rankscope.diag.classify import Slowdown
from rankscope.diag.model import Diagnosis
from rankscope.watchdog.observations import Confirmed, Suspected


class IncidentLedger(LaunchLedger):
    """The incidents of one agent's launches."""

    def suspected(self, incident: str, suspected: Suspected) -> None:
        """A suspicion opened an incident, or goes over one again: whose limit was passed, in figures."""
        self.cycles.silent(time.monotonic(), seconds=suspected.seconds)
        data: dict[str, object] = {
            "reason": suspected.reason,
            "clock": suspected.clock,
            "seconds": round(suspected.seconds, 3),
            "limit": round(suspected.limit, 3),
            "ranks": list(suspected.suspects),
            "waiting": list(suspected.waiting),
            "behaviour": suspected.sink_class,
        }
        self._records.event("suspected", data, subject=incident)

    def stopped(self, seconds: float, *, continued: bool) -> None:
        """All workers were stopped by a signal, or continued: information, not a suspicion."""
        what = "continued" if continued else "stopped by a signal"
        data: dict[str, object] = {"content": f"all workers {what}", "seconds": round(seconds, 3)}
        self._records.event("message", data)

    def cleared(self, incident: str | None, reason: str, seconds: float) -> None:
        """A suspicion was dropped after ``seconds`` without progress."""
        self.cycles.cleared()
        data: dict[str, object] = {"reason": reason, "seconds": round(seconds, 3)}
        self._records.event("cleared", data, subject=incident)

    def confirmed(self, diagnosis: Diagnosis, confirmed: Confirmed, seconds: float) -> None:
        """A diagnosis was published after ``seconds`` without progress."""
        self.enter("analysis")
        data: dict[str, object] = {
            **found(diagnosis),
            "reason": confirmed.reason,
            "seconds": round(seconds, 3),
        }
        self._records.event("incident.confirmed", data, subject=diagnosis.incident)

    def recovered(self, incident: str | None, seconds: float) -> None:
        """A published hang went away by itself after ``seconds``."""
        self.cycles.recovered(time.monotonic())
        self._records.event("incident.recovered", {"seconds": round(seconds, 3)}, subject=incident)

    def slow(self, diagnosis: Diagnosis, slowdown: Slowdown | None, seconds: float) -> None:
        """Something is slow; or steps take longer, and the verdict is that nobody holds the job up.

        Args:
            diagnosis: what was found.
            slowdown: how much longer steps take than usual, ``None`` when they do not.
            seconds: since steps take longer, 0 when they do not.
        """
        data: dict[str, object] = {
            **found(diagnosis),
            "seconds": round(seconds, 3),
        }
        if diagnosis.culprits:
            data["since_step"] = diagnosis.since_step
        if slowdown is not None:
            data |= {
                "pace_since_step": slowdown.since_step,
                "step_seconds": round(slowdown.now, 6),
                "usual_step_seconds": round(slowdown.before, 6),
            }
        subject = diagnosis.incident if diagnosis.verdict not in ("Healthy", "Unknown") else None
        self._records.event("slow", data, subject=subject)

    def slow_no_more(self, incident: str | None, reason: str) -> None:
        """What was told to be slow is so no more."""
        self._records.event("incident.recovered", {"reason": reason}, subject=incident)

    def stopping(
        self, why: str, incident: str | None, diagnosis: Diagnosis | None = None, *, silent: float = 0.0
    ) -> None:
        """Workers are about to be stopped for no fault of their own.

        Args:
            why: what stops them.
            incident: where the evidence is.
            diagnosis: how they were doing, ``None`` when the incident was there before.
            silent: seconds without progress.
        """
        self._cycle_because(why, incident)
        data: dict[str, object] = {"reason": why}
        if diagnosis is not None:
            data |= {"verdict": diagnosis.verdict, "summary": diagnosis.summary, "seconds": round(silent, 3)}
        self._records.event("stopping", data, subject=incident)


def found(diagnosis: Diagnosis) -> dict[str, object]:
    """What events say of a diagnosis."""
    return {
        "verdict": diagnosis.verdict,
        "kind": diagnosis.kind,
        "culprits": list(diagnosis.culprits),
        "severity": diagnosis.severity,
        "confidence": diagnosis.confidence,
        "summary": diagnosis.summary,
    }
