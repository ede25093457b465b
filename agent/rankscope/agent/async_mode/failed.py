"""A failed worker of its own: its last words and log are stored, its failure is named, then it is decided.

Nobody else is looked at, let alone stopped for a moment. It must not know how a worker is started or ended.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from rankscope.agent.ending.order import Ending
from rankscope.agent.ending.signals import StopSignals
from rankscope.agent.failures import Failure, WorkerEnd, as_failure, read_ends
from rankscope.agent.failures.struck import is_by_stop_signal, split_ends
from rankscope.agent.session import Session
from rankscope.agent.workers.model import WorkerRef
from rankscope.diag.model import Decision, Diagnosis, ExitFacts

_SIGNAL_GRACE: Final = 0.4
"""Seconds for the agent's own signal to come when a worker ended as if it had been sent one."""
_PAUSE: Final = 0.02
_TO_READ: Final = 1.0
"""Seconds for the end of its log: the main thread waits for it, the other workers do not."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done, stored already.

    Attributes:
        decision: ``restart``, or the job ends.
        failure: how the worker failed.
        of_all: whether all workers are restarted.
    """

    decision: Decision
    failure: Failure
    of_all: bool


def judge(worker: WorkerRef, facts: ExitFacts, end: WorkerEnd, session: Session) -> Verdict:
    """Store what is known of a failed worker, then the decision about it; both are said.

    Args:
        worker: its process.
        facts: how it ended, for the evidence.
        end: the same, for naming the failure.
        session: records and decides.
    """
    diagnosis = _evidence(worker, facts, session)
    incident = diagnosis.incident if diagnosis is not None else None
    failure = _failure(end, session)
    session.ledger.workers_failed(incident, {worker.rank: facts}, root=failure)
    if diagnosis is not None:
        session.parting.found(diagnosis)
    decision, of_all = session.decider.on_worker_failure(failure, incident=incident)
    return Verdict(decision, failure, of_all=of_all)


def is_of_the_end(rank: int, facts: ExitFacts, signals: StopSignals) -> bool:
    """Whether a worker ended of what stops the agent: whoever stops a job may signal its workers first.

    Waits a moment for the agent's own signal when the worker seems to have been sent one.
    """
    limit = time.monotonic() + (_SIGNAL_GRACE if is_by_stop_signal(facts.code) else 0.0)
    while signals.first is None and time.monotonic() < limit:
        time.sleep(_PAUSE)
    first = signals.first
    ago = time.monotonic() - first[0] if first is not None else None
    return not split_ends({rank: facts}, signalled_ago=ago).causes


def _evidence(worker: WorkerRef, facts: ExitFacts, session: Session) -> Diagnosis | None:
    """An incident with this one rank in it; ``None`` without a budget, or when it was too slow."""
    budget = session.settings.evidence_budget
    found: list[Diagnosis] = []

    def take(deadline: float) -> None:
        snapshot = session.looks.snapshot({worker.rank: facts}, deadline=deadline, workers=[worker])
        if snapshot is not None:
            found.append(session.looks.judge(snapshot))

    if budget > 0:
        ending = Ending((), as_groups=False, signals=session.signals, stopping=lambda: None)
        ending.take_evidence(take, budget=budget)
    return found[0] if found else None


def _failure(end: WorkerEnd, session: Session) -> Failure:
    (words,) = read_ends(
        [end],
        keywords=session.retryable_errors,
        exit_codes=session.settings.retryable_exit_codes,
        timeout=_TO_READ,
    )
    return as_failure(words)
