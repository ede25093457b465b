"""Everything an agent has beyond torch's: owns the records, the page, the timers, health, logs, the watch.

One session an agent process. Each part may be missing (read-only folder, port in use, no pipes) and says so
once; the job runs without it. What is decided is handed to the main thread through ``take_due``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import msgspec

from rankscope.agent import runtime
from rankscope.agent.bulletin import Bulletin
from rankscope.agent.console import Console
from rankscope.agent.evidence import EvidenceTaker, Incident
from rankscope.agent.health import HealthError, HealthProcess, StatusWriter
from rankscope.agent.logs.process import LogCapture
from rankscope.agent.observe import Observer
from rankscope.agent.policy import History, decide_on_hang
from rankscope.agent.records import Records
from rankscope.agent.settings import Settings
from rankscope.agent.watch import Reporter, Watch
from rankscope.agent.workers import Launch, WorkerRef
from rankscope.diag import proc
from rankscope.diag.model import Decision, Diagnosis, ExitFacts, JobSnapshot, RestartRecord
from rankscope.diag.store.events import iso_time
from rankscope.diag.store.incidents import new_incident_id
from rankscope.diag.store.job import AgentFile, JobFile, JobFolder, WorkerFile, job_folder
from rankscope.watchdog import environment
from rankscope.watchdog.detector import Detector
from rankscope.watchdog.observations import ActDue, Capture, Cleared, Confirmed, Recovered
from rankscope.watchdog.page import PageReader, create_page
from rankscope.watchdog.probe import pythonpath
from rankscope.watchdog.timers.registry import signal_of
from rankscope.watchdog.timers.server import FileTimerServer
from rankscope.watchdog.timers.wire import Event as PipeEvent
from rankscope.watchdog.timers.wire import FileTimerRequest

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing import PContext

HEALTH_READY_TIMEOUT: Final = 10.0
_LEAST_INTERVAL: Final = 2.0
"""Seconds between two looks from which they say something about activity."""
_RECORD_BUFFER: Final = "TORCH_FR_BUFFER_SIZE"
_OLD_RECORD_BUFFER: Final = "TORCH_NCCL_TRACE_BUFFER_SIZE"
_RECORD_ENTRIES: Final = "2000"
"""torch's own default on gloo; older NCCL builds have none unless asked (INTERFACES.md, "Environment")."""


