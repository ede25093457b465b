"""Timers over a named pipe: torch's protocol, client and server, in the standard library alone.

``wire`` turns values into lines and back. In the worker ``countdown`` has the user's ``with`` block,
``client`` what is sent and when, ``connection`` the writing end. In the agent (or alone, as torch's)
``server`` is the thread, ``pipe`` its reading end, ``intake`` sorts the lines, ``registry`` decides what
has expired, ``liveness`` whether its process still runs.

Names and signatures are those of ``torch.distributed.elastic.timer``.
"""

from __future__ import annotations

from rankscope.watchdog.timers.client import FileTimerClient
from rankscope.watchdog.timers.countdown import TimerClient, configure, expires
from rankscope.watchdog.timers.intake import TimerCounts
from rankscope.watchdog.timers.registry import ActiveTimer
from rankscope.watchdog.timers.server import FileTimerServer
from rankscope.watchdog.timers.wire import Event, FileTimerRequest, OversizeRequestError

__all__ = [
    "ActiveTimer",
    "Event",
    "FileTimerClient",
    "FileTimerRequest",
    "FileTimerServer",
    "OversizeRequestError",
    "TimerClient",
    "TimerCounts",
    "configure",
    "expires",
]
