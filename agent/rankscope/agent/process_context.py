"""What torch's process contexts know of their processes, whichever kind they are (commands or functions).

Reads torch's private names in one place. It must not know why processes end.
"""

from __future__ import annotations

import contextlib
import multiprocessing.process
from collections.abc import Collection
from typing import Any

from torch.distributed.elastic.multiprocessing import PContext


def leads_groups(pcontext: PContext) -> bool:
    """Whether each process leads a group of its own: torch starts commands so, and functions not."""
    return hasattr(pcontext, "subprocess_handlers")


def function_processes(pcontext: PContext) -> tuple[Any, ...]:
    """The processes of workers that are functions, none where they are commands."""
    return tuple(getattr(getattr(pcontext, "_pc", None), "processes", ()))


def exit_codes(pcontext: PContext) -> dict[int, int | None]:
    """Exit codes by local rank, ``None`` while it runs; nothing is reaped that torch would not."""
    handlers = getattr(pcontext, "subprocess_handlers", None)
    if handlers is not None:
        return {rank: handler.proc.poll() for rank, handler in handlers.items()}
    return {rank: process.exitcode for rank, process in enumerate(function_processes(pcontext))}


def noted_exit_codes(pcontext: PContext) -> dict[int, int | None]:
    """Exit codes by local rank as torch has noted them; polls nothing, for other threads than torch's."""
    handlers = getattr(pcontext, "subprocess_handlers", None)
    if handlers is not None:
        return {rank: handler.proc.returncode for rank, handler in dict(handlers).items()}
    return {
        rank: getattr(getattr(process, "_popen", None), "returncode", None)
        for rank, process in enumerate(function_processes(pcontext))
    }


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
