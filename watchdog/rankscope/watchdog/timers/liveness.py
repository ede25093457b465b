"""Whether the process that set a timer still runs: a dead one cannot hang, and its pid may be another's."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_SLACK: Final = 0.1
"""Seconds; start times in /proc are rounded to ticks of 10 ms."""


def is_running(pid: int, *, seconds_ago: float = 0.0) -> bool:
    """Whether ``pid`` is a process that runs, and already did ``seconds_ago``.

    A zombie does not run. Where ``/proc`` cannot be read, what ``kill(pid, 0)`` says holds.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    try:
        with Path(f"/proc/{pid}/stat").open("rb", buffering=0) as file:
            text = file.read(1024)
    except OSError:
        return True
    # The name, field 2, is in parentheses and may hold anything; field 3 is the state, 22 the start.
    fields = text[text.rfind(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return False
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS_PER_SECOND
    return age + _SLACK >= seconds_ago
