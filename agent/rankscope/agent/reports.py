"""What the session hears from its threads, the watch's and the timers', and what is decided on it.

A part of the ``Session``, and owner of all that it consists of. What is decided is handed to the main thread
through ``hangs``; nothing here stops a worker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rankscope.agent.answering.answers import Answers
from rankscope.agent.answering.live_settings import LiveSettings
from rankscope.agent.checks import HostChecks
from rankscope.agent.deciding.decider import Decider
from rankscope.agent.deciding.hang_decisions import HangDecisions
from rankscope.agent.deciding.overrun_timers import OverrunTimers
from rankscope.agent.deciding.restart_clock import RestartClock
from rankscope.agent.ending.beside_main import BesideMain
from rankscope.agent.ending.looks import WorkerLooks
from rankscope.agent.ending.parting import Parting
from rankscope.agent.ending.signals import StopSignals
from rankscope.agent.evidence.c4d_severity import SeverityTimes
from rankscope.agent.evidence.taker import EvidenceTaker
from rankscope.agent.nodes.messages import Ruling
from rankscope.agent.notices.delivery import Notices
from rankscope.agent.observing.current import CurrentWorkers
from rankscope.agent.observing.observer import Observer
from rankscope.agent.observing.trained import Trained
from rankscope.agent.ranks.nested import NestedRanks
from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.services.running import Services
from rankscope.agent.settings.values import Settings
from rankscope.agent.telling.announcer import Announcer
from rankscope.agent.telling.bulletin import Bulletin
from rankscope.agent.telling.console import Console, LogLines
from rankscope.agent.telling.progress import Progress
from rankscope.agent.telling.worker_words import WorkerWords
from rankscope.agent.watching.reporter import TimerSignal
from rankscope.agent.watching.watch import Watch
from rankscope.agent.workers.model import Launch
from rankscope.diag.model import Diagnosis, Severity
from rankscope.diag.own_catalogue import found_catalogue
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.store.incidents import new_incident_id
from rankscope.diag.store.job import job_folder
from rankscope.watchdog import environment
from rankscope.watchdog.detector import Detector
from rankscope.watchdog.observations import ActDue, Recovered
from rankscope.watchdog.timers.wire import Event as PipeEvent

_SHOWN_FROM: Final[Mapping[str, frozenset[Severity]]] = {
    "Info": frozenset(("error", "warning", "info", "none")),
    "Warning": frozenset(("error", "warning")),
    "Error": frozenset(("error",)),
}
"""``--c4d-log-level``: the severities that are printed; all are stored."""


class SessionReports(Announcer):
    """What the parts of a session report.

    Args:
        run_id: the job's run id.
        command: what is trained, for the record.
        settings: what the user wants.
        nodes: ``MIN:MAX`` as asked for.
        own_host: address at which other nodes of the job reach this one, ``""`` where there are none.

    Attributes:
        current: the workers of the current launch.
        host_checks: what ``/health`` says of the host.
        decider: decides, and stores what it decided.
        looks: looks at workers before they are stopped.
        exit_codes: tells the exit codes of ranks that torch has reaped; set by the agent.
        signals: those that end the agent.
        beside_main: ends the job where the main thread does not.
        parting: tells of the end of workers.
        restart_clock: runs while a restart is under way.
        hangs: decides about hangs, and keeps what waits to be carried out.
    """

    def __init__(
        self,
        *,
        run_id: str,
        command: Sequence[str],
        settings: Settings,
        nodes: str = "",
        own_host: str = "",
    ) -> None:
        # An agent that is itself a worker (a nested launch) must not pass its mark on to its ranks.
        os.environ.pop(environment.RANK_PID, None)
        self.run_id = run_id
        self._command = tuple(command)
        self.settings = settings
        self.console = Console()
        self._log_lines = LogLines(self.console)
        self.records = Records(job_folder(run_id), self.console.once, shared=not nodes.endswith(":1"))
        self.folder = self.records.folder
        self.services = Services(settings, self.console, own_host=own_host)
        catalogue = found_catalogue(self.folder.path, say=self.console.once)
        self.evidence = EvidenceTaker(
            run_id,
            self.records,
            catalogue=catalogue,
            local_variables=settings.allow_locals,
            severities=SeverityTimes.of(settings.c4d_common_envs) if settings.c4d else None,
        )
        self.ledger = Ledger(self.records, run_id=run_id, command=command, nodes=nodes)
        self.words = WorkerWords(self.ledger, say=self.console.say, once=self.console.once)
        self.bulletin = Bulletin(self.records.node, run_id)
        self.host_checks = HostChecks(self.folder.path)
        self.decider = Decider(settings, self.ledger, self.console.say)
        self.signals = StopSignals()
        self.watch = self._make_watch()
        self.current = CurrentWorkers(self.watch.exit_times)
        self.nested = NestedRanks()
        self.looks = WorkerLooks(self.current, evidence=self.evidence, watch=self.watch, signals=self.signals)
        self.parting = Parting(
            records=self.records,
            ledger=self.ledger,
            bulletin=self.bulletin,
            looks=self.looks,
            watch=self.watch,
            say=self.console.say,
        )
        self._timers = OverrunTimers(
            self.current,
            watch=self.watch,
            services=self.services,
            decider=self.decider,
            say=self.console.say,
        )
        self.exit_codes: Callable[[], dict[int, int]] = dict
        self.restart_clock = RestartClock(settings.restart_timeout)
        live = LiveSettings(settings, ledger=self.ledger, use=self._use, say=self.console.say)
        self.answers = Answers(watch=self.watch, records=self.records, ledger=self.ledger, settings=live)
        self.beside_main = BesideMain(
            signals=self.signals, clock=self.restart_clock, decider=self.decider, say=self.console.say
        )
        self.hangs = HangDecisions(
            self.decider,
            watch=self.watch,
            current=self.current,
            clock=self.restart_clock,
            node=lambda: self.records.node,
            tells=self.records.tells_of,
            say=self.console.say,
        )
        self._notices: Notices | None = None
        self._progress = Progress(self.current.trained, self.ledger.progressed)

    def _make_watch(self) -> Watch:
        settings = self.settings
        # Independent workers hang alone, and a look at all of them would stop them for a moment.
        together = settings.execution_mode == "Sync"
        return Watch(
            settings=settings.hang,
            evidence=self.evidence,
            reporter=self,
            new_incident=lambda: new_incident_id(time.time()),
            exit_codes=self._reaped_codes,
            enabled=settings.hang_detection and together,
            stragglers=settings.straggler_interval != 0 and together,
            straggler_interval=settings.straggler_interval or None,
            holds_raising=together,
        )

    def _use(self, settings: Settings, anew: bool) -> None:  # noqa: FBT001 - a callback of one caller
        """Other settings hold from now on (control thread)."""
        self.settings = settings
        self.decider.use(settings)
        self.restart_clock.limit = settings.restart_timeout
        self.watch.change(
            settings.hang,
            stragglers=settings.straggler_interval != 0 and settings.execution_mode == "Sync",
            straggler_interval=settings.straggler_interval or None,
            anew=anew,
        )

    def _reaped_codes(self) -> dict[int, int]:
        # Of ranks below a worker torch knows nothing.
        return {} if self.current.are_nested else self.exit_codes()

    def done(self) -> Trained:
        """What the workers of this launch have got done; anything new of it is recorded (any thread)."""
        return self._progress.now()

    def _write_agent(self, phase: str) -> None:
        launch, services = self.current.ranks, self.services
        self.ledger.agent_is(
            phase,
            launch,
            address=services.address,
            page=services.page_path,
            api=services.api_url,
            token_file=services.token_file,
        )

    def _observer(self, launch: Launch) -> Observer:
        services = self.services
        return Observer(launch, services.page, timer_calls=services.timer_calls, log_sizes=services.log_sizes)

    def _look_below(self) -> None:
        """Where the ranks are below the workers, watch those instead (watch thread)."""
        ranks = self.nested.look()
        if ranks is None:
            return
        observer = self._observer(ranks)
        self.current.watch_instead(ranks, observer)
        self.watch.cycle_started(ranks, observer, self.services.page)
        if not self._progress.are_running:
            self.watch.cycle_ended()  # the main thread has told the watch of the end before the ranks came
        self.decider.workers = ranks.world_size
        self.ledger.ranks_found(ranks)
        self._write_agent("running")
        if self.current.are_nested:
            named = fold_ranks([one.rank for one in ranks.workers])
            self.console.say(f"ranks {named} of {ranks.world_size} run below the worker: they are watched")

    # What the watch thread reports.

    def on_tick(self, now: float, detector: Detector) -> None:
        """Stamp and publish health; look after our processes."""
        # First: that the agent lives must not depend on what there is to tell.
        self.services.watch_loop_turned()
        ranks = self.current.ranks
        status = self.bulletin.status(
            now,
            detector,
            ranks,
            self.current.observer,
            trouble=self.records.trouble,
            page=self.services.page is not None,
            host=self.host_checks.poll(now, [one.pid for one in ranks.workers] if ranks else ()),
            tallies=self.ledger.counted(
                captures=self.evidence.captures, timer_requests=self.services.timer_requests
            ),
        )
        self.services.publish(status)
        self.done()
        self.ledger.tick()
        self.beside_main.look_at_restart()
        if (waiting := self.hangs.waiting()) is not None:
            self.beside_main.look_at_due(*waiting)
        self._look_below()

    def tell(self, text: str) -> None:
        """Say something on the console."""
        self.console.say(text)

    def is_shown(self, severity: Severity) -> bool:
        """Whether what has this severity is printed (``--c4d-log-level``; never with C4D's classes off)."""
        return self.settings.c4d and severity in _SHOWN_FROM[self.settings.c4d_log_level]

    def on_act_due(self, diagnosis: Diagnosis, due: ActDue, *, progress_seen: bool) -> None:
        """Decide; the main thread carries it out."""
        lasting = self.evidence.lasting(diagnosis, due.gap)
        self.hangs.decide(lasting, due.gap, self.done(), progress_seen=progress_seen)

    def on_ruled(self, ruling: Ruling) -> None:
        """Another node has decided for all; the main thread carries it out."""
        self.hangs.follow(ruling)

    def on_recovered(self, diagnosis: Diagnosis, recovered: Recovered) -> None:
        """Say that a published hang is over; workers that were held go on."""
        super().on_recovered(diagnosis, recovered)
        self.hangs.held = None

    def on_timer_due(self, timer: TimerSignal, incident: str) -> None:
        """Decide about an expired timer; the signal it asked for comes last, unless its block has ended."""
        self._timers.due(timer, incident)

    # The timers' thread.

    def _on_pipe_event(self, event: PipeEvent) -> None:
        if event.name == "raised":
            self.watch.worker_raised(event.pid)
            return
        launch = self.current.ranks
        ranks = [worker.rank for worker in launch.workers] if launch is not None else []
        self.words.take(event, ranks=ranks, now=time.monotonic())
