"""``launch(config, fn)(*args)``: torch's ``elastic_launch``, watched, for programs that launch workers.

A session of its own surrounds each launch: records, health, watching, decisions, as under ``diag run``.
Results and errors are torch's. Nothing is done to the output of the workers, nor to this process.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from torch.distributed.elastic.agent.server.health_check_server import HealthCheckServer
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent.launcher import Entrypoint, entrypoint_name, launch_agent
from rankscope.agent.own_session import own_settings, session_of, watched
from rankscope.agent.ranks.assignment import check_scheme
from rankscope.agent.settings.values import Settings
from rankscope.agent.torchrun import agent_factory


def launch(
    config: LaunchConfig,
    entrypoint: Entrypoint,
    health_check_server: HealthCheckServer | None = None,
    *,
    settings: Settings | None = None,
) -> Callable[..., dict[int, Any]]:
    """Prepare a watched launch; call what it returns with the entrypoint's arguments.

    Args:
        config: torch's own.
        entrypoint: the function or command that every worker runs.
        health_check_server: handed to the agent where the installed torch knows one.
        settings: what is wanted beside that. When not given: environment and configuration file, and
            ``config.max_restarts`` is the number of restarts allowed.

    Returns:
        A function of the entrypoint's arguments; it blocks until the job is done and returns what torch's
        ``launch_agent`` returns, and raises what that raises.
    """

    def run(*args: object) -> dict[int, Any]:
        if not config.run_id:
            config.run_id = str(uuid.uuid4().int)
        command = [entrypoint_name(entrypoint, args) or "?"]
        wanted = settings or own_settings(config.max_restarts)
        check_scheme(wanted.rank_assignment, config.nproc_per_node)
        with watched(session_of(config, command, wanted)) as session:
            return launch_agent(
                config,
                entrypoint,
                args,
                make_agent=agent_factory(session),
                health_check_server=health_check_server,
            )

    return run
