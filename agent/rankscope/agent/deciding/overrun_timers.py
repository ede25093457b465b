"""Timers that workers have set and overrun: evidence first, then the decision, and the signal last of all.

Between the timers' thread, the watch and the policy. It must not know what the evidence is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

from rankscope.agent.deciding.decider import Decider
from rankscope.agent.observing.current import CurrentWorkers
from rankscope.agent.services.running import Services
from rankscope.agent.watching.reporter import TimerSignal
from rankscope.agent.watching.watch import Watch
from rankscope.watchdog.timers.registry import signal_of
from rankscope.watchdog.timers.wire import FileTimerRequest


class OverrunTimers:
    """Deals with timers that have expired.

    Args:
        current: the workers.
        watch: is told of them, for evidence.
        services: have the timers.
        decider: decides.
        say: shows a line.
    """

    def __init__(
        self,
        current: CurrentWorkers,
        *,
        watch: Watch,
        services: Services,
        decider: Decider,
        say: Callable[[str], None],
    ) -> None:
        self._current = current
        self._watch = watch
        self._services = services
        self._decider = decider
        self._say = say

    def expired(self, pid: int, requests: Sequence[FileTimerRequest]) -> None:
        """Timers of a process have run out (timers' thread)."""
        asking = signal_of(requests)
        scope = requests[0].scope_id if requests else ""
        self._watch.timer_expired(pid, scope, asking.signal if asking is not None else 0)

    def due(self, timer: TimerSignal, incident: str) -> None:
        """Its evidence is stored: decide, and send the signal unless the block has ended (watch thread)."""
        if not self._current.own(timer.pid):
            return
        what = f"timer {timer.scope!r} of process {timer.pid} (rank {timer.rank})"
        if not self._services.timer_is_overrun(timer.pid, timer.scope):
            self._say(f"{what} had expired, its block has ended since: no signal is sent")
            return
        name = _name(timer.number)
        is_rank = self._current.is_rank(timer.pid)
        if self._decider.on_timer(what, signal_name=name, is_rank=is_rank, incident=incident):
            try:
                os.kill(timer.pid, timer.number)
            except OSError as error:
                self._say(f"{name} could not be sent to process {timer.pid}: {error.strerror}")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those for real time, or none
        return f"signal {number}"