class Session(Reporter):
    """The agent's session.

    Args:
        run_id: the job's run id.
        command: what is trained, for the record.
        settings: what the user wants.
        nodes: ``MIN:MAX`` as asked for.
    """

    def __init__(self, *, run_id: str, command: Sequence[str], settings: Settings, nodes: str = "") -> None:
        # An agent that is itself a worker (a nested launch) must not pass its mark on to its ranks.
        os.environ.pop(environment.RANK_PID, None)
        self.run_id = run_id
        self.settings = settings
        self.console = Console()
        self.folder: JobFolder = job_folder(run_id)
        self.records = Records(self.folder, self.console.once)
        self.decision: Decision | None = None
        self.restarts: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self._command = tuple(command)
        self._nodes = nodes
        self._created = iso_time(time.time())
        self._launch: Launch | None = None
        self._observer: Observer | None = None
        self._lock = threading.Lock()
        self._due: Decision | None = None
        self._expired: list[tuple[int, int]] = []
        self._restart: tuple[float, RestartRecord] | None = None
        self._runtime = self._make_runtime()
        self.page: PageReader | None = None
        self.status: StatusWriter | None = None
        self._health: HealthProcess | None = None
        self._timers: FileTimerServer | None = None
        self._timer_file = ""
        self.logs: LogCapture | None = None
        self.evidence = EvidenceTaker(run_id, self.records)
        self.watch = Watch(
            settings=settings.hang,
            evidence=self.evidence,
            reporter=self,
            new_incident=lambda: new_incident_id(time.time()),
            enabled=settings.hang_detection,
        )
        self.bulletin = Bulletin(self.records.node, run_id)

    # Start and end.

    def open(self, *, capture_logs: bool) -> None:
        """Start what can be started; nothing here stops the launch."""
        self._start_health()
        self._start_timers()
        if capture_logs:
            self._start_logs()
        self.watch.start()
        self._write_job()
        self.records.event("job.started", {"command": list(self._command), "nodes": self._nodes})
        self._write_agent("starting")
        self.console.say(self._greeting())

    def wait_health(self) -> None:
        """Before rendezvous: the health server answers, or it is said that it does not."""
        if self._health is None:
            return
        try:
            self._health.wait_ready(HEALTH_READY_TIMEOUT)
        except HealthError as error:
            self.console.say(f"{error}; training goes on")

    def close(self, *, result: str, exit_code: int) -> None:
        """End everything this session started."""
        self.phase("ended", None)
        self.watch.stop()
        self.records.event("job.ended", {"result": result, "exit_code": exit_code})
        self._write_job(ended=iso_time(time.time()), result=result)
        self._write_agent("ended")
        if self.logs is not None:
            self.logs.finish(timeout=10.0)
        if self._timers is not None:
            self._timers.stop()
        if self._health is not None:
            self._health.stop()
        if self.status is not None:
            self.status.close()
        if self.page is not None:
            self.page.close()
        self.records.close()
        if self._runtime is not None:
            runtime.remove(self._runtime)
        self.console.close()

    def _greeting(self) -> str:
        parts = [f"job {self.run_id}"]
        if self.records.usable:
            parts.append(f"records in {self.folder.path}")
        if self._health is not None and self._health.address is not None:
            host, port = self._health.address
            parts.append(f"health on http://{f'[{host}]' if ':' in host else host}:{port}/health")
        return ", ".join(parts)

    def _make_runtime(self) -> Path | None:
        try:
            return runtime.create_runtime_folder()
        except OSError as error:
            self.console.say(
                f"no run-time folder ({error.strerror or error}): no progress page, timers or health server"
            )
            return None

    def _start_health(self) -> None:
        if self._runtime is None:
            return
        port = self.settings.diag_port
        try:
            self.status = StatusWriter(self._runtime / "status")
            self._health = HealthProcess(self._runtime / "status", self.settings.diag_host or None, port or 0)
            self._health.begin()
        except (HealthError, OSError) as error:
            self._health = None
            self.console.say(f"{error}; the job runs without a health server")

    def _start_timers(self) -> None:
        if self._runtime is None:
            return
        asked = os.environ.get("TORCHELASTIC_ENABLE_FILE_TIMER") == "1"
        asked_file = os.environ.get(environment.TIMER_FILE) if asked else None
        self._timer_file = asked_file or str(self._runtime / "timers")
        try:
            self._timers = FileTimerServer(
                self._timer_file,
                self.run_id,
                on_expired=self._on_timers_expired,
                on_event=self._on_pipe_event,
                is_known_pid=self._is_ours,
            )
            self._timers.start()
        except OSError as error:
            self._timers = None
            self.console.say(f"no timer pipe ({error.strerror or error}); torch's timers are off")

    def _start_logs(self) -> None:
        if self._runtime is None:
            return
        try:
            logs = LogCapture(self._runtime / "pipes", self.console.once)
        except OSError as error:
            self.console.say(f"log capture is off ({error.strerror or error})")
            return
        if logs.start():
            self.logs = logs

    # What the main thread tells the session.

    def worker_env(self, local_rank: int, environ: Mapping[str, str]) -> dict[str, str]:
        """What a worker gets in its environment, beside torch's own.

        Args:
            local_rank: its slot in the page.
            environ: what it would have without us.
        """
        env = {environment.JOB_DIR: str(self.folder.path), environment.AGENT_PID: str(os.getpid())}
        if self.page is not None:
            env[environment.PAGE] = str(self._page_path)
            env[environment.SLOT] = str(local_rank)
        if self._timers is not None:
            env[environment.TIMER_FILE] = self._timer_file
        buffer = record_buffer_variable()
        if not any(name in environ for name in (buffer, _OLD_RECORD_BUFFER)):
            env[buffer] = _RECORD_ENTRIES
        env["PYTHONPATH"] = pythonpath(environ.get("PYTHONPATH"))
        return env

    @property
    def _page_path(self) -> Path:
        return (self._runtime or Path()) / "progress.page"

    def prepare_workers(self, count: int) -> None:
        """Empty the page's slots, or make the page, before ``count`` workers start."""
        if self._runtime is None:
            return
        try:
            if self.page is None or self.page.slots != count:
                create_page(self._page_path, count)
                self.page = PageReader(self._page_path)
            for slot in range(count):
                self.page.clear(slot)
        except OSError as error:
            self.page = None
            self.console.once(f"no progress page ({error.strerror or error}); hangs are noticed later")

    def workers_started(self, launch: Launch) -> None:
        """New workers run: watch them."""
        heard = self._timers.last_request_times if self._timers is not None else dict
        observer = Observer(launch, self.page, timer_calls=heard, log_sizes=self._log_sizes)
        self._launch, self._observer = launch, observer
        self.watch.cycle_started(launch, observer, self.page)
        self.phase("running", None)
        ranks = [worker.rank for worker in launch.workers]
        data: dict[str, object] = {
            "restart_count": launch.restart_count,
            "world_size": launch.world_size,
            "ranks": ranks,
        }
        self.records.event("cycle.started", data)
        self._write_job(world_size=launch.world_size)
        self._write_agent("running")
        self._restart_done()

    def workers_stopping(self) -> None:
        """The workers are about to be stopped, or have ended."""
        self.watch.cycle_ended()
        if self._timers is not None and self._launch is not None:
            self._timers.clear([worker.pid for worker in self._launch.workers])

    def phase(self, name: str, seconds: float | None) -> None:
        """Enter a phase; ``seconds`` is its own deadline."""
        if self.status is not None:
            deadline = None if seconds is None else time.monotonic() + seconds
            self.status.phase(self.bulletin.enter(name), deadline)

    def main_loop_turned(self) -> None:
        """Torch's monitor loop turned."""
        if self.status is not None:
            self.status.stamp_main(time.monotonic_ns())

    def take_due(self) -> Decision | None:
        """The decision that waits to be carried out, once."""
        with self._lock:
            due, self._due = self._due, None
        return due

    def restart_begins(self, decision: Decision | None, *, restarts: int) -> None:
        """A restart is under way; its record is written when the workers run again."""
        why = decision or Decision(
            action="restart", reason="the membership changed", time=iso_time(time.time())
        )
        record = RestartRecord(
            restarts=restarts,
            restart_time=why.time,
            node_name=self.records.node,
            instance_name=", ".join(f"rank {rank}" for rank in why.culprits),
            error_code=self.bulletin.last_verdict,
            error_message=self.bulletin.last_summary,
            error_source=f"incident {why.incident}" if why.incident else "",
            reason=why.reason,
            incident=why.incident,
        )
        self._restart = (time.monotonic(), record)

    def _restart_done(self) -> None:
        if self._restart is None:
            return
        began, record = self._restart
        self._restart = None
        done = dict(restart_fields(record))
        done |= {"result": "running", "duration": round(time.monotonic() - began, 3)}
        self.records.event("restart", done)

    # Evidence before the end (main thread).

    def evidence_now(self, exits: Mapping[int, ExitFacts]) -> JobSnapshot | None:
        """A snapshot of what is still alive, within the budget; ``None`` without workers or budget."""
        launch, observer = self._launch, self._observer
        if launch is None or observer is None or self.settings.evidence_budget <= 0:
            return None
        return self.evidence.snapshot(launch, observer, timeout=self.settings.evidence_budget, exits=exits)

    def judge_now(self, snapshot: JobSnapshot) -> Diagnosis:
        """Diagnose and store a single snapshot as an incident of its own."""
        incident = Incident(new_incident_id(time.time()), snapshot)
        diagnosis = self.evidence.judge(incident)
        self.bulletin.diagnosed(diagnosis)
        return diagnosis

    def judge_suspicion(self, snapshot: JobSnapshot) -> Diagnosis:
        """Diagnose and store an open suspicion whose workers are about to be stopped."""
        name, first, silent = self.watch.opened()
        if first is not None and snapshot.time - first.time >= _LEAST_INTERVAL:
            incident = Incident(name, first, snapshot, silent)
        else:
            incident = Incident(name or new_incident_id(time.time()), snapshot, None, silent)
        diagnosis = self.evidence.judge(incident)
        self.bulletin.diagnosed(diagnosis)
        return diagnosis

    def worker_failed(self, diagnosis: Diagnosis, exits: Mapping[int, ExitFacts]) -> None:
        """Record and announce that workers ended by themselves."""
        for rank, facts in sorted(exits.items()):
            data: dict[str, object] = {"rank": rank, "exit_code": facts.code, "message": facts.message}
            self.records.event("worker.failed", data, subject=diagnosis.incident)
        self.console.say(f"{diagnosis.summary}\nstored in {self._stored_at(diagnosis) or 'memory'}")

    def last_words(self, worker: WorkerRef, pcontext: PContext) -> str:
        """The last line of the error a worker reported, through its probe or torch's error file."""
        view = self._observer.slot(worker) if self._observer is not None else None
        if view is not None and view.raised_text:
            return view.raised_text
        return error_file_message(pcontext.error_files.get(worker.local_rank, ""))

    def _log_sizes(self) -> dict[int, int]:
        """Bytes that each local rank has written; nothing without log capture (then log signals are off)."""
        sizes: dict[int, int] = {}
        for (local_rank, _stream), size in (self.logs.sizes() if self.logs is not None else {}).items():
            sizes[local_rank] = sizes.get(local_rank, 0) + size
        return sizes

    def decided(self, decision: Decision) -> None:
        """Store a decision before it is carried out."""
        self.decision = decision
        if decision.incident is not None:
            self.records.decision(decision.incident, decision)
        data: dict[str, object] = {"action": decision.action, "reason": decision.reason}
        self.records.event("decision", data, subject=decision.incident)

    @property
    def launch(self) -> Launch | None:
        """The workers of the current launch."""
        return self._launch

    # What the watch thread reports.

    def on_tick(self, now: float, detector: Detector) -> None:
        """Stamp and publish health; look after our processes."""
        if self.logs is not None:
            self.logs.check()
        if self._health is not None and (line := self._health.check(now)):
            self.console.say(line)
        if self.status is None:
            return
        self.status.stamp_watch(time.monotonic_ns())
        status = self.bulletin.status(
            now,
            detector,
            self._launch,
            self._observer,
            trouble=self.records.trouble,
            page=self.page is not None,
        )
        self.status.publish(status)

    def on_suspected(self, incident: str, capture: Capture) -> None:
        """Record a suspicion; nothing is shown yet."""
        data: dict[str, object] = {"reason": capture.reason, "ranks": list(capture.suspects)}
        self.records.event("suspected", data, subject=incident)

    def on_cleared(self, incident: str, cleared: Cleared) -> None:
        """Record that a suspicion was dropped."""
        data: dict[str, object] = {"reason": cleared.reason, "seconds": round(cleared.gap, 3)}
        self.records.event("cleared", data, subject=incident)
        self._send_timer_signals()

    def on_diagnosed(self, diagnosis: Diagnosis, confirmed: Confirmed) -> None:
        """Publish a diagnosis, then carry out what a worker's own timer asked for."""
        silent = time.monotonic() - confirmed.since
        if diagnosis.verdict == "Healthy":
            self.on_cleared(diagnosis.incident or "", Cleared(diagnosis.summary, silent))
            return
        self.bulletin.diagnosed(diagnosis)
        data: dict[str, object] = {
            "verdict": diagnosis.verdict,
            "culprits": list(diagnosis.culprits),
            "summary": diagnosis.summary,
            "seconds": round(silent, 3),
        }
        self.records.event("incident.confirmed", data, subject=diagnosis.incident)
        self.console.say(self.bulletin.announcement(diagnosis, silent, self._stored_at(diagnosis)))
        self._send_timer_signals()

    def on_recovered(self, diagnosis: Diagnosis, recovered: Recovered) -> None:
        """Say that a published hang is over."""
        data: dict[str, object] = {"seconds": round(recovered.gap, 3)}
        self.records.event("incident.recovered", data, subject=diagnosis.incident)
        self.console.say(f"recovered by itself after {recovered.gap:.0f} s without progress")

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

    def _stored_at(self, diagnosis: Diagnosis) -> str:
        if diagnosis.incident is None or not self.records.usable:
            return ""
        return str(self.records.incident(diagnosis.incident).path)

    # Timers (their thread).

    def _is_ours(self, pid: int) -> bool:
        """Whether a pid is a worker of this agent or descends from one."""
        launch = self._launch
        if launch is None:
            return False
        workers = {worker.pid for worker in launch.workers}
        for _ in range(64):
            if pid in workers:
                return True
            facts = proc.read_facts(pid, now=0.0)
            if facts is None or facts.parent <= 1:
                return False
            pid = facts.parent
        return False

    def _on_timers_expired(self, pid: int, requests: Sequence[FileTimerRequest]) -> None:
        asking = signal_of(requests)
        if asking is not None:
            with self._lock:
                self._expired.append((pid, asking.signal))
        scope = requests[0].scope_id if requests else ""
        if self.settings.hang_detection:
            self.watch.timer_expired(pid, scope)
        else:
            self._send_timer_signals()

    def _on_pipe_event(self, event: PipeEvent) -> None:
        if event.name == "raised":
            self.watch.worker_raised(event.pid)

    def _send_timer_signals(self) -> None:
        """Last of all: the signals that expired timers asked for."""
        with self._lock:
            expired, self._expired = self._expired, []
        for pid, number in expired:
            if self._is_ours(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.Signals(number))

    # Files.

    def _write_job(self, *, world_size: int = 0, ended: str | None = None, result: str = "") -> None:
        known = self._launch.world_size if self._launch else 0
        self.records.job_file(
            JobFile(
                run_id=self.run_id,
                created=self._created,
                command=self._command,
                nodes=self._nodes,
                world_size=world_size or known,
                ended=ended,
                result=result,
            )
        )

    def _write_agent(self, phase: str) -> None:
        launch = self._launch
        address = self._health.address if self._health is not None else None
        host, port = address or ("", 0)
        workers = tuple(
            WorkerFile(worker.rank, worker.local_rank, worker.pid, worker.start_ticks)
            for worker in (launch.workers if launch else ())
        )
        pid = os.getpid()
        self.records.agent_file(
            AgentFile(
                node=self.records.node,
                pid=pid,
                start_ticks=proc.start_ticks(pid) or 0,
                phase=phase,
                restart_count=launch.restart_count if launch else 0,
                host=host,
                port=port,
                page=str(self._page_path) if self.page is not None else "",
                workers=workers,
                world_size=launch.world_size if launch else 0,
            )
        )


def record_buffer_variable() -> str:
    """The variable that sizes the flight recorder: a torch that knows the new name warns of the old one."""
    from torch._C import _distributed_c10d as c10d

    return _RECORD_BUFFER if hasattr(c10d, "_dump_fr_trace") else _OLD_RECORD_BUFFER


def restart_fields(record: RestartRecord) -> dict[str, object]:
    """A restart record as an event's data."""
    fields: dict[str, object] = msgspec.to_builtins(record)
    return fields


def error_file_message(path: str) -> str:
    """The message of torch's error file, its last line; ``""`` when there is none."""
    try:
        content = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ""
    message = content.get("message")
    if isinstance(message, dict):
        message = cast("dict[str, object]", message).get("message")
    lines = str(message or "").strip().splitlines()
    return lines[-1] if lines else ""
