"""The agent's session: what happens to the workers, told to the watch, the ledger, the services and the user.

One session an agent process, between torch's agent (main thread), the watch thread and the timers' thread.
What is decided is handed to the main thread through ``hangs``; nothing here stops a worker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Final

from rankscope.agent.bounded_call import TookTooLongError, within
from rankscope.agent.ending.left_behind import end_left_behind, read_predecessor
from rankscope.agent.failures import Failure
from rankscope.agent.health import Phase
from rankscope.agent.nodes.meeting import Meeting
from rankscope.agent.notices.delivery import CLOSE_TIMEOUT, Notices
from rankscope.agent.reports import SessionReports
from rankscope.agent.services.api import url_of
from rankscope.agent.settings.shown import described
from rankscope.agent.workers.model import Launch
from rankscope.diag.model import Decision
from rankscope.diag.store.job import AgentFile
from rankscope.watchdog import environment
from rankscope.watchdog.probe import pythonpath

_RULING_PAUSE: Final = 0.02
_READ_SECONDS: Final = 2.0
"""For a file of the job folder: a lost share must not keep the launch."""


class Session(SessionReports):
    """What an agent has beyond torch's.

    Args:
        run_id: the job's run id.
        command: what is trained, for the record.
        settings: what the user wants.
        nodes: ``MIN:MAX`` as asked for.
        own_host: address at which other nodes of the job reach this one, ``""`` where there are none.
    """

    # Start and end.

    def open(self, *, capture_logs: bool) -> None:
        """Start what can be started, and end what a killed agent has left behind (main thread).

        What cannot be started is said, and the launch goes on without it.

        Raises:
            LeftBehindError: workers of a killed agent cannot be ended.
            SignalException: a signal came meanwhile.
        """
        self._log_lines.attach()
        self.signals.start(self.beside_main.on_signal)
        self.services.start_health()
        self.services.start_timers(
            self.run_id,
            on_expired=self._timers.expired,
            on_event=self._on_pipe_event,
            is_known_pid=self.current.own,
        )
        if capture_logs:
            self.services.start_logs()
        self._notices = Notices(self.settings, self.console.say, self.ledger.notice_failed, job=self.run_id)
        self.records.listeners.append(self._notices.offer)
        self.watch.start()
        before = self._predecessor()
        self.ledger.job_started(described(self.settings))
        if before is not None:
            end_left_behind(
                before,
                self.run_id,
                self._command,
                evidence=self.evidence,
                ledger=self.ledger,
                signals=self.signals,
                budget=self.settings.evidence_budget,
                say=self.console.say,
            )
        self.services.start_api(self.folder.path, self.records.node, self.answers.answer)
        self._write_agent("starting")
        self.console.say(self._greeting())

    def _predecessor(self) -> AgentFile | None:
        """The agent before this one that was killed, if any."""
        try:
            return within(
                _READ_SECONDS, partial(read_predecessor, self.records), name="rankscope-predecessor"
            )
        except TookTooLongError:
            self.console.say(
                f"the job folder did not answer within {_READ_SECONDS:g} s: whether an agent that was killed "
                "has left workers on this node is not known"
            )
            return None

    def finish_output(self) -> None:
        """Wait until the workers' last output is in the files and on the console.

        Raises:
            SignalException: a signal came while the console was still taking output.
        """
        self.services.finish_logs(hurried=bool(self.signals.received))

    def close(self, *, result: str, exit_code: int) -> None:
        """End everything else this session started; takes a moment."""
        self.phase("ended", None)
        self.watch.stop()
        self.host_checks.close()
        self.words.finish()
        self.ledger.job_ended(result, exit_code)
        if self._notices is not None:
            self._notices.close(CLOSE_TIMEOUT)
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
            parts.append(f"health on {url_of(self.services.address)}/health")
        if self.services.api_url:
            parts.append(f"page on {self.services.api_url}/ (token in {self.services.token_file})")
        return ", ".join(parts)

    # What the main thread tells the session.

    def worker_env(self, local_rank: int, environ: Mapping[str, str]) -> dict[str, str]:
        """What a worker gets in its environment, beside torch's own.

        Args:
            local_rank: its slot in the page.
            environ: what it would have without us.
        """
        self.current.are_starting = True
        env = self.services.worker_env(local_rank)
        env[environment.JOB_DIR] = str(self.folder.path)
        env["PYTHONPATH"] = pythonpath(environ.get("PYTHONPATH"))
        return env

    def workers_started(self, launch: Launch) -> None:
        """New workers run: watch them."""
        self.hangs.forget()
        self.decider.launched(launch.world_size)
        self._progress.begin()
        self._watch_these(launch)
        self.phase("running", None)
        self.ledger.cycle_started(launch)
        if self.settings.execution_mode == "Sync":
            # Else what a worker launches is a part of it: it fails, and is started again, as one.
            self.nested.begin(launch)
        self.restart_clock.end()
        self._write_agent("running")

    def worker_restarted(self, launch: Launch) -> None:
        """One worker (or several) runs anew, the others go on; no cycle ends by that.

        Args:
            launch: all workers as they are now.
        """
        self._watch_these(launch)
        self._write_agent("running")

    def _watch_these(self, launch: Launch) -> None:
        observer = self._observer(launch)
        self.current.replace(launch, observer)
        self.watch.cycle_started(launch, observer, self.services.page)

    def workers_stopping(self) -> None:
        """The workers are about to be stopped, or have ended."""
        self.hangs.close()
        self._progress.end()
        self.ledger.enter("stopping")
        self.nested.stop_looking()
        self.watch.cycle_ended()
        if self.current.ranks is not None:
            self.services.forget_timers([worker.pid for worker in self.current.ranks.workers])

    # Where nodes meet.

    def round_begins(self, meeting: Meeting | None) -> None:
        """The agents have met; ``None`` for a job of one node, and where they have no way to talk."""
        if meeting is not None and self.settings.execution_mode == "Sync":
            self.watch.round_begins(meeting)

    def round_ends(self) -> None:
        """They are about to meet anew."""
        self.watch.round_ends()

    def restarts_told(self, count: int) -> None:
        """Other nodes know of more restarts of the job than this one."""
        self.ledger.restarts_told(count)

    def ruling_due(self, timeout: float) -> Decision | None:
        """The decision of another node that is on its way, if an incident of the whole job is open."""
        until = time.monotonic() + timeout
        while self.watch.rules_jointly and self.hangs.waiting() is None and time.monotonic() < until:
            time.sleep(_RULING_PAUSE)
        return self.hangs.take_due()

    def phase(self, name: Phase, seconds: float | None) -> None:
        """Enter a phase; ``seconds`` is its own deadline."""
        self.bulletin.phase = name
        self.services.phase(name, seconds)

    def restart_begins(
        self, decision: Decision | None, *, restarts: int, failure: Failure | None = None
    ) -> None:
        """A restart is under way.

        Args:
            decision: what led to it, ``None`` for a change of the membership.
            restarts: how many there have been, this one included.
            failure: what failed first, ``None`` when nothing did.
        """
        self.restart_clock.begin()
        last = self.bulletin.last
        self.ledger.restart_begins(
            decision,
            restarts=restarts,
            verdict=last.verdict if last and decision else "",
            summary=last.summary if last and decision else "",
            failure=failure,
        )

    @property
    def decision(self) -> Decision | None:
        """The last decision about the job."""
        return self.decider.last

    @property
    def retryable_errors(self) -> tuple[str, ...]:
        """Texts that make a failure worth a retry: the settings' and those that workers have named."""
        return (*self.settings.retryable_errors, *sorted(self.words.retryable_errors))
