"""After a tool was ended in the middle of a look: a target that it left stopped is continued.

A tool killed while it attaches can leave SIGSTOP pending or taken (measured: pystack on a process in state
D); then, and only then, the target gets SIGCONT. It must not know which tool it was.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from typing import Final

from rankscope.diag import proc

_SETTLE_SECONDS: Final = 0.005
_log = logging.getLogger(__name__)


def release(pid: int, start_ticks: int, *, tool: str) -> None:
    """Revive a target that ``tool`` left stopped, or about to stop when it wakes."""
    for pause in (0.0, _SETTLE_SECONDS):
        time.sleep(pause)
        if proc.start_ticks(pid) == start_ticks and proc.read_access(pid).stopped:
            _log.warning("process %d was left stopped by %s: SIGCONT sent", pid, tool)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
            return
