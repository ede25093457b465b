"""The sessions of launches; above all of an agent that nobody has given one, made by itself or by a program.

The process belongs to somebody else: it is never ended here, and its signal handlers are given back. It must
not know torch's agent nor what is launched.
"""

from __future__ import annotations

import contextlib
import os
import signal
from argparse import Namespace
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent.ranks.assignment import check_scheme
from rankscope.agent.rendezvous.own_address import host_for_others
from rankscope.agent.rendezvous.store import inner_of
from rankscope.agent.session import Session
from rankscope.agent.settings.resolution import resolve
from rankscope.agent.settings.values import Settings


def session_for(spec: WorkerSpec) -> Session:
    """A session for the workers of a spec; not opened.

    Raises:
        UsageError: a setting of the environment is not allowed, or the workers cannot have such ranks.
    """
    handler = spec.rdzv_handler
    limits: Any = getattr(inner_of(handler), "settings", None)
    nodes = f"{limits.min_nodes}:{limits.max_nodes}" if hasattr(limits, "max_nodes") else ""
    name: str = spec.get_entrypoint_name()  # type: ignore[no-untyped-call]  # torch's own
    settings = own_settings(spec.max_restarts)
    check_scheme(settings.rank_assignment, spec.local_world_size)
    return Session(run_id=handler.get_run_id(), command=[name], settings=settings, nodes=nodes)


def session_of(config: LaunchConfig, command: Sequence[str], settings: Settings) -> Session:
    """A session for a launch by torch's configuration; not opened."""
    return Session(
        run_id=config.run_id,
        command=command,
        settings=settings,
        nodes=f"{config.min_nodes}:{config.max_nodes}",
        own_host=host_for_others(config),
    )


def own_settings(max_restarts: int) -> Settings:
    """The settings of environment and configuration file, with torch's number of restarts as if by its flag.

    Raises:
        UsageError: a value is not allowed.
    """
    return resolve(Namespace(max_restarts=max_restarts), os.environ)


@contextlib.contextmanager
def watched(session: Session) -> Generator[Session]:
    """Open a session, and close it with how it went; the caller's signal handlers come back."""
    # All: which of them torch gets handlers for is the caller's configuration.
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    result, code = "failed", 1
    try:
        session.open(capture_logs=False)
        for note in session.settings.notes:
            session.console.say(note)
        yield session
        result, code = "succeeded", 0
    except SignalException as error:
        session.signals.acting()
        result = f"stopped by {error.sigval.name}"
        raise
    finally:
        if code and session.decision is not None:
            code = session.decision.exit_code or code
        _give_back(before, session)
        session.close(result=result, exit_code=code)


def _give_back(before: Mapping[signal.Signals, Any], session: Session) -> None:
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) == session.signals.handle:
            with contextlib.suppress(ValueError):  # another thread than the main one may not
                signal.signal(number, handler)
