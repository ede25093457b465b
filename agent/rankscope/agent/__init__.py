"""The agent acts: torch's elastic agent, extended to take evidence, decide and keep the record.

What other programs use is named here, and imported (with torch) when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rankscope.agent.elastic import DiagElasticAgent
    from rankscope.agent.health import HealthCheckServer, create_healthcheck_server
    from rankscope.agent.watched import launch

__all__ = ["DiagElasticAgent", "HealthCheckServer", "create_healthcheck_server", "launch"]
_MODULES: Final = {
    "DiagElasticAgent": "rankscope.agent.elastic",
    "HealthCheckServer": "rankscope.agent.health",
    "create_healthcheck_server": "rankscope.agent.health",
    "launch": "rankscope.agent.watched",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)
