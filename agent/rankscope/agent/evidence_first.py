"""Torch's agent, with workers that are never ended before their evidence is taken; half of ``elastic``.

torch kills the surviving workers inside the very poll that finds a failure, so the process context's
``_close`` is a seam (decision 0009), with ``_shutdown``. What the evidence says, and
what follows from a failure, is found out in ``failing`` before the others are stopped. It must not know what
is carried out then.
"""

# torch's @prof is an untyped decorator: pyright takes the methods it wraps for variables.
# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, Final

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsSpecs, PContext

from rankscope.agent.ending.order import Ending, Evidence
from rankscope.agent.failing import Failing
from rankscope.agent.logs.specs import close_writing_ends
from rankscope.agent.own_session import session_for
from rankscope.agent.session import Session
from rankscope.agent.workers.ends import WorkerEnds
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.agent.workers.process_context import function_processes, leads_groups, let_go
from rankscope.diag.model import Diagnosis

_SHUTDOWN_TIMEOUT: Final = 30
_LAST_WRITE: Final = 2.0
"""Seconds at the end for a last look that was not waited for before the workers were stopped."""


class EvidenceFirstAgent(LocalElasticAgent):
    """An elastic agent that takes evidence before anything is stopped, and stops in bounded time.

    Args:
        spec: torch's worker spec.
        logs_specs: torch's or ours.
        session: records, watches and decides; without one it makes one when it first needs it.
        kwargs: everything else torch's agent takes.
    """

    def __init__(
        self, spec: WorkerSpec, logs_specs: LogsSpecs, *, session: Session | None, **kwargs: Any
    ) -> None:
        super().__init__(spec, logs_specs, **kwargs)
        self._owns_session = session is None
        self._polling = False
        self._ending: Ending | None = None
        self._failing: Failing | None = None
        self._why = ""
        if session is not None:
            self._session = session
            self._join(session)

    @cached_property
    def _session(self) -> Session:
        """The session of an agent that was given none: its constructor does no more than torch's."""
        self._session = session = session_for(self._worker_group.spec)
        self._join(session)
        return session

    def _join(self, session: Session) -> None:
        """Take up work with a session."""
        self._ends = WorkerEnds(
            session.current,
            lambda: self._pcontext,
            node=session.records.node,
            role=self._worker_group.spec.role,
        )
        session.exit_codes = self._ends.reaped
        session.beside_main.end_workers = self._end_workers_beside_main

    def _mind_the_end(self, launch: Launch) -> None:
        """From here on whoever ends these workers takes evidence first."""
        if self._pcontext is None:
            return
        close_writing_ends(self._pcontext)
        self._ending = Ending(
            launch.workers,
            as_groups=leads_groups(self._pcontext),
            signals=self._session.signals,
            stopping=self._session.workers_stopping,
        )
        self._failing = Failing(self._session, self._ends, self._last_look)
        self._take_evidence_before_close(self._pcontext)

    def _finish_last_look(self) -> None:
        """Wait a moment for a last look that was not waited for before."""
        if self._ending is not None:
            self._ending.finish(_LAST_WRITE)

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, timeout: int | None = None, **_kwargs: Any
    ) -> None:
        """Stop the workers; the timer pipe and the health server outlive them.

        torch's ``_stop_workers`` gives no time-out and means 30 s; here that is ``--shutdown-timeout``.
        """
        seconds: int = getattr(self, "_shutdown_timeout", _SHUTDOWN_TIMEOUT) if timeout is None else timeout
        if "_session" in self.__dict__:  # torch's own methods may be called on an agent that never ran
            self._session.signals.acting()
            if self._pcontext is not None:
                self._session.phase("stopping", self._session.settings.evidence_budget + 2.0 * seconds)
        if self._pcontext is not None:
            self._pcontext.close(death_sig, seconds)

    def _take_evidence_before_close(self, pcontext: PContext) -> None:
        """Whoever closes the process context, evidence comes first: once, and never in the way."""
        close = pcontext._close  # noqa: SLF001 - a seam (decision 0009)

        def close_after_evidence(death_sig: signal.Signals, timeout: int = _SHUTDOWN_TIMEOUT) -> None:
            with self._session.signals.hold():
                self._end_workers(pcontext, death_sig, timeout)
                if not self._left():
                    close(death_sig=death_sig, timeout=timeout)

        def terminate_after_evidence(terminate: Callable[[], None]) -> None:
            with self._session.signals.hold():
                self._end_workers(pcontext, signal.SIGTERM, _SHUTDOWN_TIMEOUT)
                if not self._left():
                    terminate()

        # Workers that are functions are terminated inside torch.multiprocessing's own join.
        for process in function_processes(pcontext):
            process.terminate = partial(terminate_after_evidence, process.terminate)
        pcontext._close = close_after_evidence  # type: ignore[method-assign]  # noqa: SLF001

    def _end_workers(self, pcontext: PContext, death_sig: signal.Signals, timeout: float) -> None:
        """Evidence, then the end of this launch's workers; does nothing the second time."""
        if self._polling:
            # torch's poll does not know of --shutdown-timeout.
            timeout = getattr(self, "_shutdown_timeout", timeout)
        decide = self._decide_on_failure if self._is_failing() else None
        self._stop(self._evidence_due(death_sig), death_sig, timeout, decide=decide)
        if left := self._left():
            let_go(pcontext, [worker.pid for worker in left])

    def _end_workers_beside_main(self, sent: signal.Signals) -> None:
        """The main thread does not answer a signal: end the workers without it (the signals' thread)."""
        timeout = getattr(self, "_shutdown_timeout", _SHUTDOWN_TIMEOUT)
        self._stop(self._last_look(sent.name) if self._may_look() else None, sent, timeout)
        self._finish_last_look()

    def _stop(
        self,
        take: Evidence | None,
        death_sig: signal.Signals,
        timeout: float,
        *,
        decide: Callable[[], None] | None = None,
    ) -> None:
        if self._ending is None:
            return
        told = self._ending.left
        budget = self._session.settings.evidence_budget
        self._ending.stop(
            take, budget=budget, death_sig=death_sig, timeout=timeout, decide=decide or _nothing
        )
        self._ending.left += self._session.nested.end_left()
        if self._ending.left and not told:
            self._session.parting.workers_left(self._ending.left)

    def _left(self) -> tuple[WorkerRef, ...]:
        return self._ending.left if self._ending is not None else ()

    # Evidence before the end.

    def _is_failing(self) -> bool:
        """Whether torch's poll has found a failure that nobody has dealt with."""
        if not self._polling or self._ending is None or self._ending.evidence_taken:
            return False
        return any(end.code != 0 for end in self._ends.facts().values())

    def _record_failure(self, deadline: float) -> None:
        """One of the workers failed: evidence of the others."""
        if self._failing is not None:
            self._failing.take_evidence(deadline)

    def _decide_on_failure(self) -> None:
        """One of the workers failed: what follows, stored before the others are stopped."""
        if self._failing is not None:
            self._failing.decide()

    def _look_now(self) -> Diagnosis | None:
        """Evidence of workers that are not being stopped yet, ``None`` when there is none in time."""
        found: list[Diagnosis] = []

        def take(deadline: float) -> None:
            snapshot = self._session.looks.snapshot({}, deadline=deadline)
            if snapshot is not None:
                found.append(self._session.looks.judge(snapshot))

        budget = self._session.settings.evidence_budget
        if self._ending is not None and budget > 0:
            with self._session.signals.hold():
                self._ending.take_evidence(take, budget=budget)
        return found[0] if found else None

    def _may_look(self) -> bool:
        wanted = self._session.settings.evidence_budget > 0
        if not wanted or self._ending is None or self._ending.evidence_taken:
            return False
        # Who signals the workers as well may have ended them before us: what they wrote last is still there.
        return not self._ends.are_all_done()

    def _evidence_due(self, death_sig: signal.Signals) -> Evidence | None:
        """What is to be known of the workers before they are stopped, ``None`` for nothing."""
        if not self._may_look():
            return None
        if self._polling:
            return self._record_failure
        error = sys.exc_info()[1]
        if self._session.signals.ending:
            return self._last_look(death_sig.name)
        if error is not None:
            return self._last_look(f"an error of the agent ({type(error).__name__}: {error})")
        watch = self._session.watch
        # A new node stops a healthy job; that is no incident.
        silent = watch.suspected or watch.judging or watch.stored_incident
        return self._last_look(self._why) if silent else None

    def _last_look(self, why: str) -> Evidence:
        ending = self._ending
        return partial(
            self._session.parting.last_look,
            why,
            exits=self._ends.facts,
            enough=ending.enough if ending is not None else _nothing,
        )


def _nothing() -> None:
    return
