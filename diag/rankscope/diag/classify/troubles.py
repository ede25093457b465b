"""What the error text of a tool proves of the process it could not read.

Most texts prove nothing (a missing capability and a zombie read alike), and a rank that a tool failed on is
never counted as "lacks this frame". The few that only one state of a process gives are data here.
Texts: py-spy 0.4.3, measured.
"""

from __future__ import annotations

import re
from typing import Final

from rankscope.diag.model import RankSnapshot

# Attaching to a stopped process: the stop is reported in place of ours.
_STOPPED: Final = re.compile(r"unexpected waitpid result .*\bSIGSTOP\b")
# ``/proc/<pid>/exe`` of a zombie or of no process at all. With "os error 13" it is a missing capability.
_GONE: Final = re.compile(
    r"[Ff]ailed to get process executable name.*No such file or directory \(os error 2\)", re.DOTALL
)


def proves_stopped(rank: RankSnapshot) -> bool:
    """Whether a tool failed as it only does on a process stopped by a signal."""
    return not rank.threads and rank.reason is not None and _STOPPED.search(rank.reason) is not None


def proves_gone(rank: RankSnapshot) -> bool:
    """Whether a tool failed as it only does on a process that has ended."""
    return not rank.threads and rank.reason is not None and _GONE.search(rank.reason) is not None
