"""The elastic agent of independent workers (``--job-execution-mode Async``): a failed one is restarted alone.

torch's run loop sees one healthy group while any worker runs or waits for its next start, and its end when
all have ended with 0 or one is lost. It must not know how a failure is read or decided (``failed``), nor how
processes are started (``contexts``).
"""

# torch's @prof is an untyped decorator: pyright takes the methods it wraps for variables.
# pyright: reportIncompatibleVariableOverride=false, reportCallIssue=false

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from typing import Any, Final, cast

from torch.distributed.elastic.agent.server.api import RunResult, Worker, WorkerGroup, WorkerSpec
from torch.distributed.elastic.events import record
from torch.distributed.elastic.events.api import EventSource
from torch.distributed.elastic.multiprocessing import LogsSpecs, PContext, RunProcsResult
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousClosedError

from rankscope.agent.async_mode.contexts import Contexts, Start, in_torchs_place
from rankscope.agent.async_mode.failed import Verdict, is_of_the_end, judge
from rankscope.agent.async_mode.lives import Life, all_done, due
from rankscope.agent.async_mode.nodes import Nodes, Store
from rankscope.agent.async_mode.worker import End
from rankscope.agent.elastic import DiagElasticAgent
from rankscope.agent.ending.order import Ending, Evidence
from rankscope.agent.failures import WorkerEnd
from rankscope.agent.session import Session
from rankscope.agent.workers.model import WorkerRef
from rankscope.agent.workers.process_context import leads_groups
from rankscope.diag import proc
from rankscope.diag.model import ExitFacts

_NOT_STARTED: Final = 127
"""What a shell says of a command that it cannot start."""


