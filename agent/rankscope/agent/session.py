"""The agent's session: what happens to the workers, told to the watch, the ledger, the services and the user.

One session an agent process, between torch's agent (main thread), the watch thread and the timers' thread.
What is decided is handed to the main thread through ``take_due``; nothing here stops a worker.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from rankscope.agent.announcer import Announcer
from rankscope.agent.bulletin import Bulletin
from rankscope.agent.console import Console, LogLines
from rankscope.agent.evidence import EvidenceTaker, Incident
from rankscope.agent.health import Phase
from rankscope.agent.last_look import take_last_look, time_to_look
from rankscope.agent.ledger import Ledger
from rankscope.agent.observe import Observer
from rankscope.agent.policy import History, decide_on_hang, decide_on_timer
from rankscope.agent.records import Records
from rankscope.agent.reporter import TimerSignal
from rankscope.agent.services import Services
from rankscope.agent.settings import Settings
from rankscope.agent.stop_signals import StopSignals
from rankscope.agent.struck import Ends, split_ends
from rankscope.agent.watch import Watch
from rankscope.agent.worker_words import WorkerWords
from rankscope.agent.workers import Launch, WorkerRef
from rankscope.diag import proc
from rankscope.diag.model import Decision, Diagnosis, ExitFacts, Frame, JobSnapshot
from rankscope.diag.own_catalogue import found_catalogue
from rankscope.diag.store.events import iso_time
from rankscope.diag.store.incidents import new_incident_id
from rankscope.diag.store.job import job_folder
from rankscope.watchdog import environment
from rankscope.watchdog.detector import Detector
from rankscope.watchdog.observations import ActDue
from rankscope.watchdog.probe import pythonpath
from rankscope.watchdog.timers.registry import signal_of
from rankscope.watchdog.timers.wire import Event as PipeEvent
from rankscope.watchdog.timers.wire import FileTimerRequest


class Session(Announcer):
    """What an agent has beyond torch's.

    Args:
        run_id: the job's run id.
        command: what is trained, for the record.
        settings: what the user wants.
        nodes: ``MIN:MAX`` as asked for.

    Attributes:
        decision: the last one, also when it was torch's.
        restarts: tells restarts left and allowed; set by the agent.
        exit_codes: tells the exit codes of ranks that torch has reaped; set by the agent.
        signals: those that end the agent.
        end_workers: ends the workers without the main thread; set by the agent.
        abandon: ends the process without the main thread; set by whoever owns the process.
        launch: the workers of the current launch.
    """

    def __init__(self, *, run_id: str, command: Sequence[str], settings: Settings, nodes: str = "") -> None:
        # An agent that is itself a worker (a nested launch) must not pass its mark on to its ranks.
        os.environ.pop(environment.RANK_PID, None)
        self.run_id = run_id
        self.settings = settings
        self.console = Console()
        self._log_lines = LogLines(self.console)
        self._log_lines.attach()
        alone = nodes.endswith(":1")
        self.records = Records(job_folder(run_id), self.console.once, shared=not alone)
        self.folder = self.records.folder
        self.services = Services(settings, self.console)
        catalogue = found_catalogue(self.folder.path, say=self.console.once)
        self.evidence = EvidenceTaker(run_id, self.records, catalogue=catalogue)
        self.ledger = Ledger(self.records, run_id=run_id, command=command, nodes=nodes)
        self.words = WorkerWords(self.ledger, say=self.console.say, once=self.console.once)
        self.bulletin = Bulletin(self.records.node, run_id)
        self.watch = Watch(
            settings=settings.hang,
            evidence=self.evidence,
            reporter=self,
            new_incident=lambda: new_incident_id(time.time()),
            exit_codes=self._reaped_codes,
            enabled=settings.hang_detection,
            stragglers=settings.straggler_interval != 0,
            straggler_interval=settings.straggler_interval or None,
        )
        self.exit_codes: Callable[[], dict[int, int]] = dict
        self.signals = StopSignals()
        self.end_workers: Callable[[signal.Signals], None] | None = None
        self.abandon: Callable[[signal.Signals], None] | None = None
        self.decision: Decision | None = None
        self.restarts: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.launch: Launch | None = None
        self._observer: Observer | None = None
        self._lock = threading.Lock()
        self._due: Decision | None = None
        self._starting = False

    # Start and end.

    def open(self, *, capture_logs: bool) -> None:
        """Start what can be started; nothing here stops the launch (main thread)."""
        self.signals.start(self._end_beside_main)
        self.services.start_health()
        self.services.start_timers(
            self.run_id,
            on_expired=self._on_timers_expired,
            on_event=self._on_pipe_event,
            is_known_pid=self._is_ours,
        )
        if capture_logs:
            self.services.start_logs()
        self.watch.start()
        self.ledger.job_started()
        self._write_agent("starting")
        self.console.say(self._greeting())

    def finish_output(self) -> None:
        """Wait until the workers' last output is in the files and on the console.

        Raises:
            SignalException: a signal came while the console was still taking output.
        """
        self.services.finish_logs()

    def close(self, *, result: str, exit_code: int) -> None:
        """End everything else this session started; takes a moment."""
        self.phase("ended", None)
        self.watch.stop()
        self.words.finish()
        self.ledger.job_ended(result, exit_code)
        self._write_agent("ended")
        self.services.close()
        self.records.close()
        self.signals.stop()
        self._log_lines.detach()
        self.console.close()

    def _greeting(self) -> str:
        parts = [f"job {self.run_id}"]
        if self.records.usable:
            parts.append(f"records in {self.folder.path}")
        if self.services.address is not None:
            host, port = self.services.address
            parts.append(f"health on http://{f'[{host}]' if ':' in host else host}:{port}/health")
        return ", ".join(parts)

    def _write_agent(self, phase: str) -> None:
        self.ledger.agent_is(phase, self.launch, address=self.services.address, page=self.services.page_path)

    def _reaped_codes(self) -> dict[int, int]:
        return self.exit_codes()

    # What the main thread tells the session.

    def worker_env(self, local_rank: int, environ: Mapping[str, str]) -> dict[str, str]:
        """What a worker gets in its environment, beside torch's own.

        Args:
            local_rank: its slot in the page.
            environ: what it would have without us.
        """
        self._starting = True
        env = self.services.worker_env(local_rank)
        env[environment.JOB_DIR] = str(self.folder.path)
        env["PYTHONPATH"] = pythonpath(environ.get("PYTHONPATH"))
        return env

    def workers_started(self, launch: Launch) -> None:
        """New workers run: watch them."""
        self.take_due()  # what was decided about earlier workers is void
        services = self.services
        observer = Observer(
            launch, services.page, timer_calls=services.timer_calls, log_sizes=services.log_sizes
        )
        self.launch, self._observer, self._starting = launch, observer, False
        self.watch.cycle_started(launch, observer, services.page)
        self.phase("running", None)
        self.ledger.cycle_started(launch)
        self._write_agent("running")

    def workers_stopping(self) -> None:
        """The workers are about to be stopped, or have ended."""
        self.watch.cycle_ended()
        if self.launch is not None:
            self.services.forget_timers([worker.pid for worker in self.launch.workers])

    def phase(self, name: Phase, seconds: float | None) -> None:
        """Enter a phase; ``seconds`` is its own deadline."""
        self.bulletin.phase = name
        self.services.phase(name, seconds)

    def restart_begins(self, decision: Decision | None, *, restarts: int) -> None:
        """A restart is under way, because of ``decision`` or of a change of the membership."""
        last = self.bulletin.last
        self.ledger.restart_begins(
            decision,
            restarts=restarts,
            verdict=last.verdict if last and decision else "",
            summary=last.summary if last and decision else "",
        )

    def take_due(self) -> Decision | None:
        """The decision that waits to be carried out, once."""
        with self._lock:
            due, self._due = self._due, None
        return due

    def decided(self, decision: Decision) -> None:
        """Store a decision before it is carried out."""
        self.decision = decision
        self.ledger.decided(decision)

    # Evidence before the end (main thread).

    def evidence_now(self, exits: Mapping[int, ExitFacts], *, deadline: float) -> JobSnapshot | None:
        """A snapshot of what is still alive, before ``deadline``; ``None`` without workers.

        Args:
            exits: ranks that have ended, and how.
            deadline: when all must be judged and stored, monotonic seconds.
        """
        launch, observer = self.launch, self._observer
        if launch is None or observer is None:
            return None
        return self.evidence.snapshot(launch, observer, timeout=time_to_look(deadline), exits=exits)

    def judge_now(self, snapshot: JobSnapshot) -> Diagnosis:
        """Diagnose and store a single snapshot as an incident of its own."""
        return self._judge(Incident(new_incident_id(time.time()), snapshot, kept=True))

    def ends(self, exits: Mapping[int, ExitFacts]) -> Ends:
        """Tell the ends of what stops the agent from those that came before it."""
        first = self.signals.first
        ago = time.monotonic() - first[0] if first is not None else None
        return split_ends(exits, signalled_ago=ago)

    def last_look(
        self,
        why: str,
        deadline: float,
        *,
        exits: Callable[[], Mapping[int, ExitFacts]],
        enough: Callable[[], None],
    ) -> None:
        """Look at workers that are stopped for no fault of their own, store and say how they were doing.

        Args:
            why: what stops them.
            deadline: when it must be done, monotonic seconds.
            exits: tells which ranks have ended, and how.
            enough: called when the workers are not needed any more.
        """
        launch, observer = self.launch, self._observer
        if launch is None or observer is None:
            return
        found = take_last_look(
            launch,
            observer,
            watch=self.watch,
            evidence=self.evidence,
            why=why,
            deadline=deadline,
            new_incident=lambda: new_incident_id(time.time()),
            ends=lambda: self.ends({**self.watch.ended(), **exits()}),
            enough=enough,
        )
        if found is None:
            self.ledger.stopping(why, self.watch.stored_incident or None)
            return
        self.bulletin.last = found.diagnosis
        self.ledger.stopping(why, found.diagnosis.incident, found.diagnosis, silent=found.silent)
        self._say_where(found.diagnosis)

    def workers_left(self, left: Sequence[WorkerRef]) -> None:
        """Record and say that workers could not be ended."""
        for worker in left:
            facts = proc.read_facts(worker.pid, now=time.monotonic())
            state = facts.state if facts is not None else "?"
            where = (facts.wchan if facts is not None else "") or ""
            self.ledger.worker_left(worker.rank, worker.pid, state, where)
            asleep = f" (state {state}{f', in {where}' if where else ''})"
            self.console.say(
                f"rank {worker.rank}, process {worker.pid}{asleep}, did not end, not even by SIGKILL; "
                "it is left behind, and this node may have to be restarted"
            )

    def _end_beside_main(self, sent: signal.Signals) -> None:
        """The main thread does not answer a signal: workers and agent end without it (signals' thread)."""
        self.console.say(
            f"{sent.name} came, and the main thread does not answer: it waits in torch, for a store that "
            "does not answer or for other nodes; the job ends without it"
        )
        if self.end_workers is not None:
            self.end_workers(sent)
        if self.abandon is not None and not self.signals.is_acted_on:
            self.abandon(sent)

    def _judge(self, incident: Incident) -> Diagnosis:
        diagnosis = self.evidence.judge(incident)
        self.bulletin.last = diagnosis
        return diagnosis

    def workers_failed(self, diagnosis: Diagnosis, exits: Mapping[int, ExitFacts]) -> None:
        """Record and announce that workers ended by themselves."""
        self.ledger.workers_failed(diagnosis.incident, exits)
        self._say_where(diagnosis)

    def _say_where(self, diagnosis: Diagnosis) -> None:
        place = self.stored_at(diagnosis)
        if place:
            self.console.say(f"{diagnosis.summary}\nstored in {place}")
        else:
            # The process ends next, and its memory with it: this is the only place left.
            why = self.records.why_not_stored(diagnosis.incident or "")
            self.console.say(f"{self.bulletin.in_full(diagnosis)}\nnot stored ({why})")

    def last_words(self, worker: WorkerRef) -> tuple[str, Frame | None]:
        """What a worker's probe reported of its uncaught exception: its last line, and where it came from."""
        view = self._observer.slot(worker) if self._observer is not None else None
        if view is None or view.raised_at is None:
            return (view.raised_text if view is not None else ""), None
        function, file, line = view.raised_at
        return view.raised_text, Frame(function=function, file=file, line=line)

    # What the watch thread reports.

    def on_tick(self, now: float, detector: Detector) -> None:
        """Stamp and publish health; look after our processes."""
        status = self.bulletin.status(
            now,
            detector,
            self.launch,
            self._observer,
            trouble=self.records.trouble,
            page=self.services.page is not None,
        )
        self.services.watch_loop_turned(status)

    def tell(self, text: str) -> None:
        """Say something on the console."""
        self.console.say(text)

    def on_act_due(self, diagnosis: Diagnosis, due: ActDue, *, progress_seen: bool) -> None:
        """Decide; the main thread carries it out."""
        left, allowed = self.restarts()
        history = History(
            restarts_left=left,
            restarts_allowed=allowed,
            interval_given=self.settings.hang.act_after is not None,
            progress_seen=progress_seen,
        )
        decision = decide_on_hang(
            diagnosis,
            history,
            silent_seconds=due.gap,
            on_hang=self.settings.on_hang,
            time=iso_time(time.time()),
        )
        self.decided(decision)
        self.console.say(f"{decision.action}: {decision.reason}")
        if decision.action in ("restart", "fail"):
            with self._lock:
                self._due = decision

    def on_timer_due(self, timer: TimerSignal, incident: str) -> None:
        """Decide about an expired timer; the signal it asked for comes last, unless its block has ended."""
        if not self._is_ours(timer.pid):
            return
        what = f"timer {timer.scope!r} of process {timer.pid} (rank {timer.rank})"
        if not self.services.timer_is_overrun(timer.pid, timer.scope):
            self.console.say(f"{what} had expired, its block has ended since: no signal is sent")
            return
        left, allowed = self.restarts()
        name = signal.Signals(timer.number).name
        decision, send = decide_on_timer(
            what,
            signal_name=name,
            is_rank=self.launch is not None and any(one.pid == timer.pid for one in self.launch.workers),
            history=History(restarts_left=left, restarts_allowed=allowed),
            on_hang=self.settings.on_hang,
            time=iso_time(time.time()),
            incident=incident,
        )
        self.ledger.decided(decision)
        self.console.say(f"{decision.action}: {decision.reason}")
        if send:
            try:
                os.kill(timer.pid, timer.number)
            except OSError as error:
                self.console.say(f"{name} could not be sent to process {timer.pid}: {error.strerror}")

    # The timers' thread.

    def _is_ours(self, pid: int) -> bool:
        """Whether a pid is a worker of this agent or descends from one."""
        # Workers speak before torch has told their pids: until then whatever descends from the agent.
        workers = (worker.pid for worker in (self.launch.workers if self.launch else ()))
        return proc.descends_from(pid, {os.getpid()} if self._starting else set(workers))

    def _on_timers_expired(self, pid: int, requests: Sequence[FileTimerRequest]) -> None:
        asking = signal_of(requests)
        scope = requests[0].scope_id if requests else ""
        self.watch.timer_expired(pid, scope, asking.signal if asking is not None else 0)

    def _on_pipe_event(self, event: PipeEvent) -> None:
        if event.name == "raised":
            self.watch.worker_raised(event.pid)
            return
        ranks = [worker.rank for worker in self.launch.workers] if self.launch is not None else []
        self.words.take(event, ranks=ranks, now=time.monotonic())

    @property
    def retryable_errors(self) -> frozenset[str]:
        """Texts that workers have named as worth a retry. No policy asks for them yet."""
        return self.words.retryable_errors
