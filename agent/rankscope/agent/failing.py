"""One of the workers has failed: what is seen of the others, which failure was the first, and what follows.

Evidence is taken in a thread within its budget; the decision is made in the main thread whatever became of
that, and stored before anything is stopped. It must not know how it is carried out.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final

from rankscope.agent.ending.looks import with_exits
from rankscope.agent.ending.order import Evidence
from rankscope.agent.failures import Failure, choose_root, other_failures, read_ends
from rankscope.agent.failures.struck import is_by_stop_signal
from rankscope.agent.session import Session
from rankscope.agent.workers.ends import WorkerEnds
from rankscope.diag.model import Decision, Diagnosis, ExitFacts, JobSnapshot

logger = logging.getLogger(__name__)
_RAISED_WAIT: Final = 2.0
_SIGNAL_GRACE: Final = 0.4
"""Seconds for the agent's own signal to come, when workers ended as if they had been sent one before it."""
_PAUSE: Final = 0.02
_NOT_SEEN: Final = "there was no time to look at it before the workers were stopped"


class Failing:
    """The failure of one launch.

    Args:
        session: records, watches and decides.
        ends: tells how workers ended.
        last_look: makes the look at workers that end of the agent's own signal.

    Attributes:
        failure: the root, once it is known.
        decision: what follows, ``None`` when that is not decided here.
    """

    def __init__(self, session: Session, ends: WorkerEnds, last_look: Callable[[str], Evidence]) -> None:
        self._session = session
        self._ends = ends
        self._last_look = last_look
        self._judged: tuple[JobSnapshot, Diagnosis] | None = None
        self._stopped_by: signal.Signals | None = None
        self.failure: Failure | None = None
        self.decision: Decision | None = None

    def take_evidence(self, deadline: float) -> None:
        """Look at those that live, and judge it (thread of the last look)."""
        session = self._session
        session.ledger.enter("collection")
        patience = _RAISED_WAIT if self._ends.has_raised() else 0.0
        raised = session.watch.wait_for_raised(min(patience, max(0.0, deadline - time.monotonic())))
        exits = self._ends.facts()
        snapshot = with_exits(raised, exits) if raised else session.looks.snapshot(exits, deadline=deadline)
        if snapshot is None:
            return
        if self._is_stopped(exits, deadline):
            sent = self._stopped_by
            self._last_look(sent.name if sent is not None else "")(deadline)
            return
        session.ledger.enter("analysis")
        self._judged = snapshot, session.looks.judge(snapshot)

    def decide(self) -> None:
        """Find the root, record it, decide and store the decision (main thread); never raises."""
        try:
            self._decide()
        except Exception:  # in torch's close: an error here would keep the workers from being ended
            logger.exception("rankscope could not decide about the failure; torch's own rule holds")

    def _decide(self) -> None:
        session = self._session
        exits = self._ends.facts()
        if self._stopped_by is not None or self._is_stopped(exits, time.monotonic() + _SIGNAL_GRACE):
            return
        done = session.done()
        words = read_ends(
            self._ends.ends(),
            keywords=session.retryable_errors,
            exit_codes=session.settings.retryable_exit_codes,
        )
        self.failure = choose_root(words)
        diagnosis = self._diagnosis(exits)
        if diagnosis is None:
            return
        others = other_failures(words, self.failure)
        session.ledger.workers_failed(diagnosis.incident, exits, root=self.failure, others=others)
        session.parting.found(diagnosis)
        self.decision = session.decider.on_failure(diagnosis, self.failure, done)
        if self.decision.action == "restart":
            session.restart_clock.begin()

    def _diagnosis(self, exits: Mapping[int, ExitFacts]) -> Diagnosis | None:
        """What is known of it all, once the root is known; ``None`` without workers."""
        looks = self._session.looks
        seen, judged = self._judged or (looks.unseen(_NOT_SEEN, exits), None)
        return None if seen is None else looks.judge_failure(seen, exits, self.failure, judged=judged)

    def _is_stopped(self, exits: Mapping[int, ExitFacts], deadline: float) -> bool:
        """Whether all ends are of the signal that stops the agent; waits a moment for it if they look so."""
        signals = self._session.signals
        seems_sent = any(is_by_stop_signal(end.code) for end in exits.values())
        seems_sent = seems_sent or not self._ends.is_any_alive()
        limit = min(deadline, time.monotonic() + _SIGNAL_GRACE) if seems_sent else 0.0
        while signals.first is None and time.monotonic() < limit:
            time.sleep(_PAUSE)
        if signals.first is None or self._session.looks.ends(exits).causes:
            return False
        self._stopped_by = signals.first[1]
        return True
