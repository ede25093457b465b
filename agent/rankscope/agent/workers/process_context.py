"""What torch's process contexts know of their processes, whichever kind they are (commands or functions).

Reads torch's private names in one place. It must not know why processes end.
"""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import PContext


def leads_groups(pcontext: PContext) -> bool:
    """Whether each process leads a group of its own: torch starts commands so, and functions not."""
    return _handlers(pcontext) is not None


def function_processes(pcontext: PContext) -> tuple[Any, ...]:
    """The processes of workers that are functions, none where they are commands."""
    processes = getattr(getattr(pcontext, "_pc", None), "processes", ())
    # A stand-in for torch's context (a test's) answers every name with something.
    return tuple(processes) if isinstance(processes, list | tuple) else ()


def _handlers(pcontext: PContext) -> dict[int, Any] | None:
    """Torch's handlers of commands by local rank, ``None`` where workers are functions."""
    handlers = getattr(pcontext, "subprocess_handlers", None)
    return dict(handlers) if isinstance(handlers, dict) else None


def exit_codes(pcontext: PContext) -> dict[int, int | None]:
    """Exit codes by local rank, ``None`` while it runs; nothing is reaped that torch would not."""
    handlers = _handlers(pcontext)
    if handlers is not None:
        return {rank: handler.proc.poll() for rank, handler in handlers.items()}
    return {rank: process.exitcode for rank, process in enumerate(function_processes(pcontext))}


def noted_exit_codes(pcontext: PContext) -> dict[int, int | None]:
    """Exit codes by local rank as torch has noted them; polls nothing, for other threads than torch's."""
    handlers = _handlers(pcontext)
    if handlers is not None:
        return {rank: handler.proc.returncode for rank, handler in handlers.items()}
    return {
        rank: getattr(getattr(process, "_popen", None), "returncode", None)
        for rank, process in enumerate(function_processes(pcontext))
    }


def log_files(pcontext: PContext, local_rank: int) -> tuple[str, ...]:
    """The files that a worker's output goes to, standard error first; none where it is kept nowhere.

    torch's own and ours lie beside its error file; the context itself may name a pipe.
    """
    error_file = pcontext.error_files.get(local_rank, "")
    names = ("stderr", "stdout")
    beside = [Path(error_file).with_name(f"{name}.log") for name in names] if error_file else []
    told = [Path(getattr(pcontext, f"{name}s", {}).get(local_rank) or os.devnull) for name in names]
    return tuple(dict.fromkeys(str(path) for path in (*beside, *told) if path.is_file()))


def let_go(pcontext: PContext, left: Collection[int]) -> None:
    """Reap what has ended, and have nobody wait for the processes ``left`` (pids), which nothing ends.

    ``torch.multiprocessing`` and the interpreter's exit would join them for ever.
    """
    exit_codes(pcontext)
    for process in function_processes(pcontext):
        if process.pid not in left:
            continue
        process.join = _return_at_once
        process.is_alive = _is_not_alive
        with contextlib.suppress(AttributeError):
            multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]  # noqa: SLF001


def _return_at_once(_timeout: float | None = None) -> None:
    return


def _is_not_alive() -> bool:
    return False
