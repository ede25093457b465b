"""Reads what gloo, NCCL and the store say of connections that closed and waits that were in vain.

These lines are mostly consequences: a peer is gone, and its neighbours say so first. The forms of torch 1.x
to 2.13 and of NCCL 2.x.
"""

from __future__ import annotations

import re
from typing import Final

from rankscope.diag.read import FactKind, LogFact

_LONGEST: Final = 500
_NCCL: Final = re.compile(r"(\d{1,9}):\d{1,9} \[\d{1,3}\] ")
_CLOSED: Final = re.compile(
    r"[Cc]onnection (?:was )?(?:likely )?(?:closed|reset|refused)|Broken pipe|No route to host"
    r"|Call to (?:recv|send|connect) (?:from|to) .{1,200} failed"
    r"|remote process exited or there was a network error"
    r"|Got completion (?:from|with).{1,200} (?:error|status)|ncclRemoteError"
    r"|(?:recv|send)\w{0,30} failed on|[Ff]ailed to (?:recv|send|connect)|monitoredBarrier, but received"
    r"|flag on TCPStore|TCPStore server has shut down|socket (?:was )?closed|[Ss]ocket \w{1,20} failed",
)
_TIMED_OUT: Final = re.compile(
    r"[Tt]imed out|[Tt]imeout (?:after|waiting|caused|\[)|Socket Timeout|wait timeout|Connect timeout"
)
_AFTER: Final = re.compile(
    r"(?:after|waiting|timeout=|timeout) ?(\d{1,15}) ?(ms|milliseconds|seconds|secs|s)\b"
)
_CLOCK: Final = re.compile(r"timeout=(?:(\d{1,6}) days?, )?(\d{1,3}):(\d\d):(\d\d)")
_BARRIER_RANK: Final = re.compile(r"store based barrier on rank:? (\d{1,9})")
_SETTING_UP: Final = re.compile(r"\[(\d{1,9})\] is setting up NCCL communicator")
_REACHED: Final = re.compile(r"Rank (\d{1,9}) successfully reached monitoredBarrier")
_RANKS: Final = (_BARRIER_RANK, _SETTING_UP, _REACHED)


def wait_fact(text: str, *, number: int, rank: int | None, time: float | None) -> LogFact | None:
    """The fact that stands on a line, ``None`` when it tells nothing."""
    if " NCCL INFO " in text:
        return None  # the trail of a warning, or an orderly end
    kind: FactKind
    if _TIMED_OUT.search(text):
        kind = "wait_timeout"
    elif _CLOSED.search(text):
        kind = "connection_closed"
    else:
        return None
    if rank is None:
        rank = next((int(found[1]) for one in _RANKS if (found := one.search(text))), None)
    process = _NCCL.search(text) if "NCCL WARN" in text else None
    return LogFact(
        kind=kind,
        text=text.strip()[:_LONGEST],
        line=number,
        rank=rank,
        pid=int(process[1]) if process else 0,
        time=time,
        seconds=_seconds(text) if kind == "wait_timeout" else None,
    )


def _seconds(text: str) -> float | None:
    after = _AFTER.search(text)
    if after:
        return int(after[1]) / (1000 if after[2].startswith("m") else 1)
    clock = _CLOCK.search(text)
    if clock:
        days, hours, minutes, seconds = (int(one or 0) for one in clock.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    return None
