"""Torch's ``LocalElasticAgent``, extended at its seams; its run loop is never copied (decision 0009).

Seams (torch 2.13): ``_start_workers``, ``_stop_workers``, ``_monitor_workers``, ``_restart_workers``,
``_setup_local_watchdog``, ``_setup_healthcheck``, ``_rendezvous``, ``_exit_barrier``, ``_shutdown``, and the
process context's ``_close``: torch kills the surviving workers inside the very poll that finds a failure, so
evidence is taken there. It must not know how anything is noticed, explained or decided (``session``).
"""

# torch's @prof is an untyped decorator: pyright takes the methods it wraps for variables.
# pyright: reportIncompatibleVariableOverride=false, reportCallIssue=false

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerState
from torch.distributed.elastic.agent.server.health_check_server import HealthCheckServer
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsSpecs, PContext
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from rankscope.agent.ending import Ending, Evidence
from rankscope.agent.logs.specs import close_writing_ends
from rankscope.agent.policy import (
    EXIT_RUN_AGAIN,
    decide_on_failure,
    decide_on_left_workers,
    decide_on_stuck_kernel,
)
from rankscope.agent.process_context import (
    exit_codes,
    function_processes,
    leads_groups,
    let_go,
    noted_exit_codes,
)
from rankscope.agent.session import Session
from rankscope.agent.struck import is_by_stop_signal
from rankscope.agent.torch_files import error_message, record_buffer, write_error
from rankscope.agent.workers import Launch, WorkerRef
from rankscope.diag import proc
from rankscope.diag.model import Decision, Diagnosis, ExitFacts, JobSnapshot
from rankscope.diag.store.events import iso_time
from rankscope.watchdog.probe.entry import ProbedEntrypoint

logger = logging.getLogger(__name__)
_SHUTDOWN_TIMEOUT: Final = 30
RENDEZVOUS_SECONDS: Final = 900.0
"""torch's default for joining a rendezvous (``LaunchConfig``), and our deadline for the phase."""
_RAISED_WAIT: Final = 2.0
_LAST_WRITE: Final = 2.0
"""Seconds at the end for a last look that was not waited for before the workers were stopped."""
_SIGNAL_GRACE: Final = 0.4
"""Seconds for the agent's own signal to come, when workers ended as if they had been sent one before it."""
_PAUSE: Final = 0.02
_MEMBERSHIP: Final = "a change of the membership"


