"""torch's launcher, built again from public classes so that the agent and the rendezvous can be ours.

``launch_agent(config, fn, args)`` does what ``torch.distributed.launcher.api.launch_agent`` does: same
configuration, same agent arguments, same events, errors and results. Two things differ: the class of the
agent is the caller's choice, and every round's workers get a store of their own, so that restarts come back
(``rendezvous.store``). It must not know what the agent watches or decides, nor anything of a command line.

What a newer or older torch adds or lacks is read off its classes (dataclass fields, ``__init__`` parameters);
versions are never compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import logging
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

from torch.distributed.elastic import events, metrics
from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec
from torch.distributed.elastic.agent.server.health_check_server import HealthCheckServer
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.metrics.api import MetricsConfig
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters, registry
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent.bounded_call import TookTooLongError, within
from rankscope.agent.rendezvous.own_address import name_by_address
from rankscope.agent.rendezvous.store import JOIN_TIMEOUT, FreshStoreRendezvous
from rankscope.agent.workers.outcomes import NodeLeavesError, RestartTimedOutError

log = logging.getLogger(__name__)
_CLOSE_SECONDS: Final = 5.0

SIGNALS: Final = "TORCHELASTIC_SIGNALS_TO_HANDLE"
"""Signals that the agent turns into ``SignalException``; read by torch when it starts processes."""

Entrypoint: TypeAlias = Callable[..., object] | str | None
"""A function, or a command whose arguments are the launch's."""
MakeAgent: TypeAlias = Callable[..., LocalElasticAgent]
"""Called with ``LocalElasticAgent``'s keyword arguments, those of the installed torch."""


def launch_agent(
    config: LaunchConfig,
    entrypoint: Entrypoint,
    args: Sequence[object],
    *,
    make_agent: MakeAgent | None = None,
    health_check_server: HealthCheckServer | None = None,
) -> dict[int, Any]:
    """Run this node's agent until the job is done.

    Args:
        config: torch's own; a missing ``run_id`` is filled in.
        entrypoint: the function or command that every worker runs.
        args: the entrypoint's arguments; the macro ``${local_rank}`` is filled in for each worker.
        make_agent: constructs the agent; torch's ``LocalElasticAgent`` if not given.
        health_check_server: handed to the agent where the installed torch knows one.

    Returns:
        What this node's workers returned, by global rank: None for commands. Empty after the node left the
        rendezvous of its own accord.

    Raises:
        ChildFailedError: workers failed and no restart is left; it carries the failures by global rank.
        SignalException: a signal ended the agent; the rendezvous stays open for the other nodes.
        ValueError: the configuration does not name a rendezvous.
        RendezvousError: the nodes did not meet.
    """
    if not config.run_id:
        config.run_id = str(uuid.uuid4().int)
        log.warning("config has no run_id, generated a random run_id: %s", config.run_id)
    name = entrypoint_name(entrypoint, args)
    log.info("launching %s: %s", name, {f.name: getattr(config, f.name) for f in dataclasses.fields(config)})
    if hasattr(config, "signals_to_handle"):
        os.environ[SIGNALS] = config.signals_to_handle
    spec = worker_spec(config, entrypoint, args)
    agent = (make_agent or LocalElasticAgent)(**_agent_arguments(config, spec, health_check_server))
    result = _run(agent, spec, config)
    if result is None:
        return {}
    if result.is_failed():
        raise ChildFailedError(name=name, failures=result.failures)
    return result.return_values


def worker_spec(config: LaunchConfig, entrypoint: Entrypoint, args: Sequence[object]) -> WorkerSpec:
    """The workers' blueprint, with a rendezvous handler from torch's registry that has fresh stores.

    Every field that ``config`` and the installed ``WorkerSpec`` both have is carried over. ``master_addr``
    and ``master_port`` stay unset: torch's agent lets them override the round's own address. On the static
    backend the handler itself gives them to the workers of the first round.

    Raises:
        ValueError: unknown backend, or an endpoint that the backend does not accept.
    """
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
    name_by_address(parameters)
    timeout = parameters.get_as_int("join_timeout") or parameters.get_as_int("timeout") or JOIN_TIMEOUT
    known = {field.name for field in dataclasses.fields(WorkerSpec)}
    shared: dict[str, Any] = {
        field.name: getattr(config, field.name) for field in dataclasses.fields(config) if field.name in known
    }
    shared |= {
        "local_world_size": config.nproc_per_node,
        "entrypoint": entrypoint,
        "args": tuple(args),
        "rdzv_handler": FreshStoreRendezvous(
            registry.get_rendezvous_handler(parameters), timeout=float(timeout)
        ),
    }
    return WorkerSpec(**shared)


def entrypoint_name(entrypoint: Entrypoint, args: Sequence[object]) -> str:
    """What errors call the workers: the function's name, the command, or the script that Python runs."""
    if entrypoint is None:
        return ""
    if callable(entrypoint):
        return str(getattr(entrypoint, "__name__", type(entrypoint).__name__))
    if entrypoint == sys.executable:
        return next((str(arg) for arg in args if not str(arg).startswith("-")), "")
    return entrypoint


def _agent_arguments(
    config: LaunchConfig, spec: WorkerSpec, health_check_server: HealthCheckServer | None
) -> dict[str, Any]:
    """What torch's launcher gives its agent: whatever of the configuration the installed agent takes.

    Newer torch adds such a pair now and then (``shutdown_timeout``, ``exit_barrier_timeout``).
    """
    taken = inspect.signature(LocalElasticAgent.__init__).parameters
    optional: dict[str, Any] = {
        field.name: getattr(config, field.name) for field in dataclasses.fields(config) if field.name in taken
    }
    optional["health_check_server"] = health_check_server
    return {"spec": spec, "logs_specs": config.logs_specs} | {
        name: value for name, value in optional.items() if name in taken and value is not None
    }


def _run(agent: LocalElasticAgent, spec: WorkerSpec, config: LaunchConfig) -> RunResult | None:
    """Run the agent; events and the rendezvous' end as torch's launcher has them.

    None, which torch's annotation does not tell, when the node left the rendezvous of its own accord.
    """
    close = spec.rdzv_handler.shutdown
    try:
        metrics.initialize_metrics(MetricsConfig(config.metrics_cfg))
        result = cast("RunResult | None", agent.run())
        # Says that the agent came to its end, not that its workers succeeded.
        events.record(agent.get_event_succeeded(), config.event_log_handler)
    except (SignalException, NodeLeavesError):
        # Closing the rendezvous would end the job for every other node, and for good.
        close = _leave_open
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    except RestartTimedOutError:
        # What the nodes meet in did not answer: it may not answer to this either.
        close = partial(_close_within, _CLOSE_SECONDS, spec.rdzv_handler)
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    except Exception:  # recorded and raised again, as torch's launcher does
        events.record(agent.get_event_failed(), config.event_log_handler)
        raise
    finally:
        close()
    return result


def _leave_open() -> bool:
    return False


def _close_within(seconds: float, handler: RendezvousHandler) -> bool:
    with contextlib.suppress(TookTooLongError):
        return within(seconds, handler.shutdown, name="rankscope-close")
    return False