class AsyncElasticAgent(DiagElasticAgent):
    """An elastic agent whose workers are independent; its arguments are ``DiagElasticAgent``'s.

    ``spec.max_restarts`` is the limit of each worker. A change of the membership still starts all workers
    anew, as in torch: ``WORLD_SIZE`` is another one then.
    """

    def __init__(
        self, spec: WorkerSpec, logs_specs: LogsSpecs, *, session: Session | None = None, **kwargs: Any
    ) -> None:
        super().__init__(spec, logs_specs, session=session, **kwargs)
        self._lives: dict[int, Life] = {}
        self._values: dict[int, object] = {}
        self._before: dict[int, int] = {}
        self._nodes: Nodes | None = None

    # torch's seams.

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        past = self._session.ledger.past
        # At first those of an agent that was killed and started again.
        self._before = {key: life.restarts for key, life in self._lives.items()} or {
            worker.local_rank: past.restarts_of_worker(worker.global_rank) for worker in worker_group.workers
        }
        waited = [self._ref(key).rank for key, life in self._lives.items() if life.state == "waiting"]
        with in_torchs_place(self._make_contexts):
            ids: dict[int, Any] = super()._start_workers(worker_group)
        for rank in waited:
            self._session.ledger.worker_restarted(rank)
        now = time.monotonic()
        self._lives = {key: Life(now, restarts=self._before.get(key, 0)) for key in ids}
        self._values = {}
        size, store = worker_group.group_world_size or 1, cast("Store | None", worker_group.store)
        self._nodes = None if store is None or size == 1 else Nodes(store, worker_group.group_rank or 0, size)
        return ids

    def _make_contexts(self, start: Start, **kwargs: Any) -> PContext:
        return Contexts(start, restarts=self._before, **kwargs)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        contexts = self._pcontext
        if isinstance(contexts, Contexts):
            with self._session.signals.hold():
                self._look_after(contexts, worker_group)
        return super()._monitor_workers(worker_group)

    def _record_failure(self, deadline: float) -> None:
        """Nothing: each failure has been recorded when it came."""

    def _decide_on_failure(self) -> None:
        """Nothing: each failure has been decided when it came."""

    def _last_look(self, why: str) -> Evidence:
        """Independent workers wait for nobody, and hang detection is off: only why they end is recorded."""

        def tell(_deadline: float) -> None:
            self._session.ledger.stopping(why, None)

        return tell

    # The workers, one by one (main thread, signals held).

    def _look_after(self, contexts: Contexts, worker_group: WorkerGroup) -> None:
        if contexts.is_over():
            return
        ends = contexts.poll()
        for local_rank in sorted(ends, key=lambda key: self._ended_at(key, ends[key])):
            self._ended(contexts, local_rank, ends[local_rank])
            self._session.services.main_loop_turned()
            if contexts.is_over():
                return
        for local_rank in due(self._lives, time.monotonic()):
            self._start_again(contexts, worker_group, local_rank)
            if contexts.is_over():
                return
        if self._is_done():
            contexts.result = RunProcsResult(return_values=dict(self._values))

    def _is_done(self) -> bool:
        """Whether the job is done: on this node, and on those that share its rendezvous.

        Raises:
            RendezvousClosedError: another node has ended the job while this one works.
        """
        here, nodes = all_done(self._lives.values()), self._nodes
        if nodes is None or not nodes.is_due(done=here):
            return here and (nodes is None or nodes.are_done())
        if not here and self._rdzv_handler.is_closed():
            raise RendezvousClosedError("another node has ended the job")
        try:
            nodes.tell(done=here)
        except RuntimeError:
            # The store is gone, and torch's loop meets the same; a node that is done has nobody to wait for.
            return here
        return here and nodes.are_done()

    def _ended(self, contexts: Contexts, local_rank: int, end: End) -> None:
        ref = self._ref(local_rank)
        self._session.services.forget_timers([ref.pid])
        life, at = self._lives[local_rank], self._ended_at(local_rank, end)
        if end.code == 0:
            contexts.release(local_rank)
            self._values[local_rank] = end.value
            self._lives[local_rank] = life.done(at)
            return
        facts = self._ends.facts()[ref.rank]
        if is_of_the_end(ref.rank, facts, self._session.signals):
            return
        failure = contexts.failure(local_rank, end)
        contexts.release(local_rank)
        known = next(one for one in self._ends.ends() if one.rank == ref.rank)
        self._failed(contexts, failure, judge(ref, facts, known, self._session), at=at)

    def _failed(self, contexts: Contexts, failure: ProcessFailure, verdict: Verdict, *, at: float) -> None:
        local_rank = failure.local_rank
        life = self._lives[local_rank]
        if verdict.decision.action == "restart" and not verdict.of_all:
            self._lives[local_rank] = life.failed(at)
            self._begin_restart(local_rank, verdict)
            return
        self._lives[local_rank] = life.lost(at)
        contexts.result = RunProcsResult(failures={local_rank: failure})
        self._end_or_restart_all(verdict)

    def _end_or_restart_all(self, verdict: Verdict) -> None:
        """Say what torch's loop is to do with the failed group: it restarts it while restarts are left."""
        if self._ending is not None:
            self._ending.evidence_taken = True
        if verdict.decision.action == "restart":
            self._restarting = verdict.decision, verdict.failure
            # Whatever torch's own count is: restarts are counted by what is on record.
            self._remaining_restarts = max(1, self._remaining_restarts)
        else:
            self._remaining_restarts = 0

    def _begin_restart(self, local_rank: int, verdict: Verdict) -> None:
        life, ledger, rank = self._lives[local_rank], self._session.ledger, verdict.failure.rank
        # Those of an agent that was killed and started again count on.
        before = ledger.past.worker_history(rank, allowed=0, workers=0).restarts_used
        ledger.worker_restart_begins(
            rank,
            restarts=before + 1,
            reason=verdict.decision.reason,
            failure=verdict.failure,
            incident=verdict.decision.incident,
        )
        seconds = life.due - life.ended
        if seconds > 0:
            self._session.console.say(f"rank {rank} is started again in {seconds:g} s")

    def _start_again(self, contexts: Contexts, worker_group: WorkerGroup, local_rank: int) -> None:
        life, worker = self._lives[local_rank], worker_group.workers[local_rank]
        env = contexts.env(local_rank)
        self._clear_slot(local_rank)
        env.update(self._session.worker_env(local_rank, os.environ))
        with self._session.signals.in_torchs_place():
            try:
                contexts.start_again(local_rank, env, restarts=life.restarts)
            except OSError as error:
                self._not_started(contexts, worker, worker_group.spec.role, error)
                return
        self._runs_again(contexts, worker_group, worker)

    def _not_started(self, contexts: Contexts, worker: Worker, role: str, error: OSError) -> None:
        """A start that failed is a failure like any other: no memory, no process, the command is gone."""
        now, local_rank = time.monotonic(), worker.local_rank
        ref, said = self._ref(local_rank), f"it could not be started: {error}"
        self._lives[local_rank] = self._lives[local_rank].started(now)
        self._session.current.are_starting = False
        facts = ExitFacts(code=None, message=said, seconds_ago=0.0)
        end = WorkerEnd(
            rank=ref.rank,
            local_rank=local_rank,
            node=self._session.records.node,
            role=role,
            exit_code=None,
            at=time.time(),
            said=said,
        )
        failure = ProcessFailure(local_rank, ref.pid, _NOT_STARTED, "")
        self._failed(contexts, failure, judge(ref, facts, end, self._session), at=now)

    def _runs_again(self, contexts: Contexts, worker_group: WorkerGroup, worker: Worker) -> None:
        local_rank = worker.local_rank
        self._lives[local_rank] = self._lives[local_rank].started(time.monotonic())
        worker.id = pid = contexts.pids()[local_rank]
        launch = self._session.current.launch
        if launch is None:
            return
        new = WorkerRef(worker.global_rank, local_rank, pid, proc.start_ticks(pid) or 0)
        # The others as they were: the pid of one that has long ended may be somebody else's by now.
        refs = tuple(new if one.local_rank == local_rank else one for one in launch.workers)
        launch = dataclasses.replace(launch, workers=refs)
        self._ending = Ending(
            refs,
            as_groups=leads_groups(contexts),
            signals=self._session.signals,
            stopping=self._session.workers_stopping,
        )
        self._session.worker_restarted(launch)
        self._session.ledger.worker_restarted(worker.global_rank)
        event = self._construct_event("START", EventSource.WORKER, worker)
        record(event, worker_group.spec.event_log_handler)

    def _clear_slot(self, local_rank: int) -> None:
        page = self._session.services.page
        if page is not None:
            with contextlib.suppress(OSError, ValueError):  # closed
                page.clear(local_rank)

    def _ref(self, local_rank: int) -> WorkerRef:
        launch = self._session.current.launch
        refs = launch.workers if launch is not None else ()
        return next(one for one in refs if one.local_rank == local_rank)

    def _ended_at(self, local_rank: int, end: End) -> float:
        """When a worker ended: of its pidfd, else when it was seen."""
        times = self._session.watch.exit_times()
        return times.get(self._ref(local_rank).rank, end.at)
