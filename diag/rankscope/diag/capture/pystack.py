"""Asks pystack whether a process is collecting garbage, for its frames show only the line that it began at.

Only that question is asked yet. The process is not stopped (``--no-block``), so an answer may be missed: ask
more than once. It knows no rank.
"""

from __future__ import annotations

import re
import time
from typing import Final

from rankscope.diag.capture.tool import find_tool, run_tool

LOOKS: Final = 3
_TIMEOUT: Final = 3.0  # seconds a look; measured 0.1-0.2 s on an idle machine
# `Traceback for thread 12 (python) [Has the GIL,Garbage collecting] (most recent call last):`, pystack 1.5
_COLLECTING: Final = re.compile(rb"^Traceback for thread .*\[[^\]]*Garbage collecting[^\]]*\]", re.MULTILINE)


def collects_garbage(
    pid: int, *, deadline: float, looks: int = LOOKS, pystack: str | None = None
) -> bool | None:
    """Whether a thread of the process was seen collecting garbage.

    Args:
        pid: the process.
        deadline: ``time.monotonic()`` at which to stop asking.
        looks: how often it is asked at most.
        pystack: path of the tool, found by default.

    Returns:
        ``None`` when no look succeeded: pystack is missing, or may not trace, or it is no Python process.
    """
    tool = pystack or find_tool("pystack")
    answered = False
    for _ in range(looks if tool is not None else 0):
        limit = min(deadline, time.monotonic() + _TIMEOUT)
        run = run_tool([str(tool), "remote", "--no-color", "--no-block", str(pid)], deadline=limit)
        if _COLLECTING.search(run.stdout):
            return True
        answered |= run.code == 0
        if time.monotonic() >= deadline:
            break
    return False if answered else None
