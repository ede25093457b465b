"""The watch thread: observes the workers, feeds the detector, carries out what it asks for.

Torch's own loop may block for minutes (rendezvous, exit barrier, a frozen store), so watching, evidence and
the stamps for health live here. Captures run in a second thread, so that ticks go on while tools run. The
thread never stops a worker: it hands a ``Decision`` to the main thread.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from rankscope.agent.collector import Collector
from rankscope.agent.evidence import EvidenceTaker, Incident, Samples
from rankscope.agent.exits import ExitWatch
from rankscope.agent.observe import Observer
from rankscope.agent.reporter import Reporter, TimerSignal
from rankscope.agent.workers import Launch
from rankscope.diag.model import Diagnosis, ExitFacts, JobSnapshot
from rankscope.watchdog.detector import Detector
from rankscope.watchdog.limits import HangSettings
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
    JobContinued,
    JobStopped,
    Recovered,
    Sample,
    Sampled,
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
CAPTURE_TIMEOUT: Final = 20.0
"""Seconds a snapshot may take; it replaces nobody's deadline but its own."""
CHILDREN_AFTER: Final = 2.0
"""Seconds without progress from which children are looked for as well."""
_RAISED_EVIDENCE: Final = 1.5
"""Seconds; a raising worker waits at most two."""


@dataclass(frozen=True, slots=True)
class _Taken:
    which: Literal["a", "b", "sampled"]
    cycle: int
    snapshot: JobSnapshot
    communicating: frozenset[int]
    samples: Samples


@dataclass(frozen=True, slots=True)
class _Judged:
    cycle: int
    diagnosis: Diagnosis
    confirmed: Confirmed


