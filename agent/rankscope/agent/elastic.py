"""Torch's ``LocalElasticAgent``, extended at its seams; its run loop is never copied (decision 0009).

Seams (torch 2.13): ``_rendezvous``, ``_assign_worker_ranks``, ``_start_workers``, ``_setup_local_watchdog``,
``_setup_healthcheck``, ``_monitor_workers``, ``_exit_barrier``; those of the workers' end are in
``evidence_first``, those of a restart in ``decided``. It must not know how anything is noticed, explained or
decided (``session``), nor how torch's loop is had do it (``decided``).
"""

# torch's @prof is an untyped decorator: pyright takes the methods it wraps for variables.
# pyright: reportIncompatibleVariableOverride=false, reportCallIssue=false

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import nullcontext, suppress
from functools import partial
from string import Template
from typing import Any, Final

from torch.distributed import PrefixStore  # type: ignore[attr-defined]  # re-exported from torch._C
from torch.distributed.elastic.agent.server.api import RunResult, Worker, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.health_check_server import HealthCheckServer
from torch.distributed.elastic.agent.server.local_elastic_agent import (
    TORCHELASTIC_ENABLE_FILE_TIMER,
    TORCHELASTIC_TIMER_FILE,
)
from torch.distributed.elastic.multiprocessing import LogsSpecs

from rankscope.agent.bounded_call import TookTooLongError, within
from rankscope.agent.decided import DecidedAgent
from rankscope.agent.nodes.meeting import Meeting
from rankscope.agent.nodes.messages import Member
from rankscope.agent.nodes.store_link import clone_of
from rankscope.agent.own_session import watched
from rankscope.agent.ranks.assignment import agree_on_ranks, check_scheme
from rankscope.agent.ranks.layout import Group, Torch, parse_scheme
from rankscope.agent.ranks.nested import slots_for
from rankscope.agent.rendezvous.introductions import introduce, introduced
from rankscope.agent.rendezvous.restarts import tell_restarts, told_restarts
from rankscope.agent.rendezvous.store import FreshStoreRendezvous
from rankscope.agent.session import Session
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.agent.workers.torch_files import record_buffer
from rankscope.diag import proc
from rankscope.watchdog.probe.entry import ProbedEntrypoint

RENDEZVOUS_SECONDS: Final = 900.0
"""torch's default for joining a rendezvous (``LaunchConfig``), and our deadline for the phase."""
logger = logging.getLogger(__name__)
_TWO: Final = 2
_IDENTICAL: Final = "TORCH_ELASTIC_WORKER_IDENTICAL"


