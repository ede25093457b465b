"""What a decision is made of beside the diagnosis: what the user allows, and what the job went through.

Plain values. Nothing here knows where settings come from nor how a job's past is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.agent.settings.values import ExecutionMode, FaultTolerantPolicy, Isolation, OnHang, Settings


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user allows (FAULT_TOLERANCE.md, "Settings").

    Attributes:
        on_hang: what to do about a hang that has outlasted the act-after limit.
        execution_mode: Sync: the workers start and stop as one; Async: each for itself.
        restart_enabled: whether the job may be restarted at all; without it no number of restarts counts.
        critical_roles: roles whose failed worker ends an Async job that may not be restarted.
        fault_tolerant_policy: which failures may be retried.
        max_same_error: how often the same error may come on one instance; below 1 for no limit.
        max_failure_rate: share of workers (0 to 1) that may fail, negative for no limit.
        no_progress_limit: restarts in a row that may pass without a new step; below 1 for no limit.
        isolate_nodes: whether a node that is to blame leaves the job; ``auto`` where the job can spare it.
        nodes_have_room: whether the job goes on with a node less (``--nnodes MIN:MAX``, more than MIN here).
    """

    on_hang: OnHang = "auto"
    execution_mode: ExecutionMode = "Sync"
    restart_enabled: bool = True
    critical_roles: tuple[str, ...] = ("ps", "chief")
    fault_tolerant_policy: FaultTolerantPolicy = "OnFailure"
    max_same_error: int = 10
    max_failure_rate: float = -1.0
    no_progress_limit: int = 3
    isolate_nodes: Isolation = "auto"
    nodes_have_room: bool = False

    @classmethod
    def of(cls, settings: Settings, *, nodes_have_room: bool) -> Rules:
        """The rules of some settings.

        Args:
            settings: all settings in force.
            nodes_have_room: whether the job goes on with a node less; known once nodes have met.
        """
        return cls(
            on_hang=settings.on_hang,
            execution_mode=settings.execution_mode,
            restart_enabled=settings.restart_enabled,
            critical_roles=settings.critical_roles,
            fault_tolerant_policy=settings.fault_tolerant_policy,
            max_same_error=settings.max_same_error,
            max_failure_rate=settings.max_failure_rate,
            no_progress_limit=settings.no_progress_limit,
            isolate_nodes=settings.isolate_nodes,
            nodes_have_room=nodes_have_room,
        )


@dataclass(frozen=True, slots=True)
class History:
    """What the job (Async: the worker) has been through.

    Attributes:
        restarts_used: restarts so far, of all nodes together.
        restarts_allowed: restarts allowed in all (``--max-restarts``, ``--max-num-of-job-restart``).
        same_errors: how often this very error has come on this very instance, this time included.
        without_progress: restarts in a row, the present launch's included, without a new step; a first
            launch is no restart.
        failed_workers: workers that failed; workers: all of the job.
        progress_seen: whether any rank ever made a step or completed a collective in this launch.
        interval_given: whether the user named the interval that has passed (``--job-hang-interval``, for an
            exit hang ``--job-exit-hang-interval``).
        progress_known: whether steps would be seen if there were any: no probe runs in a worker that is no
            Python, and the lack of steps says nothing of it.
    """

    restarts_used: int = 0
    restarts_allowed: int = 0
    same_errors: int = 0
    without_progress: int = 0
    failed_workers: int = 0
    workers: int = 0
    progress_seen: bool = True
    interval_given: bool = False
    progress_known: bool = True

    @property
    def restarts_left(self) -> int:
        """Restarts that are still allowed."""
        return max(0, self.restarts_allowed - self.restarts_used)