_Message = Callable[[], None]


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
    ) -> None:
        self._evidence = evidence
        self._reporter = reporter
        self._new_incident = new_incident
        self._exit_codes = exit_codes
        self._enabled = enabled
        self.detector = Detector(settings)
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._collector = Collector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._exits = ExitWatch(self._wake_read)
        self._launch: Launch | None = None
        self._observer: Observer | None = None
        self._page: PageReader | None = None
        self._cycle = 0
        self._incident = ""
        self._snapshots: dict[str, JobSnapshot] = {}
        self._samples = Samples()
        self._diagnosis: Diagnosis | None = None
        self._recovered: Recovered | None = None
        self._stored = self._judging = False
        self._signals: list[TimerSignal] = []
        self.raised: JobSnapshot | None = None
        self._raised_done = threading.Event()
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
        self._post(self._end)
        self._thread.join(timeout)
        self._collector.stop(timeout)
        if not self._thread.is_alive():
            self._close_observer()
            self._exits.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def cycle_started(self, launch: Launch, observer: Observer, page: PageReader | None) -> None:
        """New workers run (main thread)."""
        self._post(lambda: self._on_started(launch, observer, page))

    def cycle_ended(self) -> None:
        """The workers are about to be stopped, or have ended (main thread)."""
        self._post(self._on_ended)

    def timer_expired(self, pid: int, scope: str, number: int) -> None:
        """A worker's timer ran out; ``number`` is the signal it asks for, 0 for none (timer thread)."""
        self._post(lambda: self._on_timer(pid, scope, number))

    def worker_raised(self, pid: int) -> None:
        """A worker reports an uncaught exception and waits for us (timer thread)."""
        self._post(lambda: self._on_raised(pid))

    def exit_times(self) -> dict[int, float]:
        """When local ranks ended, monotonic seconds."""
        return self._exits.times

    def wait_for_raised(self, timeout: float) -> JobSnapshot | None:
        """The snapshot taken while a worker was raising, if one is there or comes within ``timeout``."""
        if self._raised_done.wait(timeout):
            return self.raised
        return None

    @property
    def suspected(self) -> bool:
        """Whether a suspicion is open of which nothing is stored yet."""
        return self.detector.state in ("suspected", "confirming")

    def opened(self) -> tuple[str, JobSnapshot | None, float]:
        """The open suspicion: its incident's id, the first look if it was taken, seconds of silence."""
        silent = self.detector.seconds_without_progress(time.monotonic())
        return self._incident, self._snapshots.get("a"), silent

    # The watch thread.

    def _post(self, message: _Message) -> None:
        self._messages.put(message)
        try:
            os.write(self._wake_write, b"\0")
        except OSError:
            # Full means it will wake anyway; closed means it has ended.
            return

    def _end(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        next_tick = time.monotonic()
        while not self._stopping:
            try:
                self._exits.poll(next_tick - time.monotonic())
                self._drain_wake()
                self._handle_messages()
                now = time.monotonic()
                if now >= next_tick:
                    self._tick(now)
                    next_tick = now + self._pause(now)
            except Exception:
                logger.exception("rankscope's watch thread failed once; it goes on, training is untouched")
                next_tick = time.monotonic() + TICK

    def _pause(self, now: float) -> float:
        silent = self.detector.seconds_without_progress(now)
        return CLOSE_TICK if CLOSE_LOOK[0] <= silent <= CLOSE_LOOK[1] else TICK

    def _drain_wake(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            return

    def _handle_messages(self) -> None:
        while True:
            try:
                message = self._messages.get_nowait()
            except queue.Empty:
                return
            message()

    def _tick(self, now: float) -> None:
        if self._observer is not None and self._enabled:
            silent = self.detector.seconds_without_progress(now)
            ranks = self._observer.observe(now, with_children=silent > CHILDREN_AFTER)
            self._carry_out(self.detector.handle(Tick(now, ranks)))
        self._send_timer_signals()
        self._reporter.on_tick(now, self.detector)

    def _carry_out(self, instructions: tuple[Instruction, ...]) -> None:
        for instruction in instructions:
            match instruction:
                case Suspected():
                    self._on_suspected(instruction)
                case Capture():
                    self._take(instruction.which, samples_of=instruction.samples_of)
                case Sample():
                    self._take("sampled", samples_of=instruction.suspects)
                case Confirmed():
                    self._on_confirmed(instruction)
                case Cleared():
                    self._reporter.on_cleared(self._incident, instruction)
                case Recovered():
                    self._on_recovered(instruction)
                case ActDue():
                    self._on_act_due(instruction)
                case JobStopped():
                    self._reporter.on_stopped(seconds=instruction.seconds, continued=False)
                case JobContinued():
                    self._reporter.on_stopped(seconds=instruction.seconds, continued=True)

    def _on_act_due(self, due: ActDue) -> None:
        if self._diagnosis is not None:
            seen = _progress_seen(self._snapshots.values())
            self._reporter.on_act_due(self._diagnosis, due, progress_seen=seen)

    def _on_recovered(self, recovered: Recovered) -> None:
        if self._diagnosis is None:
            # The diagnosis is still being worked out: it is told first.
            self._recovered = recovered
        else:
            self._reporter.on_recovered(self._diagnosis, recovered)
        self._diagnosis = None

    def _on_started(self, launch: Launch, observer: Observer, page: PageReader | None) -> None:
        self._close_observer()
        self._cycle += 1
        self._launch, self._observer, self._page = launch, observer, page
        self._incident, self._diagnosis, self._recovered = "", None, None
        self._snapshots, self._samples = {}, Samples()
        self._judging = False
        self.raised = None
        self._raised_done.clear()
        self._exits.watch(launch.workers)
        self.detector.handle(CycleStarted(time.monotonic()))
        if page is not None:
            page.want_hold(True)

    def _close_observer(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            observer.close()

    def _on_ended(self) -> None:
        self._cycle += 1
        self._close_observer()
        self._page = None
        self.detector.handle(CycleStarted(time.monotonic()))

    def _on_timer(self, pid: int, scope: str, number: int) -> None:
        rank = self._observer.rank_above(pid) if self._observer else -1
        if number > 0:
            self._signals.append(TimerSignal(pid, rank, scope, number))
        if self._enabled:
            self._carry_out(self.detector.handle(TimerExpired(time.monotonic(), rank, scope)))

    def _send_timer_signals(self) -> None:
        """Timers have the last word: evidence of the suspicion they raised is taken first."""
        state = self.detector.state
        if state in ("suspected", "confirming") or self._judging:
            return
        signals, self._signals = self._signals, []
        for each in signals:
            self._reporter.on_timer_due(each, self._incident if self._stored else "")

    def _on_suspected(self, suspected: Suspected) -> None:
        if not suspected.again or not self._incident:
            self._incident = self._new_incident()
            self._stored = False
            self._diagnosis = self._recovered = None
        first = self._snapshots.get("sampled") if suspected.sampled else None
        self._snapshots = {"a": first} if first is not None else {}
        self._reporter.on_suspected(self._incident, suspected)

    def _take(self, which: Literal["a", "b", "sampled"], *, samples_of: tuple[int, ...]) -> None:
        launch, observer, cycle = self._launch, self._observer, self._cycle
        if launch is None or observer is None:
            return

        def take() -> None:
            samples = Samples()
            try:
                snapshot = self._evidence.snapshot(
                    launch, observer, timeout=CAPTURE_TIMEOUT, exits=self._ended()
                )
                communicating = self._evidence.communicating(snapshot)
                if samples_of:
                    pause = self._collector.pause
                    samples = self._evidence.samples(launch, observer, samples_of, pause=pause)
            except Exception as error:
                # The detector must hear of it, or it would wait for this snapshot for ever.
                logger.exception("rankscope could not take a snapshot")
                snapshot = self._evidence.unseen(launch, f"the capture failed: {error!r}")
                communicating = frozenset()
            taken = _Taken(which, cycle, snapshot, communicating, samples)
            self._post(lambda: self._on_taken(taken))

        self._collector.put(take)

    def _on_taken(self, taken: _Taken) -> None:
        if taken.cycle != self._cycle:
            return
        self._snapshots[taken.which] = taken.snapshot
        if taken.samples.looks:
            self._samples = taken.samples
        now = time.monotonic()
        if taken.which == "sampled":
            loops, library = taken.samples.loops, taken.samples.library_loops
            event: Event = Sampled(now, taken.communicating, loops, library)
        else:
            event = Captured(now, taken.which, taken.communicating)
        self._carry_out(self.detector.handle(event))

    def _on_confirmed(self, confirmed: Confirmed) -> None:
        silent = time.monotonic() - confirmed.since
        incident = Incident(
            self._incident,
            self._snapshots["a"],
            self._snapshots.get("b"),
            silent,
            samples=self._samples.looks,
            overdue=confirmed.overdue,
            kept=confirmed.clock == "timer",
        )
        cycle = self._cycle
        self._judging = True

        def judge() -> None:
            try:
                diagnosis = self._evidence.judge(incident)
            except Exception as error:
                logger.exception("rankscope could not diagnose an incident")
                diagnosis = self._evidence.not_judged(incident, f"the diagnosis failed: {error!r}")
            judged = _Judged(cycle, diagnosis, confirmed)
            self._post(lambda: self._on_judged(judged))

        self._collector.put(judge)

    def _on_judged(self, judged: _Judged) -> None:
        diagnosis = judged.diagnosis
        if judged.cycle != self._cycle:
            return
        self._judging = False
        healthy = diagnosis.verdict == "Healthy"
        self._stored = not healthy or judged.confirmed.clock == "timer"
        before = self._diagnosis
        if not healthy:
            self._diagnosis = diagnosis
        hang = diagnosis.verdict in ("RankCommHang", "RankNonCommHang", "Exited")
        self.detector.handle(Diagnosed(hang=hang, confidence=diagnosis.confidence, healthy=healthy))
        if not _says_the_same(before, diagnosis):
            self._reporter.on_diagnosed(diagnosis, judged.confirmed)
        recovered, self._recovered = self._recovered, None
        if recovered is not None and not healthy:
            self._on_recovered(recovered)

    def _on_raised(self, pid: int) -> None:
        launch, observer, page = self._launch, self._observer, self._page
        worker = observer.worker_of(pid) if observer else None
        if launch is None or observer is None or page is None or worker is None:
            return
        page.want_hold(False)

        def take() -> None:
            try:
                self.raised = self._evidence.snapshot(
                    launch, observer, timeout=_RAISED_EVIDENCE, exits=self._ended()
                )
            finally:
                self._raised_done.set()
                for other in launch.workers:
                    page.answer(other.local_rank, time.monotonic_ns())

        self._collector.put(take, urgent=True)

    def _ended(self) -> dict[int, ExitFacts]:
        now = time.monotonic()
        codes = {**self._exit_codes(), **self._exits.codes}
        return {
            rank: ExitFacts(code=codes.get(rank), seconds_ago=now - then)
            for rank, then in self.exit_times().items()
        }


def _says_the_same(before: Diagnosis | None, now: Diagnosis) -> bool:
    """Whether a second look at the same incident came to the same end."""
    fields = ("incident", "verdict", "kind", "culprits", "severity")
    return before is not None and all(getattr(before, name) == getattr(now, name) for name in fields)


def _progress_seen(snapshots: Iterable[JobSnapshot]) -> bool:
    """Whether any rank ever made a step or completed a collective."""
    known = (rank.progress for snapshot in snapshots for rank in snapshot.ranks if rank.progress)
    return any(
        progress.step > 0 or any(group.completed > 0 for group in progress.groups) for progress in known
    )
