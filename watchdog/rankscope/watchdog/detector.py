"""The detector: suspect, confirm, clear. Events in, instructions out; no clock, process, file or thread.

It is told what was observed and answers what to do next. It never names a culprit (``diag.classify``
does) and never stops anything (``agent.policy`` decides). Transitions::

    watching    limit passed, timer expired      -> suspected    Capture a
    suspected   progress                         -> watching     Cleared
    suspected   a taken, WINDOW later            -> confirming   Capture b
    confirming  progress, or no longer quiet     -> watching     Cleared
    confirming  b taken, nothing moved           -> confirmed    Confirmed
    confirmed   progress                         -> watching     Recovered
    confirmed   act-after limit passed           -> acting       ActDue
    confirmed   not told yet, or now quiet       -> suspected    Capture a, again
    any         CycleStarted                     -> watching
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from rankscope.watchdog.limits import (
    LINGER_INTERVAL,
    LOOK_AGAIN_AFTER,
    PAUSE,
    QUIET_CEILING,
    TICKING_LIMIT,
    WINDOW,
    Clocks,
    HangSettings,
    act_after,
)
from rankscope.watchdog.observations import (
    ActDue,
    Capture,
    Captured,
    Cleared,
    Confirmed,
    CycleStarted,
    Diagnosed,
    Event,
    Instruction,
    RankObservation,
    Recovered,
    SinkClass,
    Situation,
    Tick,
    TimerExpired,
)
from rankscope.watchdog.situation import advanced, judge

State = Literal["watching", "suspected", "confirming", "confirmed", "acting"]
# A window a little shorter than asked is still one: ticks do not fall on whole seconds.
_WINDOW_SLACK = 0.5
_LIVELY: frozenset[SinkClass] = frozenset({"busy", "ticking"})


@dataclass(slots=True)
class _Suspicion:
    reason: str
    taken_at: float
    by_timer: bool = False
    again: bool = False
    a_taken: bool = False
    communicating: frozenset[int] = frozenset()


class Detector:
    """Watches the local ranks of one agent.

    Args:
        settings: the user's limits, ``HangSettings()`` for the learned ones.
    """

    def __init__(self, settings: HangSettings | None = None) -> None:
        self.state: State = "watching"
        self.settings = settings or HangSettings()
        self.clocks = Clocks(self.settings)
        self.last_progress = 0.0
        self.situation = Situation()
        self._last_busy = 0.0
        self._last_lively = 0.0
        self._ticks: deque[Tick] = deque()
        self._suspicion: _Suspicion | None = None
        self._act_after: float | None = None
        self._published_as: SinkClass = "none"
        self._told = True
        self._next_look = LOOK_AGAIN_AFTER
        self._patience = 0.0

    def handle(self, event: Event) -> tuple[Instruction, ...]:
        """Take in one event and say what is to be done now."""
        if isinstance(event, CycleStarted):
            self._restart(event.now)
            self.clocks.restart()
            return ()
        if isinstance(event, Tick):
            return self._tick(event)
        if isinstance(event, Captured):
            return self._captured(event)
        if isinstance(event, TimerExpired):
            return self._timer_expired(event)
        self._diagnosed(event)
        return ()

    def seconds_without_progress(self, now: float) -> float:
        """Time since the last sign of progress, or since the (re)start."""
        return now - self.last_progress

    def _restart(self, now: float) -> None:
        self.state = "watching"
        self.last_progress = self._last_busy = self._last_lively = now
        self._ticks.clear()
        self._suspicion = None
        self._act_after = None
        self._told, self._next_look, self._patience = True, LOOK_AGAIN_AFTER, 0.0
        self.situation = Situation()

    def _tick(self, tick: Tick) -> tuple[Instruction, ...]:
        previous = self._ticks[-1] if self._ticks else None
        if previous is not None and tick.now - previous.now > PAUSE:
            self._skip(tick.now - previous.now)
        self._remember(tick)
        if previous is not None and _moved(previous, tick):
            return self._progress(tick.now)
        self.situation = self._judge(tick)
        if self.situation.all_stopped:
            # "Job stopped by a signal" is no hang; the clocks start again when it is continued.
            return self._resumed(tick)
        self._run_clocks(tick)
        return self._advance(tick)

    def _remember(self, tick: Tick) -> None:
        self._ticks.append(tick)
        while len(self._ticks) > 2 and tick.now - self._ticks[1].now >= WINDOW:  # noqa: PLR2004 - two ends
            self._ticks.popleft()

    def _skip(self, seconds: float) -> None:
        """The agent's own ticks stood still (a paused machine): that time is nobody's silence."""
        self.last_progress += seconds
        self._last_busy += seconds
        self._last_lively += seconds
        self._ticks.clear()

    def _resumed(self, tick: Tick) -> tuple[Instruction, ...]:
        """The whole job was stopped by a signal: nothing before counts."""
        suspected = self.state in ("suspected", "confirming")
        gap = self.seconds_without_progress(tick.now)
        self._restart(tick.now)
        self._ticks.append(tick)
        return (Cleared("the whole job was stopped by a signal", gap),) if suspected else ()

    def _progress(self, now: float) -> tuple[Instruction, ...]:
        gap = self.seconds_without_progress(now)
        state, self.state = self.state, "watching"
        if self._last_busy > self.last_progress:
            self.clocks.learn_busy(gap)
        self.clocks.learn_quiet(now - max(self.last_progress, self._last_lively))
        self.last_progress = self._last_busy = self._last_lively = now
        published = state in ("confirmed", "acting") or (
            self._suspicion is not None and self._suspicion.again
        )
        self._suspicion = None
        self._act_after = None
        self._told, self._next_look, self._patience = True, LOOK_AGAIN_AFTER, 0.0
        if published:
            return (Recovered(gap),)
        return (Cleared("progress was seen", gap),) if state in ("suspected", "confirming") else ()

    def _judge(self, tick: Tick) -> Situation:
        first = self._ticks[0]
        suspicion = self._suspicion
        captures = int(suspicion is not None and suspicion.taken_at >= first.now)
        return judge(
            first.ranks,
            tick.ranks,
            seconds=tick.now - first.now,
            communicating=suspicion.communicating if suspicion else frozenset(),
            captures=captures,
        )

    def _run_clocks(self, tick: Tick) -> None:
        """Activity never is progress; it only picks the clock."""
        window_start = self._ticks[0].now
        if tick.now - window_start < WINDOW - _WINDOW_SLACK:
            return
        name = self.situation.sink_class
        # A window without activity says that the last of it was before the window began.
        self._last_busy = tick.now if name == "busy" else min(self._last_busy, window_start)
        lively = name in _LIVELY
        self._last_lively = tick.now if lively else min(self._last_lively, window_start)
        if _unprobed(tick) and (name == "busy" or _logs_grew(self._ticks[0], tick)):
            # No steps, no counters: life itself is all there is to go by.
            self.last_progress = tick.now

    def _advance(self, tick: Tick) -> tuple[Instruction, ...]:
        if self.state == "watching":
            reason = self._limit_passed(tick)
            return self._suspect(reason, tick.now) if reason else ()
        if self.state == "suspected":
            return self._want_second(tick.now)
        if self.state == "confirmed":
            return self._act(tick) or self._look_again(tick)
        return ()

    def _look_again(self, tick: Tick) -> tuple[Instruction, ...]:
        """What could not be told, or was told of a rank that worked, is gone over again."""
        silent = self.seconds_without_progress(tick.now)
        reason = self._quiet_limit_passed(tick) if self._published_as in _LIVELY else None
        if reason is None and not self._told and silent >= self._next_look:
            self._next_look = 2 * silent
            reason = f"no progress for {silent:.0f} s"
        return self._suspect(reason, tick.now, again=True) if reason else ()

    def _limit_passed(self, tick: Tick) -> str | None:
        now, name = tick.now, self.situation.sink_class
        if now - self._ticks[0].now < WINDOW - _WINDOW_SLACK:
            return None
        silent = self.seconds_without_progress(now)
        if (reason := self._quiet_limit_passed(tick)) is not None:
            return reason
        quiet_limit = self._quiet_limit(tick)
        ticking_for = now - max(self.last_progress, self._last_busy)
        if name == "ticking" and self.situation.waiting and ticking_for >= max(TICKING_LIMIT, quiet_limit):
            return f"no progress for {silent:.0f} s while others wait for a rank that polls"
        if name in _LIVELY and silent >= max(self.clocks.busy_limit(), self._patience):
            return f"no progress for {silent:.0f} s"
        return None

    def _quiet_limit(self, tick: Tick) -> float:
        limit = self.clocks.quiet_limit(patient=_young_children(tick, self.last_progress))
        return max(limit, self._patience)

    def _quiet_limit_passed(self, tick: Tick) -> str | None:
        quiet_for = tick.now - max(self.last_progress, self._last_lively)
        if self.situation.sink_class in _LIVELY or quiet_for < self._quiet_limit(tick):
            return None
        silent = self.seconds_without_progress(tick.now)
        return f"no progress for {silent:.0f} s and nobody is working"

    def _suspect(
        self, reason: str, now: float, *, by_timer: bool = False, again: bool = False
    ) -> tuple[Instruction, ...]:
        self.state = "suspected"
        self._suspicion = _Suspicion(reason, taken_at=now, by_timer=by_timer, again=again)
        return (Capture("a", reason, self.situation.sinks, again),)

    def _want_second(self, now: float) -> tuple[Instruction, ...]:
        suspicion = self._suspicion
        if suspicion is None or not suspicion.a_taken or now - suspicion.taken_at < WINDOW:
            return ()
        self.state = "confirming"
        suspicion.taken_at = now
        return (Capture("b", suspicion.reason, self.situation.sinks, suspicion.again),)

    def _captured(self, event: Captured) -> tuple[Instruction, ...]:
        suspicion = self._suspicion
        if suspicion is None:
            return ()
        if event.which == "a" and self.state == "suspected":
            suspicion.a_taken = True
            suspicion.communicating = event.communicating
            return ()
        if event.which == "b" and self.state == "confirming":
            suspicion.communicating |= event.communicating
            return self._confirm(suspicion, event.now)
        return ()

    def _confirm(self, suspicion: _Suspicion, now: float) -> tuple[Instruction, ...]:
        self.situation = self._judge(self._ticks[-1]) if self._ticks else self.situation
        silent = self.seconds_without_progress(now)
        lively = self.situation.sink_class == "busy" and silent < self.clocks.busy_limit()
        if lively and not suspicion.by_timer and not suspicion.again:
            self.state = "watching"
            self._suspicion = None
            return (Cleared("the awaited ranks are working", silent),)
        patience, reason = self._patience_for(suspicion)
        if silent < patience:
            self.state, self._patience = "watching", patience
            self._suspicion = None
            return (Cleared(f"nobody waits for anybody, and {reason}", silent),)
        self.state = "confirmed"
        self._published_as = self.situation.sink_class
        return (
            Confirmed(
                reason=suspicion.reason,
                since=self.last_progress,
                suspects=self.situation.sinks,
                waiting=self.situation.waiting,
                sink_class=self.situation.sink_class,
            ),
        )

    def _patience_for(self, suspicion: _Suspicion) -> tuple[float, str]:
        """Seconds that a job is given in which nobody waits, not even by the stacks, and why."""
        if suspicion.by_timer or self.situation.waiting:
            return 0.0, ""
        if self._ticks and _some_are_done(self._ticks[-1]):
            return self.clocks.within_interval(LINGER_INTERVAL), "some ranks have finished"
        if self.clocks.little_known:
            return self.clocks.within_interval(QUIET_CEILING), "the job is little known yet"
        return 0.0, ""

    def _diagnosed(self, event: Diagnosed) -> None:
        if self.state != "confirmed":
            return
        lively = self._published_as in _LIVELY
        self._told = event.hang
        self._act_after = act_after(
            self.settings, hang=event.hang, confidence=event.confidence, lively=lively
        )

    def _act(self, tick: Tick) -> tuple[Instruction, ...]:
        silent = self.seconds_without_progress(tick.now)
        if self._act_after is None or silent < self._act_after:
            return ()
        self.state = "acting"
        return (ActDue(silent),)

    def _timer_expired(self, event: TimerExpired) -> tuple[Instruction, ...]:
        if self.state != "watching":
            return ()
        return self._suspect(f"timer {event.scope} of rank {event.rank} expired", event.now, by_timer=True)


def _moved(previous: Tick, tick: Tick) -> bool:
    before = {rank.rank: rank for rank in previous.ranks}
    return any(rank.rank in before and advanced(before[rank.rank], rank) for rank in tick.ranks)


def _unprobed(tick: Tick) -> bool:
    return not any(rank.probed for rank in tick.ranks)


def _logs_grew(first: Tick, tick: Tick) -> bool:
    return _log_bytes(tick.ranks) > _log_bytes(first.ranks)


def _log_bytes(ranks: tuple[RankObservation, ...]) -> int:
    return sum(rank.log_bytes for rank in ranks)


def _some_are_done(tick: Tick) -> bool:
    return any(not rank.alive for rank in tick.ranks)


def _young_children(tick: Tick, last_progress: float) -> bool:
    born = [rank.youngest_child_born for rank in tick.ranks if rank.youngest_child_born is not None]
    return bool(born) and max(born) > last_progress
