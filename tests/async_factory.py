"""Process contexts of independent workers, real ones, for tests of Async."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from tests.jobs import until
from torch.distributed.elastic.multiprocessing import LogsSpecs, start_processes

from rankscope.agent.async_mode.contexts import Contexts
from rankscope.agent.async_mode.worker import End

FORKS = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
"""From Python 3.12 on; spawned functions import torch anew, which takes seconds each."""


def contexts(
    specs: LogsSpecs,
    entrypoint: Any,
    args: list[tuple[Any, ...]],
    *,
    start_method: str = "spawn",
    **more: Any,
) -> Contexts:
    return Contexts(
        start_processes,
        name="worker",
        entrypoint=entrypoint,
        args=dict(enumerate(args)),
        envs={rank: {"RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": "0"} for rank in range(len(args))},
        logs_specs=specs,
        start_method=start_method,
        **more,
    )


def shell(specs: LogsSpecs, *scripts: str, **more: Any) -> Contexts:
    return contexts(specs, "/bin/sh", [("-c", script) for script in scripts], **more)


def ends_of(started: Contexts, wanted: int = 1) -> dict[int, End]:
    found: dict[int, End] = {}

    def enough() -> bool:
        found.update(started.poll())
        return len(found) >= wanted

    until(enough, f"{wanted} workers to end")
    return found


def attempts(specs: LogsSpecs) -> Path:
    (run,) = Path(specs.root_log_dir).iterdir()
    return run


@contextlib.contextmanager
def handlers_of_before() -> Generator[None]:
    """torch sets its own whenever it starts processes."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)
