"""From torchrun's parsed flags to a launch with our agent; what ``torch.distributed.run.run`` does.

It must not know what is watched or decided.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsSpecs
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import config_from_args, parse_min_max_nnodes

from rankscope.agent.elastic import DiagElasticAgent
from rankscope.agent.logs.specs import CapturedLogsSpecs
from rankscope.agent.session import Session

_PLAIN_ID = re.compile(r"[\w.:@+=~ -]{1,60}")
DEFAULT_MASTER_PORT = 29500
"""torchrun's default for the static rendezvous."""


def config_of(arguments: argparse.Namespace) -> tuple[LaunchConfig, Callable[..., Any] | str, list[str]]:
    """The launch configuration, with torchrun's own defaults for a single node.

    Raises:
        ValueError, AssertionError, RuntimeError: torch does not accept a flag's value.
    """
    torch.multiprocessing._set_thread_name("pt_elastic")  # noqa: SLF001 - as torchrun does
    single = parse_min_max_nnodes(arguments.nnodes)[1] == 1
    unnamed = (
        arguments.rdzv_backend == "static" and not arguments.rdzv_endpoint and arguments.master_port is None
    )
    if arguments.standalone or (unnamed and single):
        given = arguments.rdzv_id
        arguments.rdzv_backend = "c10d"
        arguments.rdzv_endpoint = "localhost:0"
        # torchrun makes one up here, whatever it was given; torch makes file names of it: a plain one stays.
        plain = given != "none" and _PLAIN_ID.fullmatch(given) is not None
        arguments.rdzv_id = given if plain else str(uuid.uuid4())
        if given not in ("none", arguments.rdzv_id):
            sys.stderr.write(
                f"rankscope: --rdzv-id {given!r} cannot name the job's files, it is {arguments.rdzv_id}\n"
            )
    if arguments.master_port is None:
        arguments.master_port = DEFAULT_MASTER_PORT
    config, entrypoint, entry_arguments = config_from_args(arguments)
    return config, entrypoint, entry_arguments


def agent_factory(session: Session) -> Callable[..., LocalElasticAgent]:
    """What makes the agent once the launcher has its arguments."""

    def make(**arguments: Any) -> LocalElasticAgent:
        if session.settings.execution_mode == "Async":
            from rankscope.agent.async_mode.agent import AsyncElasticAgent

            return AsyncElasticAgent(session=session, **arguments)
        return DiagElasticAgent(session=session, **arguments)

    return make


def captured_logs(session: Session, config: LaunchConfig, *, is_function: bool) -> LogsSpecs | None:
    """Log specs that send the workers' output through our pipes; what was there when that cannot be."""
    if session.services.logs is None or not session.records.usable:
        return config.logs_specs
    shown: set[int] | None = getattr(config.logs_specs, "_local_ranks_filter", None)
    try:
        captured = CapturedLogsSpecs(
            session.services.logs,
            session.records.node_path / "logs",
            function_entrypoint=is_function,
            local_ranks_filter=shown,
        )
    except OSError as error:
        session.console.say(f"log capture is off ({error.strerror or error})")
        return config.logs_specs
    _remove_unused(config.logs_specs)
    return captured


def _remove_unused(specs: LogsSpecs | None) -> None:
    """Torch has made a temporary folder for logs that are ours now; one with anything in it stays."""
    folder = specs.root_log_dir if specs is not None else ""
    if Path(folder).name.startswith("torchelastic_"):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
