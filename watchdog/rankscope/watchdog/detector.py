"""The detector: suspect, confirm, clear. Events in, instructions out; no clock, process, file or thread.

It is told what was observed and answers what to do next. It never names a culprit (``diag.classify``
does) and never stops anything (``agent.policy`` decides). Transitions::

    watching    limit passed, timer expired      -> suspected    Suspected, Capture a
    (a timer's suspicion ends with Confirmed, whatever progress is made)
    watching    a working rank is waited for     -> watching     Sample
    watching    the samples show a Python loop   -> confirming   Suspected, Capture b
    suspected   progress                         -> watching     Cleared
    suspected   a taken, a window later          -> confirming   Capture b
    confirming  progress, or it works after all  -> watching     Cleared
    confirming  b taken, nothing moved           -> confirmed    Confirmed
    confirmed   the verdict is Healthy           -> watching
    confirmed   progress                         -> watching     Recovered
    confirmed   act-after limit passed           -> acting       ActDue
    confirmed   not told yet, or now quiet       -> suspected    Suspected (again), Capture a
    acting      progress                         -> watching     Recovered
    acting      SettingsChanged, decide anew     -> confirmed
    acting      Postponed                        -> confirmed
    acting      JudgedAgain                      -> confirmed
    confirmed   ActedOn                          -> acting
    any but acting, and timers   JudgedForAll    -> confirmed
    any         CycleStarted                     -> watching
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from rankscope.watchdog.limits import (
    ALIVE_AGAIN_AFTER,
    ALL_QUIET_AFTER,
    FIRST_WINDOW,
    LIBRARY_LOOP_LIMIT,
    OVERDUE,
    STOPPED_AFTER,
    WINDOW,
    Clocks,
    HangSettings,
    act_after,
)
from rankscope.watchdog.observations import (
    ActDue,
    ActedOn,
    Capture,
    Captured,
    Cleared,
    Confirmed,
    CycleStarted,
    Diagnosed,
    Event,
    Instruction,
    JobContinued,
    JobStopped,
    JudgedAgain,
    JudgedForAll,
    Postponed,
    Recovered,
    Sample,
    Sampled,
    SettingsChanged,
    Situation,
    Suspected,
    Tick,
    TimerExpired,
)
from rankscope.watchdog.silence import LIVELY, Silence
from rankscope.watchdog.suspicion import Memory, Suspicion
from rankscope.watchdog.thresholds import Thresholds

State = Literal["watching", "suspected", "confirming", "confirmed", "acting"]


class Detector:
    """Watches the local ranks of one agent.

    Args:
        settings: the user's limits, ``HangSettings()`` for the learned ones.

    Attributes:
        moves: how often progress was seen.
    """

    def __init__(self, settings: HangSettings | None = None) -> None:
        self.state: State = "watching"
        self.clocks = Clocks(settings or HangSettings())
        self._silence = Silence()
        self._thresholds = Thresholds(self.clocks, self._silence)
        self._memory = Memory()
        self._suspicion: Suspicion | None = None
        self._stopped_since: float | None = None
        self._stop_told = False
        self.moves = 0

    @property
    def situation(self) -> Situation:
        """Who waits for whom, and how those behave."""
        return self._silence.situation

    @property
    def is_giving_time(self) -> bool:
        """Whether ranks here that others wait for work, and have not had the time that working ranks get."""
        latest, situation = self._silence.latest, self.situation
        if self.state != "watching" or latest is None or not situation.sinks:
            return False
        limit = self._thresholds.busy_limit(self._memory.patience)
        return situation.sink_class == "busy" and self._silence.seconds(latest.now) < limit

    def seconds_without_progress(self, now: float) -> float:
        """Time since the last sign of progress, or since the (re)start."""
        return self._silence.seconds(now)

    def handle(self, event: Event) -> tuple[Instruction, ...]:
        """Take in one event and say what is to be done now."""
        match event:
            case Tick():
                return self._tick(event)
            case CycleStarted():
                self._restart(event.now)
                self.clocks.restart()
                self._thresholds.ranks_elsewhere = event.ranks_elsewhere
                self._thresholds.window = FIRST_WINDOW if event.asks_others else WINDOW
                self._stopped_since, self._stop_told = None, False
            case Captured():
                return self._captured(event)
            case Sampled():
                return self._sampled(event)
            case TimerExpired():
                return self._timer_expired(event)
            case Diagnosed():
                self._diagnosed(event)
            case SettingsChanged():
                self._settings_changed(event)
            case JudgedForAll() | JudgedAgain() | ActedOn() | Postponed():
                self._of_the_whole_job(event)
        return ()

    def _restart(self, now: float) -> None:
        self.state = "watching"
        self._silence.restart(now)
        self._memory = Memory()
        self._suspicion = None

    # Ticks.

    def _tick(self, tick: Tick) -> tuple[Instruction, ...]:
        staged = any(rank.stage_limit is not None for rank in self._silence.ranks)
        if self._silence.take(tick):
            return (*self._continued(tick.now), *self._progress(tick.now, staged=staged))
        suspicion = self._suspicion
        self._silence.judge(
            communicating=suspicion.communicating if suspicion else frozenset(),
            captured_at=suspicion.taken_at if suspicion else None,
        )
        if self.situation.all_stopped:
            return self._stopped(tick)
        self._silence.run_clocks()
        return (*self._continued(tick.now), *self._advance(tick.now))

    def _progress(self, now: float, *, staged: bool) -> tuple[Instruction, ...]:
        self.moves += 1
        gap = self._silence.seconds(now)
        if not staged:
            self._learn(now, gap)
        state, published = self.state, self._memory.published
        self._silence.progress(now)
        self._memory = Memory()
        if self._looks_at_a_timer:
            # It has expired whatever the job does: evidence comes before the signal it asks for.
            return self._advance(now)
        self.state = "watching"
        self._suspicion = None
        if published:
            return (Recovered(gap),)
        return (Cleared("progress was seen", gap),) if state in ("suspected", "confirming") else ()

    @property
    def _looks_at_a_timer(self) -> bool:
        suspicion = self._suspicion
        looking = self.state in ("suspected", "confirming")
        return looking and suspicion is not None and suspicion.said.clock == "timer"

    def _learn(self, now: float, gap: float) -> None:
        """A gap that ended by itself, under the clocks that ran in it."""
        if self._suspicion is not None and self._suspicion.said.clock == "loop":
            self.clocks.learn_loop(gap)
        if self._silence.last_busy > self._silence.last_progress:
            self.clocks.learn_busy(gap)
        quiet_from = now - self._silence.quiet_for(now)
        if self._suspicion is not None:
            # The look itself wakes a quiet rank for a moment, which is no liveliness.
            quiet_from = min(quiet_from, self._suspicion.quiet_from)
        self.clocks.learn_quiet(now - quiet_from)

    def _stopped(self, tick: Tick) -> tuple[Instruction, ...]:
        """The whole job is stopped by a signal: nothing before counts, and nobody is to blame."""
        if self._stopped_since is None:
            self._stopped_since = tick.now
        suspected = self.state in ("suspected", "confirming")
        gap = self._silence.seconds(tick.now)
        self._restart(tick.now)
        self._silence.take(tick)
        stopped_for = tick.now - self._stopped_since
        said: list[Instruction] = []
        if suspected:
            said.append(Cleared("the whole job was stopped by a signal", gap))
        if stopped_for >= STOPPED_AFTER and not self._stop_told:
            self._stop_told = True
            said.append(JobStopped(stopped_for))
        return tuple(said)

    def _continued(self, now: float) -> tuple[Instruction, ...]:
        since, told = self._stopped_since, self._stop_told
        self._stopped_since, self._stop_told = None, False
        return (JobContinued(now - since),) if told and since is not None else ()

    def _advance(self, now: float) -> tuple[Instruction, ...]:
        if self.state == "watching":
            passed = self._thresholds.passed(now, patience=self._memory.patience)
            if passed is not None:
                return self._suspect(replace(passed, again=self._memory.published), now)
            return self._want_samples(now)
        if self.state == "suspected":
            return self._want_second(now)
        if self.state == "confirmed":
            return self._act(now) or self._look_again(now)
        return ()

    # From suspicion to publication.

    def _want_samples(self, now: float) -> tuple[Instruction, ...]:
        """A working rank that others wait for may be in an endless Python loop: samples tell."""
        silent = self._silence.seconds(now)
        if silent < self._memory.next_sample or not self._thresholds.samples_due(now):
            return ()
        self._memory.next_sample = max(2 * silent, LIBRARY_LOOP_LIMIT)
        self._memory.sampling = True
        return (Sample(self.situation.sinks),)

    def _suspect(self, said: Suspected, now: float) -> tuple[Instruction, ...]:
        self.state = "suspected"
        quiet_from = now - self._silence.quiet_for(now)
        self._suspicion = Suspicion(said, taken_at=now, quiet_from=quiet_from)
        works = bool(said.waiting) and said.sink_class == "busy"
        return (said, Capture("a", samples_of=said.suspects if works else ()))

    def _sampled(self, event: Sampled) -> tuple[Instruction, ...]:
        """Samples count for the silence in which they were asked for; progress has made them void."""
        asked, self._memory.sampling = self._memory.sampling, False
        if self.state != "watching" or not asked:
            return ()
        silent = self._silence.seconds(event.now)
        loops = event.loops | (event.library_loops if silent >= LIBRARY_LOOP_LIMIT else frozenset())
        looping = tuple(rank for rank in self.situation.sinks if rank in loops)
        if not looping or self.situation.sink_class != "busy":
            return ()
        reason = f"no progress for {silent:.0f} s while others wait for a rank in a Python loop"
        said = self._thresholds.suspected(reason, "loop", event.now, self.clocks.loop_limit())
        said = replace(said, sampled=True, again=self._memory.published)
        self.state = "confirming"
        self._suspicion = Suspicion(
            said, event.now, quiet_from=event.now, a_taken=True, communicating=event.communicating
        )
        return (said, Capture("b"))

    def _want_second(self, now: float) -> tuple[Instruction, ...]:
        suspicion = self._suspicion
        if suspicion is None or not suspicion.a_taken or now - suspicion.taken_at < self._thresholds.window:
            return ()
        self.state = "confirming"
        suspicion.taken_at = now
        return (Capture("b"),)

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

    def _confirm(self, suspicion: Suspicion, now: float) -> tuple[Instruction, ...]:
        self._silence.judge(communicating=suspicion.communicating, captured_at=suspicion.taken_at)
        silent = self._silence.seconds(now)
        why_not = self._excuse(suspicion, silent)
        if why_not:
            self.state = "watching"
            self._suspicion = None
            return (Cleared(why_not, silent),)
        self.state = "confirmed"
        self._memory.published = True
        self._memory.published_as = self.situation.sink_class
        return (
            Confirmed(
                reason=suspicion.said.reason,
                since=self._silence.last_progress,
                suspects=self.situation.sinks,
                waiting=self.situation.waiting,
                sink_class=self.situation.sink_class,
                clock=suspicion.said.clock,
                overdue=silent >= OVERDUE * self.clocks.busy_limit(),
            ),
        )

    def _excuse(self, suspicion: Suspicion, silent: float) -> str:
        """Why the suspicion is dropped although nothing moved; empty when it holds."""
        if suspicion.said.clock in ("timer", "stage", "loop") or suspicion.said.again:
            return ""
        if self.situation.sink_class == "busy" and silent < self._thresholds.busy_limit(
            self._memory.patience
        ):
            return "the awaited ranks are working"
        if self._thresholds.waits_for_elsewhere:  # known by the stacks only now
            given = self._thresholds.busy_limit(self._memory.patience)
            if silent < given:
                self._memory.patience = given
                return "who is waited for is on another node, and may be working"
        patience, reason = self._patience_for()
        if silent < patience:
            self._memory.patience = patience
            return f"nobody waits for anybody, and {reason}"
        return ""

    def _patience_for(self) -> tuple[float, str]:
        """Seconds that a job is given in which nobody waits, not even by the stacks, and why."""
        if self.situation.waiting:
            return 0.0, ""
        if self._silence.some_are_done:
            return self._thresholds.exit_limit, "some ranks have finished"
        if self.clocks.little_known:
            return self.clocks.within_interval(
                self.clocks.settings.quiet_ceiling
            ), "the job is little known yet"
        return self.clocks.within_interval(ALL_QUIET_AFTER), "all may be waiting for the same"

    # After publication.

    def _diagnosed(self, event: Diagnosed) -> None:
        if self.state != "confirmed":
            return
        if event.healthy:
            self._is_healthy()
            return
        lively = self._memory.published_as in LIVELY
        silent = self._silence.seconds(self._silence.latest.now) if self._silence.latest else 0.0
        # What was told of a rank that is alive is information only, until it has lasted.
        informed = event.hang and lively and silent < ALIVE_AGAIN_AFTER
        if informed:
            self._memory.next_look = ALIVE_AGAIN_AFTER
        self._memory.told = event.hang and not informed
        self._memory.verdict = event
        self._set_act_after()

    def _set_act_after(self) -> None:
        verdict, lively = self._memory.verdict, self._memory.published_as in LIVELY
        if verdict is not None:
            self._memory.act_after = act_after(
                self.clocks.settings, hang=verdict.hang, confidence=verdict.confidence, lively=lively
            )

    def _settings_changed(self, event: SettingsChanged) -> None:
        """Limits hold at once, also for a hang that is published already."""
        self.clocks.settings = event.settings
        self._set_act_after()
        if event.anew and self.state == "acting":
            self.state = "confirmed"

    def _of_the_whole_job(self, event: JudgedForAll | JudgedAgain | ActedOn | Postponed) -> None:
        match event:
            case JudgedForAll():
                self._judged_for_all(event)
            case JudgedAgain():
                if self.state == "acting":
                    self.state = "confirmed"
                    self._diagnosed(Diagnosed(hang=event.hang, confidence=event.confidence))
            case ActedOn():
                self.state = "acting" if self.state == "confirmed" else self.state
            case Postponed():
                self._postponed()

    def _judged_for_all(self, event: JudgedForAll) -> None:
        if self.state == "acting" or self._looks_at_a_timer:
            return
        self.state = "confirmed"
        self._suspicion = None
        self._memory.published = True
        self._memory.published_as = self.situation.sink_class
        self._diagnosed(Diagnosed(hang=event.hang, confidence=event.confidence))

    def _postponed(self) -> None:
        latest = self._silence.latest
        if self.state == "acting" and latest is not None:
            self.state = "confirmed"
            self._memory.postponed = 2 * self._silence.seconds(latest.now)

    def _is_healthy(self) -> None:
        """Ranks that work and wait for nobody: the same silence is given twice its length."""
        latest, suspicion = self._silence.latest, self._suspicion
        given = 2 * self._silence.seconds(latest.now) if latest is not None else 0.0
        published = suspicion is not None and suspicion.said.again
        self.state = "watching"
        self._suspicion = None
        self._memory = Memory(patience=given, next_sample=given, published=published)

    def _act(self, now: float) -> tuple[Instruction, ...]:
        silent = self._silence.seconds(now)
        limit = self._thresholds.own.act_after(self._memory.act_after)
        if limit is None or self._memory.verdict is None or silent < max(limit, self._memory.postponed):
            return ()
        self.state = "acting"
        return (ActDue(silent),)

    def _look_again(self, now: float) -> tuple[Instruction, ...]:
        """What could not be told, or was told of a rank that worked, is gone over again."""
        silent = self._silence.seconds(now)
        memory = self._memory
        thresholds = self._thresholds
        said = thresholds.quiet_passed(now, memory.patience) if memory.published_as in LIVELY else None
        if said is None and not memory.told and silent >= memory.next_look:
            reason = f"no progress for {silent:.0f} s"
            said = thresholds.suspected(reason, "again", now, memory.next_look)
            memory.next_look = self._next_look(silent)
        return self._suspect(replace(said, again=True), now) if said else ()

    def _next_look(self, silent: float) -> float:
        """At each doubling, and when a working rank is overdue."""
        overdue = OVERDUE * self.clocks.busy_limit()
        waits_for_it = self._memory.published_as in LIVELY and silent < overdue
        return min(2 * silent, overdue) if waits_for_it else 2 * silent

    def _timer_expired(self, event: TimerExpired) -> tuple[Instruction, ...]:
        if self._suspicion is not None and self.state in ("suspected", "confirming"):
            # The evidence that is being taken serves both.
            self._suspicion.said = replace(self._suspicion.said, clock="timer")
        if self.state != "watching":
            return ()
        reason = f"timer {event.scope} of rank {event.rank} expired"
        return self._suspect(self._thresholds.suspected(reason, "timer", event.now, 0.0), event.now)
