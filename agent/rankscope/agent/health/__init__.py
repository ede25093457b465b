"""Health over HTTP: a status page that the agent writes, and a server process that reads it."""

from __future__ import annotations

from rankscope.agent.health.callback import HealthCheckServer, create_healthcheck_server
from rankscope.agent.health.listen import HealthError
from rankscope.agent.health.process import HealthProcess
from rankscope.agent.health.status import (
    Check,
    HealthStatus,
    Phase,
    StatusWriter,
    Suspicion,
    WorkerHealth,
)

__all__ = [
    "Check",
    "HealthCheckServer",
    "HealthError",
    "HealthProcess",
    "HealthStatus",
    "Phase",
    "StatusWriter",
    "Suspicion",
    "WorkerHealth",
    "create_healthcheck_server",
]
