"""The watch thread: observes the workers, feeds the detector, carries out what it asks for.

Torch's own loop may block for minutes (rendezvous, exit barrier, a frozen store), so watching, evidence and
the stamps for health live here. Captures run in a second thread, so that ticks go on while tools run. The
thread never stops a worker: it hands a ``Decision`` to the main thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from rankscope.agent.evidence.taker import EvidenceTaker
from rankscope.agent.nodes.meeting import Meeting
from rankscope.agent.nodes.messages import Opening, Ruling
from rankscope.agent.observing.observer import Observer
from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.inquiry import Inquiry
from rankscope.agent.watching.joint import JointInquiry
from rankscope.agent.watching.mailbox import Mailbox
from rankscope.agent.watching.on_demand import OnDemand, Standing
from rankscope.agent.watching.questions import Proposal
from rankscope.agent.watching.raising import Raising
from rankscope.agent.watching.reporter import Reporter, TimerSignal
from rankscope.agent.watching.stragglers import Stragglers
from rankscope.agent.workers.exits import ExitWatch
from rankscope.agent.workers.model import Launch
from rankscope.diag.model import Diagnosis, ExitFacts, JobSnapshot
from rankscope.watchdog.detector import Detector
from rankscope.watchdog.limits import QUIET_FACTOR, HangSettings
from rankscope.watchdog.observations import (
    ActDue,
    ActedOn,
    Capture,
    Cleared,
    Confirmed,
    CycleStarted,
    Event,
    Instruction,
    JobContinued,
    JobStopped,
    Postponed,
    Recovered,
    Sample,
    SettingsChanged,
    Suspected,
    Tick,
    TimerExpired,
)
from rankscope.watchdog.page import PageReader

logger = logging.getLogger(__name__)
TICK: Final = 1.0
"""Seconds between two looks while the job moves, or has stood still for long."""
CLOSE_TICK: Final = 0.5
"""Seconds between two looks while a hang may be about to show."""
CLOSE_LOOK: Final = (2.0, 30.0)
"""Seconds without progress between which ``CLOSE_TICK`` holds."""
CHILDREN_AFTER: Final = 2.0
"""Seconds without progress from which children are looked for as well."""


class Watch:
    """Owns the watch thread and the collector thread of one agent."""

    def __init__(
        self,
        *,
        settings: HangSettings,
        evidence: EvidenceTaker,
        reporter: Reporter,
        new_incident: Callable[[], str],
        exit_codes: Callable[[], dict[int, int]],
        enabled: bool = True,
        stragglers: bool = False,
        straggler_interval: float | None = None,
        holds_raising: bool = True,
    ) -> None:
        self._reporter = reporter
        self._exit_codes = exit_codes
        self._enabled = enabled
        self.detector = Detector(settings)
        self._mailbox = Mailbox()
        self._post = self._mailbox.post
        self._collector = Collector()
        self._exits = ExitWatch(self._mailbox.wake_fd)
        self._launch: Launch | None = None
        self._observer: Observer | None = None
        self._raising = Raising(evidence, self._collector, ended=self.ended, holds=holds_raising)
        self._joint = JointInquiry(
            evidence=evidence,
            collector=self._collector,
            post=self._post,
            ended=self.ended,
            known=lambda: self._inquiry.published,
            published=self._judged_for_all,
            ruled=self._ruled_for_all,
            say=reporter.tell,
        )
        self._inquiry = Inquiry(
            evidence=evidence,
            reporter=reporter,
            collector=self._collector,
            joint=self._joint,
            post=self._post,
            tell=self._tell,
            new_incident=new_incident,
            ended=self.ended,
        )
        self._make_stragglers = partial(
            Stragglers,
            evidence=evidence,
            reporter=reporter,
            collector=self._collector,
            joint=self._joint,
            post=self._post,
            new_incident=new_incident,
        )
        self._stragglers = self._make_stragglers(straggler_interval) if stragglers else None
        self._on_demand = OnDemand(
            evidence=evidence,
            collector=self._collector,
            post=self._post,
            new_incident=new_incident,
            ended=self.ended,
            joint=self._joint,
        )
        self.look_now = self._on_demand.ask
        self._signals: list[TimerSignal] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="rankscope-watch", daemon=True)

    def start(self) -> None:
        """Start both threads."""
        self._thread.start()
        self._collector.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End both threads; gives up on a collector that is held by a tool after ``timeout`` seconds."""
        if self._thread.ident is None:
            return  # never started
        if self._stragglers is not None:
            self._stragglers.give_way()
        self._post(self._end)
        self._thread.join(timeout)
        self._collector.stop(timeout)
        if not self._thread.is_alive():
            self._close_observer()
            self._exits.close()
            self._mailbox.close()

    def cycle_started(self, launch: Launch, observer: Observer, page: PageReader | None) -> None:
        """New workers run (main thread)."""
        self._post(lambda: self._on_started(launch, observer, page))

    def cycle_ended(self) -> None:
        """The workers are about to be stopped, or have ended (main thread)."""
        self._post(self._on_ended)

    def round_begins(self, meeting: Meeting) -> None:
        """The agents of a job have met: incidents are the whole job's from now on (main thread)."""
        if self._enabled:
            self._post(lambda: self._joint.join(meeting))

    def round_ends(self) -> None:
        """The agents are about to meet anew, or the job ends (main thread)."""
        self._post(self._joint.leave)

    def propose(self, proposal: Proposal) -> bool:
        """Have all nodes agree on what is done; ``False`` where there is nobody to ask (watch thread)."""
        return self._joint.propose(proposal)

    def postpone(self) -> None:
        """What was due is not done now (watch thread)."""
        self._tell(Postponed())

    @property
    def rules_jointly(self) -> bool:
        """Whether an incident of the whole job is open, which may end with a ruling at any moment."""
        return self._joint.is_open

    def timer_expired(self, pid: int, scope: str, number: int) -> None:
        """A worker's timer ran out; ``number`` is the signal it asks for, 0 for none (timer thread)."""
        self._post(lambda: self._on_timer(pid, scope, number))

    def worker_raised(self, pid: int) -> None:
        """A worker reports an uncaught exception and waits for us (timer thread)."""
        self._post(lambda: self._on_raised(pid))

    def exit_times(self) -> dict[int, float]:
        """When local ranks ended, monotonic seconds."""
        return self._exits.times

    def ended(self) -> dict[int, ExitFacts]:
        """Local ranks that have ended, and how."""
        now = time.monotonic()
        codes = {**self._exit_codes(), **self._exits.codes}
        return {
            rank: ExitFacts(code=codes.get(rank), seconds_ago=now - then)
            for rank, then in self.exit_times().items()
        }

    def wait_for_raised(self, timeout: float) -> JobSnapshot | None:
        """The snapshot taken while a worker was raising, if one is there or comes within ``timeout``."""
        return self._raising.wait(timeout)

    def change(
        self, settings: HangSettings, *, stragglers: bool, straggler_interval: float | None, anew: bool
    ) -> None:
        """Other settings hold from now on (any thread); a hang that was acted on may be decided about anew.

        Args:
            settings: the limits.
            stragglers: whether what is slow is looked for.
            straggler_interval: seconds between two looks for it, ``None`` for only when steps take longer.
            anew: whether a hang that was acted on is acted on again, now or at the new limit.
        """
        self._post(lambda: self._tell(SettingsChanged(settings, anew)))
        self._post(lambda: self._change_stragglers(straggler_interval, wanted=stragglers))

    @property
    def suspected(self) -> bool:
        """Whether a suspicion is open of which nothing is stored yet."""
        return self._looks_on or self._inquiry.asking

    @property
    def _looks_on(self) -> bool:
        return self.detector.state in ("suspected", "confirming")

    @property
    def judging(self) -> bool:
        """Whether a verdict is being worked out and stored just now."""
        return self._inquiry.judging

    @property
    def stored_incident(self) -> str:
        """Id of the open incident if its evidence is on disk, else ``""``."""
        return self._inquiry.stored_incident if self.detector.state in ("confirmed", "acting") else ""

    @property
    def ever_moved(self) -> bool:
        """Whether any progress was seen since the workers started."""
        return self.detector.clocks.signs > 0

    def ordinary_silence(self, least: float) -> float:
        """Seconds without progress that this job has shown to be nothing unusual, ``least`` at least."""
        clocks = self.detector.clocks
        if clocks.warming_up:
            return least
        return max(least, clocks.quiet_limit(patient=False) / QUIET_FACTOR)

    def opened(self) -> tuple[str, JobSnapshot | None, float]:
        """The open suspicion: its incident's id, the first look if it was taken, seconds of silence."""
        silent = self.detector.seconds_without_progress(time.monotonic())
        return self._inquiry.incident, self._inquiry.first_look, silent

    # The watch thread.

    def _end(self) -> None:
        self._stopping = True
        self._joint.leave()
        self._on_demand.close()

    def _run(self) -> None:
        next_tick = time.monotonic()
        while not self._stopping:
            try:
                self._exits.poll(next_tick - time.monotonic())
                for message in self._mailbox.take():
                    message()
                now = time.monotonic()
                if now >= next_tick:
                    self._tick(now)
                    next_tick = now + self._pause(now)
            except Exception:  # the thread's edge
                logger.exception("rankscope's watch thread failed once; it goes on, training is untouched")
                next_tick = time.monotonic() + TICK

    def _pause(self, now: float) -> float:
        silent = self.detector.seconds_without_progress(now)
        return CLOSE_TICK if CLOSE_LOOK[0] <= silent <= CLOSE_LOOK[1] else TICK

    def _tick(self, now: float) -> None:
        if self._observer is not None and self._enabled:
            silent = self.detector.seconds_without_progress(now)
            ranks = self._observer.observe(now, with_children=silent > CHILDREN_AFTER)
            self._tell(Tick(now, ranks))
            if self._stragglers is not None:
                silent = self.detector.seconds_without_progress(now)
                calm = self.detector.state == "watching" and not self._on_demand.is_looking
                self._stragglers.tick(now, ranks, silent=silent, calm=calm)
        self._inquiry.tick(now)
        self._joint.tick(now, self.detector.moves, works=self.detector.is_giving_time)
        self._send_timer_signals()
        self._on_demand.tick(now, self._standing)
        self._reporter.on_tick(now, self.detector)

    def _tell(self, event: Event) -> None:
        instructions = self.detector.handle(event)
        if instructions:
            self._on_demand.give_way()
            self._joint.give_way()
            if self._stragglers is not None:
                self._stragglers.give_way()
        for instruction in instructions:
            self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        inquiry = self._inquiry
        match instruction:
            case Suspected():
                inquiry.suspected(instruction)
            case Capture():
                inquiry.look(instruction.which, samples_of=instruction.samples_of)
            case Sample():
                inquiry.look("sampled", samples_of=instruction.suspects)
            case Confirmed():
                inquiry.confirmed(instruction)
            case Cleared():
                inquiry.cleared(instruction)
            case Recovered():
                inquiry.recovered(instruction)
            case ActDue():
                inquiry.act_due(instruction)
            case JobStopped():
                self._reporter.on_stopped(seconds=instruction.seconds, continued=False)
            case JobContinued():
                self._reporter.on_stopped(seconds=instruction.seconds, continued=True)

    def _standing(self) -> Standing:
        situation = self.detector.situation
        works = bool(situation.waiting) and situation.sink_class == "busy"
        silent = self.detector.seconds_without_progress(time.monotonic())
        return Standing(
            calm=not (self.suspected or self._inquiry.judging),
            samples_of=situation.sinks if works else (),
            silent=silent if self._enabled else None,
            known=self._inquiry.published,
        )

    def _change_stragglers(self, interval: float | None, *, wanted: bool) -> None:
        now = time.monotonic()
        if wanted and self._stragglers is None:
            self._stragglers = self._make_stragglers(interval)
            if self._launch is not None and self._observer is not None:
                self._stragglers.begin(self._launch, self._observer, now)
        elif wanted and self._stragglers is not None:
            self._stragglers.look_every(interval, now)
        elif self._stragglers is not None:
            self._stragglers.end()
            self._stragglers = None

    def _on_started(self, launch: Launch, observer: Observer, page: PageReader | None) -> None:
        self._close_observer()
        self._launch, self._observer = launch, observer
        self._inquiry.begin(launch, observer)
        self._joint.begin(launch, observer)
        self._on_demand.begin(launch, observer)
        if self._stragglers is not None:
            self._stragglers.begin(launch, observer, time.monotonic())
        self._exits.watch(launch.workers)
        elsewhere = launch.world_size > len(launch.workers)
        self.detector.handle(
            CycleStarted(time.monotonic(), ranks_elsewhere=elsewhere, asks_others=self._joint.is_here)
        )
        self._raising.begin(page)

    def _judged_for_all(self, opening: Opening, found: Diagnosis, silent: float) -> None:
        self._inquiry.judged_for_all(opening, found, silent=silent)

    def _ruled_for_all(self, ruling: Ruling) -> None:
        self._tell(ActedOn())
        self._reporter.on_ruled(ruling)

    def _close_observer(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.close()

    def _on_ended(self) -> None:
        self._inquiry.end()
        self._joint.end()
        self._on_demand.end()
        if self._stragglers is not None:
            self._stragglers.end()
        self._close_observer()
        self._raising.end()
        self.detector.handle(CycleStarted(time.monotonic()))

    def _on_timer(self, pid: int, scope: str, number: int) -> None:
        rank = self._observer.rank_above(pid) if self._observer else -1
        if number > 0:
            self._signals.append(TimerSignal(pid, rank, scope, number))
        if self._enabled:
            # Its signal comes after the evidence of this node, and waits for no other node's.
            if self._inquiry.asking:
                self._joint.give_up_asking()
            self._tell(TimerExpired(time.monotonic(), rank, scope))

    def _send_timer_signals(self) -> None:
        """Timers have the last word: evidence of the suspicion they raised is taken first."""
        if self.suspected or self._inquiry.judging:
            return
        signals, self._signals = self._signals, []
        for each in signals:
            self._reporter.on_timer_due(each, self._inquiry.stored_incident)

    def _on_raised(self, pid: int) -> None:
        self._on_demand.give_way()
        if self._launch is not None and self._observer is not None:
            self._raising.raised(pid, self._launch, self._observer)
