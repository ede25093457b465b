"""Torch's agent, which does what was decided: restart, fail, leave the job; a part of ``elastic``.

Seams (torch 2.13): ``_initialize_workers`` and ``_restart_workers``. What ``_monitor_workers`` returns, and
``_remaining_restarts``, make torch's loop do it. It must not know how a decision came about (``session``).
"""

# torch's @prof is an untyped decorator: pyright takes the methods it wraps for variables.
# pyright: reportIncompatibleVariableOverride=false, reportCallIssue=false

from __future__ import annotations

from typing import Any, Final, NoReturn

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.multiprocessing import LogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from rankscope.agent.evidence_first import EvidenceFirstAgent
from rankscope.agent.failures import Failure
from rankscope.agent.rendezvous.leaving import hosts_store, leave_rendezvous, wait_until_over
from rankscope.agent.rendezvous.store import inner_of
from rankscope.agent.session import Session
from rankscope.agent.workers.outcomes import (
    NodeLeavesError,
    RestartTimedOutError,
    failures_of,
    with_root_first,
)
from rankscope.diag.model import Decision

_MEMBERSHIP: Final = "a change of the membership"
_RULING_WAIT: Final = 2.0
"""Seconds for a ruling to come by which another node has stopped its workers, and waits for this one."""


class DecidedAgent(EvidenceFirstAgent):
    """An elastic agent that carries out decisions; its arguments are ``EvidenceFirstAgent``'s."""

    def __init__(
        self, spec: WorkerSpec, logs_specs: LogsSpecs, *, session: Session | None, **kwargs: Any
    ) -> None:
        super().__init__(spec, logs_specs, session=session, **kwargs)
        self._restarting: tuple[Decision, Failure | None] | None = None
        self._allowed = 0

    def _join(self, session: Session) -> None:
        super()._join(session)
        session.decider.nodes_have_room = self._have_room
        self._allowed = session.decider.restarts_allowed

    def _have_room(self) -> bool:
        """Whether the job goes on with a node less."""
        settings = getattr(inner_of(self._rdzv_handler), "settings", None)
        least: int | None = getattr(settings, "min_nodes", None)
        return least is not None and (self._worker_group.group_world_size or 0) > least

    def _carry_out(self, decision: Decision, worker_group: WorkerGroup) -> RunResult:
        """A decision about workers whose evidence is on disk already."""
        if self._ending is not None:
            self._ending.evidence_taken = True
        if decision.action == "restart":
            self._have_restarted(decision, None)
            return RunResult(state=WorkerState.UNHEALTHY)
        if decision.action == "isolate":
            self._leave(decision, worker_group)
        # UNHEALTHY without restarts left would end with exit code 0 in torch.
        self._remaining_restarts = 0
        failures = failures_of(decision, worker_group.workers, self._pcontext)
        return RunResult(state=WorkerState.FAILED, failures=failures)

    def _carry_out_failure(self, result: RunResult, worker_group: WorkerGroup) -> RunResult:
        """A decision about workers that have failed and are gone; torch's own rule where there is none."""
        failing = self._failing
        if failing is None or failing.decision is None:
            return result
        decision, root = failing.decision, failing.failure
        if decision.action == "isolate":
            self._leave(decision, worker_group)
        if decision.action == "restart":
            self._have_restarted(decision, root)
        else:
            self._remaining_restarts = 0
        return with_root_first(result, root, worker_group.workers, self._pcontext)

    def _have_restarted(self, decision: Decision, root: Failure | None) -> None:
        """Have torch's loop restart the workers next."""
        self._restarting = decision, root
        self._allow_as_many()
        # Whatever torch's own count is: restarts are counted by what is on record.
        self._remaining_restarts = max(1, self._remaining_restarts)

    def _allow_as_many(self) -> None:
        """Where the limit was changed while the job runs: torch counts down from its own one."""
        allowed = self._session.decider.restarts_allowed
        more, self._allowed = allowed - self._allowed, allowed
        self._worker_group.spec.max_restarts += more
        self._remaining_restarts += more

    def _leave(self, decision: Decision, worker_group: WorkerGroup) -> NoReturn:
        """This node leaves the job, which goes on without it.

        Raises:
            NodeLeavesError: always; a failure for each culprit.
        """
        session, handler = self._session, self._rdzv_handler
        self._remaining_restarts = 0
        failures = failures_of(decision, worker_group.workers, self._pcontext)
        self._why = decision.reason
        self._stop_workers(worker_group)
        trouble = leave_rendezvous(handler)
        # A single node that leaves has nobody to wait for.
        stays = hosts_store(handler) and (worker_group.group_world_size or 1) > 1
        session.phase("stopping", None)
        session.parting.node_left(decision, trouble=trouble, stays=stays)
        if stays:
            wait_until_over(handler, session.services.main_loop_turned)
        raise NodeLeavesError(self._name, failures)

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        restarting, self._restarting = self._restarting, None
        decision, root = restarting if restarting is not None else (self._ruling(worker_group), None)
        restarts = worker_group.spec.max_restarts - self._remaining_restarts
        self._session.restart_begins(decision, restarts=restarts, failure=root)
        self._why = decision.reason if decision is not None else _MEMBERSHIP
        super()._restart_workers(worker_group)

    def _ruling(self, worker_group: WorkerGroup) -> Decision | None:
        """What the whole job has decided, if that is why another node waits; ``None`` for a newcomer."""
        due = self._session.ruling_due(_RULING_WAIT)
        if due is None:
            return None
        if due.action == "isolate":
            self._leave(due, worker_group)
        if due.action != "restart":
            self._remaining_restarts = 0
            raise ChildFailedError(self._name, failures_of(due, worker_group.workers, self._pcontext))
        self._allow_as_many()
        self._remaining_restarts = max(0, self._remaining_restarts - 1)
        return due

    def _initialize_workers(self, worker_group: WorkerGroup) -> None:
        """What torch does when it has stopped the workers, and at first."""
        self._refuse_if_left(worker_group)
        super()._initialize_workers(worker_group)

    def _refuse_if_left(self, worker_group: WorkerGroup) -> None:
        """No restart beside a worker that could not be ended: it holds the device a new one would need.

        Raises:
            ChildFailedError: with a failure for each such worker.
        """
        left = self._left()
        if not left:
            return
        ranks = tuple(one.rank for one in left)
        decision = self._session.decider.on_left_workers(ranks, self._session.done())
        if decision.action == "isolate":
            self._leave(decision, worker_group)
        self._remaining_restarts = 0
        raise ChildFailedError(self._name, failures_of(decision, worker_group.workers, self._pcontext))

    def _restart_timed_out(self, worker_group: WorkerGroup) -> NoReturn:
        clock = self._session.restart_clock
        decision = self._session.decider.on_restart_timeout(clock.taken, clock.limit or 0.0)
        clock.end()
        self._remaining_restarts = 0
        raise RestartTimedOutError(self._name, failures_of(decision, worker_group.workers, self._pcontext))

    @property
    def _name(self) -> str:
        name: str = self._worker_group.spec.get_entrypoint_name()  # type: ignore[no-untyped-call]  # torch's own
        return name
