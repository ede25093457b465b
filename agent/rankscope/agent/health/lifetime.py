"""Whether the agent still lives, seen from the health server, which must not outlive it.

Three ways, because each one alone has a hole: the kernel's parent-death signal (it comes when the
*thread* that started the server ends, so it is only a reason to look), the parent's pid (a server started
by hand has another parent), and the agent's pid with its start time (a pid alone is used again).
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Final

LOOK_SIGNAL: Final = signal.SIGUSR1
"""Sent by the kernel when the agent, or only its thread that started the server, ended. Not SIGTERM:
a thread of the agent that ends must not take the server with it. The kernel sends it again when the next
thread ends (``forget_original_parent`` keeps ``pdeath_signal``)."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_STATE_FIELD: Final = 0
_START_FIELD: Final = 19


def start_ticks(pid: int) -> int | None:
    """Start time of a process (``/proc/<pid>/stat`` field 22), ``None`` when it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command's name may contain spaces and brackets: the fields start behind the last one.
    fields = stat[stat.rfind(b")") + 2 :].split()
    if fields[_STATE_FIELD] in (b"Z", b"X"):
        return None
    return int(fields[_START_FIELD])


class AgentLife:
    """The agent's process, by pid and start time."""

    def __init__(self, pid: int, ticks: int) -> None:
        self.pid = pid
        self._ticks = ticks
        self._is_parent = os.getppid() == pid

    def is_over(self) -> bool:
        """Whether the agent has ended (0.2 us when it is this process's parent, else a read of /proc)."""
        if self._is_parent:
            return os.getppid() != self.pid
        return start_ticks(self.pid) != self._ticks


def follow_parent(process_name: str) -> None:
    """Name this process and ask for ``LOOK_SIGNAL`` when its parent ends.

    Without prctl (a seccomp filter) the caller's periodic look still finds the end.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NAME, process_name.encode()[:15], 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, int(LOOK_SIGNAL), 0, 0, 0)
