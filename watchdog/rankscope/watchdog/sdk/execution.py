"""Tells which line of execution is running: the asyncio task if there is one, else the thread.

A line is an object of its own, not a number: numbers of threads and addresses of tasks are used again,
while a stage that a dead thread has left open may still be closed by another.
"""

from __future__ import annotations

import sys
import threading
from typing import Final
from weakref import WeakKeyDictionary


class _Line:
    """Identity of a line of execution."""

    __slots__ = ()


class _ThreadLine(threading.local):
    """Made anew in each thread that asks."""

    def __init__(self) -> None:
        self.line = _Line()


_THREAD: Final = _ThreadLine()
# Weak: a task that nobody waits for must be able to go, with the stages that it is in.
_TASKS: Final[WeakKeyDictionary[object, _Line]] = WeakKeyDictionary()


def current_line() -> object:
    """The running task's or thread's line; the same object each time."""
    task = _current_task()
    if task is None:
        return _THREAD.line
    return _TASKS.setdefault(task, _Line())


def _current_task() -> object:
    # A program that has not imported asyncio has no tasks, and need not pay for its import.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        task: object = asyncio.current_task()
    except Exception:  # noqa: BLE001 - no running loop, or the module is still being imported
        return None
    return task