class DiagElasticAgent(LocalElasticAgent):
    """An elastic agent that watches its workers and takes evidence before anything is stopped.

    Args:
        spec: torch's worker spec; a function entrypoint is wrapped so that the probe runs in it.
        logs_specs: torch's or ours.
        session: what the agent has beyond torch's.
        kwargs: everything else torch's agent takes.
    """

    def __init__(self, spec: Any, logs_specs: LogsSpecs, *, session: Session, **kwargs: Any) -> None:
        if callable(spec.entrypoint) and not isinstance(spec.entrypoint, ProbedEntrypoint):
            spec.entrypoint = ProbedEntrypoint(spec.entrypoint)
        super().__init__(spec, logs_specs, **kwargs)
        self._session = session
        self._polling = False
        self._ending: Ending | None = None
        self._why = ""
        self._restarting: Decision | None = None
        self._user_health: HealthCheckServer | None = getattr(self, "_health_check_server", None)
        session.restarts = lambda: (self._remaining_restarts, spec.max_restarts)
        session.exit_codes = self._reaped
        session.end_workers = self._end_workers_beside_main

    def run(self, role: str = "default_role") -> RunResult:
        """Run until the job is done; a health server given by the caller lives as long."""
        try:
            result: RunResult = super().run(role)
            return result
        finally:
            if self._ending is not None:
                self._ending.finish(_LAST_WRITE)
            if self._user_health is not None:
                self._user_health.stop()

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        self._session.phase("restarting" if self._session.launch else "rendezvous", RENDEZVOUS_SECONDS)
        self._session.services.wait_health()
        super()._rendezvous(worker_group)

    def _exit_barrier(self) -> None:
        self._session.phase("exit_barrier", self._exit_barrier_timeout)
        super()._exit_barrier()  # type: ignore[no-untyped-call]

    def _setup_local_watchdog(self, envs: dict[int, dict[str, str]]) -> None:
        """Workers get our pipe, page and probe instead of torch's timer server."""
        for local_rank, env in envs.items():
            env.update(record_buffer(os.environ))
            env.update(self._session.worker_env(local_rank, {**os.environ, **env}))

    def _setup_healthcheck(self) -> None:
        """The session's server is up already, and stays up over restarts."""

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        signals = self._session.signals
        signals.arm()
        # A signal between two starts would leave workers behind that nobody knows of.
        with signals.hold(), signals.in_torchs_place():
            self._session.services.prepare_page(worker_group.spec.local_world_size)
            ids: dict[int, Any] = super()._start_workers(worker_group)
            launch = self._launch(worker_group, ids)
            if self._pcontext is not None:
                close_writing_ends(self._pcontext)
                self._ending = Ending(
                    launch.workers,
                    as_groups=leads_groups(self._pcontext),
                    signals=signals,
                    stopping=self._session.workers_stopping,
                )
                self._take_evidence_before_close(self._pcontext)
            self._session.workers_started(launch)
        return ids

    def _launch(self, worker_group: WorkerGroup, ids: dict[int, Any]) -> Launch:
        refs = tuple(
            WorkerRef(
                rank=worker.global_rank,
                local_rank=worker.local_rank,
                pid=ids[worker.local_rank],
                start_ticks=proc.start_ticks(ids[worker.local_rank]) or 0,
            )
            for worker in worker_group.workers
        )
        return Launch(
            workers=refs,
            restart_count=worker_group.spec.max_restarts - self._remaining_restarts,
            world_size=worker_group.workers[0].world_size if worker_group.workers else 0,
            group_rank=worker_group.group_rank or 0,
        )

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._session.services.main_loop_turned()
        due = self._session.take_due()
        if due is not None:
            return self._carry_out(due, worker_group)
        self._polling = True
        try:
            result: RunResult = super()._monitor_workers(worker_group)
        finally:
            self._polling = False
        if result.state == WorkerState.UNHEALTHY:
            # Torch's own check: a worker in uninterruptible sleep. It would end with exit code 0.
            return self._carry_out(self._stuck_in_the_kernel(), worker_group)
        if result.state == WorkerState.FAILED:
            # Everybody was gone before there was anything to look at; the failure is recorded all the same.
            self._take_evidence(self._record_failure)
        return result

    def _stuck_in_the_kernel(self) -> Decision:
        """Evidence and decision about a worker that torch calls unhealthy: no restart on this node."""
        found: list[Diagnosis] = []

        def take(deadline: float) -> None:
            snapshot = self._session.evidence_now({}, deadline=deadline)
            if snapshot is not None:
                found.append(self._session.judge_now(snapshot))

        self._take_evidence(take)
        decision = decide_on_stuck_kernel(found[0] if found else None, time=iso_time(time.time()))
        self._session.decided(decision)
        self._session.console.say(f"{decision.action}: {decision.reason}")
        return decision

    def _carry_out(self, decision: Decision, worker_group: WorkerGroup) -> RunResult:
        """A decision about a hang; its evidence is on disk already."""
        if self._ending is not None:
            self._ending.evidence_taken = True
        if decision.action == "restart" and self._remaining_restarts > 0:
            self._restarting = decision
            return RunResult(state=WorkerState.UNHEALTHY)
        # UNHEALTHY without restarts left would end with exit code 0 in torch.
        self._remaining_restarts = 0
        return RunResult(state=WorkerState.FAILED, failures=self._failures(decision, worker_group))

    def _failures(self, decision: Decision, worker_group: WorkerGroup) -> dict[int, ProcessFailure]:
        """One failure for each culprit; without a culprit, for each local rank."""
        named = [worker for worker in worker_group.workers if worker.global_rank in decision.culprits]
        found: dict[int, ProcessFailure] = {}
        for worker in named or worker_group.workers:
            error_file = self._pcontext.error_files.get(worker.local_rank, "") if self._pcontext else ""
            write_error(error_file, decision.reason)
            found[worker.global_rank] = ProcessFailure(
                local_rank=worker.local_rank, pid=worker.id, exitcode=EXIT_RUN_AGAIN, error_file=error_file
            )
        return found

    def _restart_workers(self, worker_group: WorkerGroup) -> None:
        decision, self._restarting = self._restarting, None
        restarts = worker_group.spec.max_restarts - self._remaining_restarts
        self._session.restart_begins(decision, restarts=restarts)
        self._why = decision.reason if decision is not None else _MEMBERSHIP
        self._stop_workers(worker_group)
        self._refuse_if_left(worker_group)
        super()._restart_workers(worker_group)

    def _refuse_if_left(self, worker_group: WorkerGroup) -> None:
        """No restart beside a worker that could not be ended: it holds the device a new one would need.

        Raises:
            ChildFailedError: with a failure for each such worker.
        """
        left = self._ending.left if self._ending is not None else ()
        if not left:
            return
        decision = decide_on_left_workers(tuple(one.rank for one in left), time=iso_time(time.time()))
        self._session.decided(decision)
        self._session.console.say(f"{decision.action}: {decision.reason}")
        self._remaining_restarts = 0
        name = worker_group.spec.get_entrypoint_name()  # type: ignore[no-untyped-call]  # torch's own
        raise ChildFailedError(name, self._failures(decision, worker_group))

    def _stop_workers(self, worker_group: WorkerGroup, *_args: Any, **_kwargs: Any) -> None:  # noqa: ARG002
        self._shutdown(timeout=getattr(self, "_shutdown_timeout", _SHUTDOWN_TIMEOUT))

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, timeout: int = _SHUTDOWN_TIMEOUT, **_kwargs: Any
    ) -> None:
        """Stop the workers; the timer pipe and the health server outlive them."""
        self._session.signals.acting()
        if self._pcontext is not None:
            self._session.phase("stopping", self._session.settings.evidence_budget + 2.0 * timeout)
            self._pcontext.close(death_sig, timeout)

    # Evidence before the end.

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
        self._stop(self._evidence_due(death_sig), death_sig, timeout)
        if left := self._left():
            let_go(pcontext, [worker.pid for worker in left])

    def _end_workers_beside_main(self, sent: signal.Signals) -> None:
        """The main thread does not answer a signal: end the workers without it (the signals' thread)."""
        timeout = getattr(self, "_shutdown_timeout", _SHUTDOWN_TIMEOUT)
        self._stop(self._last_look(sent.name) if self._may_look() else None, sent, timeout)
        if self._ending is not None:
            self._ending.finish(_LAST_WRITE)

    def _stop(self, take: Evidence | None, death_sig: signal.Signals, timeout: float) -> None:
        if self._ending is None:
            return
        told = self._ending.left
        budget = self._session.settings.evidence_budget
        self._ending.stop(take, budget=budget, death_sig=death_sig, timeout=timeout)
        if self._ending.left and not told:
            self._session.workers_left(self._ending.left)

    def _left(self) -> tuple[WorkerRef, ...]:
        return self._ending.left if self._ending is not None else ()

    def _take_evidence(self, take: Evidence) -> None:
        """Evidence of workers that are not being stopped yet."""
        budget = self._session.settings.evidence_budget
        if self._ending is not None and budget > 0:
            with self._session.signals.hold():
                self._ending.take_evidence(take, budget=budget)

    def _may_look(self) -> bool:
        wanted = self._session.settings.evidence_budget > 0
        if not wanted or self._ending is None or self._ending.evidence_taken:
            return False
        # Who signals the workers as well may have ended them before us: what they wrote last is still there.
        return self._alive() or any(end.code != 0 for end in self._exits().values())

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
            self._session.last_look,
            why,
            exits=self._exits,
            enough=ending.enough if ending is not None else lambda: None,
        )

    def _record_failure(self, deadline: float) -> None:
        """One of the workers failed: evidence, diagnosis and decision, in this order."""
        patience = _RAISED_WAIT if self._raised() else 0.0
        raised = self._session.watch.wait_for_raised(min(patience, max(0.0, deadline - time.monotonic())))
        exits = self._exits()
        snapshot = (
            _with_exits(raised, exits) if raised else self._session.evidence_now(exits, deadline=deadline)
        )
        if snapshot is None:
            return
        sent = self._own_signal(exits, deadline)
        if sent is not None and not self._session.ends(exits).causes:
            self._last_look(sent.name)(deadline)
            return
        diagnosis = self._session.judge_now(snapshot)
        self._session.workers_failed(diagnosis, exits)
        left, allowed = self._session.restarts()
        decision = decide_on_failure(
            diagnosis, restarts_left=left, restarts_allowed=allowed, time=iso_time(time.time())
        )
        self._restarting = decision if decision.action == "restart" else None
        self._session.decided(decision)

    def _own_signal(self, exits: dict[int, ExitFacts], deadline: float) -> signal.Signals | None:
        """The signal that stops the agent; waits a moment for it if the workers seem to have got it too."""
        signals = self._session.signals
        seems_sent = any(is_by_stop_signal(end.code) for end in exits.values()) or not self._alive()
        limit = min(deadline, time.monotonic() + _SIGNAL_GRACE) if seems_sent else 0.0
        while signals.first is None and time.monotonic() < limit:
            time.sleep(_PAUSE)
        return signals.first[1] if signals.first is not None else None

    def _raised(self) -> bool:
        """Whether a worker has reported an uncaught exception through its probe."""
        page, launch = self._session.services.page, self._session.launch
        if page is None or launch is None:
            return False
        return any(page.read(worker.local_rank).raised_ns for worker in launch.workers)

    def _reaped(self) -> dict[int, int]:
        """Exit codes of ranks that torch has reaped; looks at what it noted and waits for nobody."""
        launch, pcontext = self._session.launch, self._pcontext
        if launch is None or pcontext is None:
            return {}
        codes = noted_exit_codes(pcontext)
        return {
            worker.rank: code
            for worker in launch.workers
            if (code := codes.get(worker.local_rank)) is not None
        }

    def _alive(self) -> bool:
        launch = self._session.launch
        if launch is None:
            return False
        now = time.monotonic()
        facts = [proc.read_facts(worker.pid, now=now) for worker in launch.workers]
        return any(fact is not None and fact.state not in "ZX" for fact in facts)

    def _exits(self) -> dict[int, ExitFacts]:
        """The workers that have ended, with exit code, message and age; the first in time is the oldest."""
        launch = self._session.launch
        if launch is None or self._pcontext is None:
            return {}
        codes = exit_codes(self._pcontext)
        return {
            worker.rank: self._exit_of(worker, code, self._pcontext.error_files.get(worker.local_rank, ""))
            for worker in launch.workers
            if (code := codes.get(worker.local_rank)) is not None
        }

    def _exit_of(self, worker: WorkerRef, code: int, error_file: str) -> ExitFacts:
        now = time.monotonic()
        text, frame = self._session.last_words(worker)
        return ExitFacts(
            code=code,
            message=text or error_message(error_file),
            seconds_ago=now - self._session.watch.exit_times().get(worker.rank, now),
            frame=frame,
        )


def _with_exits(snapshot: JobSnapshot, exits: dict[int, ExitFacts]) -> JobSnapshot:
    """A snapshot taken while a worker was raising, with what has become known since."""
    ranks = tuple(
        msgspec.structs.replace(rank, exit=exits[rank.rank]) if rank.rank in exits else rank
        for rank in snapshot.ranks
    )
    return msgspec.structs.replace(snapshot, ranks=ranks)