class DiagElasticAgent(DecidedAgent):
    """An elastic agent that watches its workers, and does what was decided about them.

    Args:
        spec: torch's worker spec; a function entrypoint is wrapped so that the probe runs in it.
        logs_specs: torch's or ours.
        session: what the agent has beyond torch's; without one it makes one, opens it to run, and closes it.
        kwargs: everything else torch's agent takes.

    Raises:
        UsageError: the workers cannot have the ranks that the session's settings name.
    """

    def __init__(
        self, spec: WorkerSpec, logs_specs: LogsSpecs, *, session: Session | None = None, **kwargs: Any
    ) -> None:
        if session is not None:  # its own has been looked at when it is made
            check_scheme(session.settings.rank_assignment, spec.local_world_size)
        super().__init__(spec, logs_specs, session=session, **kwargs)
        self._user_health: HealthCheckServer | None = getattr(self, "_health_check_server", None)
        if self._log_line_prefix_template:
            # Newer torch fills in the host's name itself; what is filled in here it does not see.
            self._log_line_prefix_template = Template(self._log_line_prefix_template).safe_substitute(
                hostname=socket.gethostname()
            )

    def _join(self, session: Session) -> None:
        super()._join(session)
        spec = self._worker_group.spec
        if callable(spec.entrypoint) and not isinstance(spec.entrypoint, ProbedEntrypoint):
            spec.entrypoint = ProbedEntrypoint(spec.entrypoint)
        if not isinstance(spec.rdzv_handler, FreshStoreRendezvous):
            # Without it workers that are restarted meet in the store of those before them (decision 0010).
            self._rdzv_handler = spec.rdzv_handler = FreshStoreRendezvous(spec.rdzv_handler)

    def run(self, role: str = "default_role") -> RunResult:
        """Run until the job is done; a health server given by the caller lives as long."""
        with watched(self._session) if self._owns_session else nullcontext():
            return self._run(role)

    def _run(self, role: str) -> RunResult:
        # An agent that was killed and started again goes on counting where it was.
        self._remaining_restarts = min(self._remaining_restarts, self._session.decider.restarts_left)
        try:
            result: RunResult = super().run(role)
            return result
        finally:
            self._finish_last_look()
            if self._user_health is not None:
                self._user_health.stop()

    # Where nodes meet.

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        session = self._session
        session.round_ends()
        session.phase("restarting" if session.current.launch else "rendezvous", RENDEZVOUS_SECONDS)
        session.ledger.enter("rendezvous")
        session.services.wait_health()
        meet = partial(super()._rendezvous, worker_group)
        left = session.restart_clock.left
        if left is None:
            meet()
            self._begin_round()
            return
        has_met = False
        with suppress(TookTooLongError):
            within(left, meet, name="rankscope-rendezvous")
            has_met = True
        if not has_met:  # out here: the traceback of the wait says nothing to anybody
            self._restart_timed_out(worker_group)
        self._begin_round()

    def _begin_round(self) -> None:
        """Have this node's agent talk to the others; whatever keeps it from that, the launch goes on."""
        try:
            self._session.round_begins(self._meeting())
        except Exception:  # of a store that is of another kind than torch's own
            logger.exception("rankscope's agents cannot talk to each other: each judges its own ranks")

    def _meeting(self) -> Meeting | None:
        """The round as the agents of several nodes have it, ``None`` where this one is alone."""
        group = self._worker_group
        store: Any = self._store
        size = group.group_world_size or 1
        if size < _TWO or not hasattr(store, "clone"):
            return None
        ranks = tuple(worker.global_rank for worker in group.workers)
        me = Member(group.group_rank or 0, size, self._session.records.node, ranks)
        own = PrefixStore(f"rankscope/nodes/{self._round_id}", store)
        return Meeting(me, self._session.run_id, group.workers[0].world_size, clone_of(own))

    @property
    def _round_id(self) -> str:
        return str(getattr(self._rdzv_handler, "round_id", ""))

    def _assign_worker_ranks(
        self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        if os.environ.get(_IDENTICAL) == "1":  # then torch asks no store, and nobody waits for anybody
            return self._placed_workers(store, group_rank, group_world_size, spec)
        known = told = self._session.ledger.past.restarts
        # A store that cannot is no reason to end a launch; one that is gone torch will complain about.
        with suppress(Exception):
            tell_restarts(store, self._round_id, known)
        with suppress(Exception):
            self._introduce(store, group_world_size)
        workers = self._placed_workers(store, group_rank, group_world_size, spec)
        with suppress(Exception):
            allowed = self._session.decider.restarts_allowed
            told = told_restarts(store, self._round_id, known=known, most=allowed)
        with suppress(Exception):
            others = introduced(store, self._round_id, nodes=group_world_size)
            self._session.services.nodes_met(others.token, others.peers)
        if told > known:
            self._session.restarts_told(told)
            self._remaining_restarts = max(0, min(self._remaining_restarts, spec.max_restarts - told))
        return workers

    def _introduce(self, store: Any, nodes: int) -> None:
        token, is_settled = self._session.services.token
        me = self._session.services.as_peer(self._session.records.node)
        introduce(store, self._round_id, token, me, is_settled=is_settled, nodes=nodes)

    def _placed_workers(
        self, store: Any, group_rank: int, group_world_size: int, spec: WorkerSpec
    ) -> list[Worker]:
        scheme = parse_scheme(self._session.settings.rank_assignment)
        if isinstance(scheme, Torch):
            ranks: list[Worker] = super()._assign_worker_ranks(store, group_rank, group_world_size, spec)
            return ranks
        group = Group(spec.role, group_rank, spec.local_world_size)
        placed = agree_on_ranks(store, scheme, group, groups=group_world_size)
        return [
            Worker(
                local_rank=local_rank,
                global_rank=one.rank,
                role_rank=one.role_rank,
                world_size=one.world_size,
                role_world_size=one.role_world_size,
            )
            for local_rank, one in enumerate(placed)
        ]

    def _exit_barrier(self) -> None:
        self._session.hangs.close()
        self._session.ledger.cycle_over("succeeded")
        self._session.phase("exit_barrier", self._exit_barrier_timeout)
        super()._exit_barrier()  # type: ignore[no-untyped-call]

    # The start of the workers.

    def _setup_local_watchdog(self, envs: dict[int, dict[str, str]]) -> None:
        """Workers get our pipe, page and probe instead of torch's timer server."""
        for local_rank, env in envs.items():
            env.update(record_buffer(os.environ))
            env.update(self._session.worker_env(local_rank, {**os.environ, **env}))
            if self._owns_session and os.environ.get(TORCHELASTIC_ENABLE_FILE_TIMER) != "1":
                # In torch's place and not asked for timers: the variable is whatever it is without us.
                env.pop(TORCHELASTIC_TIMER_FILE, None)

    def _setup_healthcheck(self) -> None:
        """The session's server is up already, and stays up over restarts."""

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        session = self._session
        session.ledger.enter("start")
        session.signals.arm()
        # A signal between two starts would leave workers behind that nobody knows of.
        with session.signals.hold(), session.signals.in_torchs_place():
            session.services.prepare_page(slots_for(worker_group.spec))
            ids: dict[int, Any] = super()._start_workers(worker_group)
            launch = self._launch(worker_group, ids)
            self._mind_the_end(launch)
            session.workers_started(launch)
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

    # Torch's loop, and what was decided.

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._session.services.main_loop_turned()
        self._keep_held_workers(worker_group.spec.monitor_interval)
        due = self._session.hangs.take_due()
        if due is not None:
            return self._carry_out(due, worker_group)
        self._polling = True
        try:
            result: RunResult = super()._monitor_workers(worker_group)
        finally:
            self._polling = False
        if result.state == WorkerState.UNHEALTHY:
            # Torch's own check: a worker in uninterruptible sleep. It would end with exit code 0.
            done = self._session.done()
            return self._carry_out(
                self._session.decider.on_stuck_kernel(self._look_now(), done), worker_group
            )
        if result.state == WorkerState.UNKNOWN:
            # Never recovered: torch's loop raises.
            self._look_now()
            self._session.decider.on_unknown_state("its processes are not those that this agent started")
        if result.state == WorkerState.FAILED:
            return self._carry_out_failure(result, worker_group)
        return result

    def _keep_held_workers(self, interval: float) -> None:
        """Held workers are polled by nobody: torch's poll ends all of them when one ends."""
        while self._session.hangs.held is not None and self._ends.is_any_alive():
            self._session.services.main_loop_turned()
            time.sleep(interval)
