"""Remembers which tools did not answer in time: whoever looks again tries the others first.

A tool that hangs (on a broken host, on a symbol server that is gone) costs its whole time limit at every
process, and those who wait may be workers that are to be stopped. It must not know why a tool is slow.
"""

from __future__ import annotations

import time
from typing import Final

from rankscope.diag.capture.plan import Backend, Step

REMEMBERED_SECONDS: Final = 600.0
LEAST_SECONDS: Final = 0.3
"""A tool that was cut sooner had no fair chance: a look takes 0.02-0.2 s, on a busy host more."""


class SlowTools:
    """What one agent knows of its tools. Thread-safe."""

    def __init__(self) -> None:
        self._since: dict[Backend, float] = {}

    def ran(self, tool: Backend, *, seconds: float, answered: bool) -> None:
        """Learn from one run that had so many seconds."""
        if answered:
            self._since.pop(tool, None)
        elif seconds >= LEAST_SECONDS:
            self._since[tool] = time.monotonic()

    def last(self, steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], str | None]:
        """The steps with those of slow tools at the end, and why a better tool comes later."""
        slow = [step.tool for step in steps if self._is_slow(step.tool)]
        quick = tuple(step for step in steps if step.tool not in slow)
        if not slow or not quick:
            return steps, None
        return (*quick, *(step for step in steps if step.tool in slow)), f"{slow[0]} did not answer before"

    def _is_slow(self, tool: Backend) -> bool:
        since = self._since.get(tool)
        return since is not None and time.monotonic() - since < REMEMBERED_SECONDS
