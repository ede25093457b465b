"""What the agent runs beside the workers: run-time folder, page, timer pipe, health server, log drain, API.

Owns their processes, threads and files: starts what can be started, says once what cannot, ends all of it. It
knows nothing of hangs, records or torch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from rankscope.agent.control.listener import Answering
from rankscope.agent.health import HealthError, HealthProcess, HealthStatus, Phase, StatusWriter
from rankscope.agent.health.listen import names_loopback, own_network
from rankscope.agent.health.offer import Peer
from rankscope.agent.logs.process import LogCapture
from rankscope.agent.services.api import Api, url_of
from rankscope.agent.services.runtime_folder import RuntimeFolder
from rankscope.agent.settings.values import Settings
from rankscope.agent.telling.console import Console
from rankscope.watchdog import environment
from rankscope.watchdog.nested import task_named
from rankscope.watchdog.page import PageReader, create_page
from rankscope.watchdog.timers.server import FileTimerServer, OnEvent, OnExpired

HEALTH_READY_TIMEOUT: Final = 10.0
LOGS_TIMEOUT: Final = 10.0
"""Seconds for the workers' last output to reach files and console."""


class Services:
    """The agent's own processes and pipes.

    Args:
        settings: port and host of the health server.
        own_host: address at which other nodes of the job reach this one, ``""`` where there are none.
        console: gets one line for each service that cannot be had.

    Attributes:
        page: the progress page, ``None`` before the first workers or when there is none.
        logs: log capture, ``None`` when it is off.
    """

    def __init__(self, settings: Settings, console: Console, *, own_host: str = "") -> None:
        self._settings = settings
        self._own_host = own_host
        self._console = console
        self._runtime = self._make_folder()
        self._folder = self._runtime.path if self._runtime is not None else None
        self._timer_file = ""
        self._timers: FileTimerServer | None = None
        self._health: HealthProcess | None = None
        self._status: StatusWriter | None = None
        self._api: Api | None = None
        self.page: PageReader | None = None
        self.logs: LogCapture | None = None

    def _make_folder(self) -> RuntimeFolder | None:
        try:
            return RuntimeFolder()
        except OSError as error:
            self._console.say(
                f"no run-time folder ({error.strerror or error}): no progress page, timers or health server"
            )
            return None

    # Start and end.

    def start_health(self) -> None:
        """Take the port and start the server; ``wait_health`` waits for it."""
        if self._folder is None:
            return
        path = self._folder / "status"
        try:
            self._status = StatusWriter(path)
            self._health = HealthProcess(
                path,
                self._settings.diag_host or None,
                self._settings.diag_port or 0,
                api_host=self._api_host(),
            )
            self._health.begin()
        except (HealthError, OSError) as error:
            self._health = None
            self._console.say(f"{error}; the job runs without a health server")

    def _api_host(self) -> str | None:
        """Where what needs the token is bound; ``None`` for loopback, which whoever named it wants kept."""
        return None if names_loopback(self._settings.diag_host) else self._own_host or None

    def wait_health(self) -> None:
        """Before rendezvous: the health server answers, or it is said that it does not."""
        if self._health is None:
            return
        try:
            self._health.wait_ready(HEALTH_READY_TIMEOUT)
        except HealthError as error:
            self._console.say(f"{error}; training goes on")

    def start_api(self, job_folder: Path, node: str, answering: Answering) -> None:
        """Open what needs the job's token: its records, the live page, analyse now, settings.

        Args:
            job_folder: where the records lie.
            node: name of this agent's folder there.
            answering: answers on the control socket.
        """
        if self._folder is None or self._health is None:
            return
        self._api = Api(self._folder, job_folder, given=self._settings.token_file, say=self._console.say)
        self._api.start(self._health, node, answering)

    def start_timers(
        self,
        run_id: str,
        *,
        on_expired: OnExpired,
        on_event: OnEvent,
        is_known_pid: Callable[[int], bool],
    ) -> None:
        """Open the timers' pipe, where torch's own variables name it if they do."""
        if self._folder is None:
            return
        asked = os.environ.get("TORCHELASTIC_ENABLE_FILE_TIMER") == "1"
        asked_file = os.environ.get(environment.TIMER_FILE) if asked else None
        self._timer_file = asked_file or str(self._folder / "timers")
        try:
            self._timers = FileTimerServer(
                self._timer_file,
                run_id,
                on_expired=on_expired,
                on_event=on_event,
                is_known_pid=is_known_pid,
            )
            self._timers.start()
        except OSError as error:
            self._timers = None
            self._console.say(f"no timer pipe ({error.strerror or error}); torch's timers are off")

    def start_logs(self) -> None:
        """Start the drain of the workers' output."""
        if self._folder is None:
            return
        logs = LogCapture(self._folder / "pipes", self._console.once)
        if logs.start():
            self.logs = logs

    def finish_logs(self, *, hurried: bool = False) -> None:
        """Wait for the workers' last output.

        Args:
            hurried: whether whoever asked the job to end will soon kill it.

        Raises:
            SignalException: torch's handler, while the console was still taking output.
        """
        logs, self.logs = self.logs, None
        if logs is not None:
            logs.finish(timeout=LOGS_TIMEOUT, console_idle=LOGS_TIMEOUT if hurried else None)

    def close(self) -> None:
        """End everything."""
        self.finish_logs()
        if self._timers is not None:
            self._timers.stop()
        if self._health is not None:
            self._health.stop()
        if self._api is not None:
            self._api.close()
        if self._status is not None:
            self._status.close()
        if self.page is not None:
            self.page.close()
        if self._runtime is not None:
            self._runtime.remove()

    # For the workers.

    def prepare_page(self, slots: int) -> None:
        """Empty the page's slots, or make the page, before as many workers start."""
        if self._folder is None:
            return
        if not self._folder.is_dir():
            self._console.once(f"the run-time folder {self._folder} is gone: no progress page, no timers")
            self.page = None
            return
        try:
            if self.page is None or self.page.slots != slots or not self.page.is_intact:
                create_page(self._folder / "progress.page", slots)
                self.page = PageReader(self._folder / "progress.page")
            for slot in range(slots):
                self.page.clear(slot)
        except OSError as error:
            self.page = None
            self._console.once(f"no progress page ({error.strerror or error}); hangs are noticed later")

    @property
    def page_path(self) -> str:
        """Where the page lies, ``""`` when there is none."""
        return str(self._folder / "progress.page") if self._folder and self.page is not None else ""

    def worker_env(self, local_rank: int) -> dict[str, str]:
        """The variables that lead a worker to its slot, to the pipe and to its folder for answers."""
        env = {environment.AGENT_PID: str(os.getpid()), environment.TASK: task_named(os.environ)}
        if self.page is not None:
            env |= {environment.PAGE: self.page_path, environment.SLOT: str(local_rank)}
        if self._timers is not None and Path(self._timer_file).exists():
            env |= {environment.PIPE: self._timer_file, environment.TIMER_FILE: self._timer_file}
        if self.answers_path:
            env[environment.ANSWERS] = self.answers_path
        return env

    @property
    def answers_path(self) -> str:
        """Folder through which workers answer those who look at them, ``""`` when there is none."""
        if self._folder is None:
            return ""
        folder = self._folder / "answers"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return ""
        return str(folder)

    def timer_calls(self) -> Mapping[int, float]:
        """When each pid last acquired or released a timer."""
        return self._timers.last_request_times() if self._timers is not None else {}

    @property
    def timer_requests(self) -> int:
        """How many timers the workers have set and released."""
        return self._timers.counts().requests if self._timers is not None else 0

    def timer_is_overrun(self, pid: int, scope: str) -> bool:
        """Whether a process is still in the block whose timer expired."""
        return self._timers is not None and self._timers.is_overrun(pid, scope)

    def forget_timers(self, pids: list[int]) -> None:
        """Drop the timers of workers that are being stopped."""
        if self._timers is not None:
            self._timers.clear(pids)

    def log_sizes(self) -> dict[int, int]:
        """Bytes that each local rank has written; nothing without log capture (then log signals are off)."""
        sizes: dict[int, int] = {}
        logs = self.logs
        for (local_rank, _stream), size in (logs.sizes() if logs is not None else {}).items():
            sizes[local_rank] = sizes.get(local_rank, 0) + size
        return sizes

    # For whoever asks how the agent does.

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the health server."""
        return self._health.address if self._health is not None else None

    @property
    def api_url(self) -> str:
        """Where the live page is, and the API below it; ``""`` when there is none."""
        address = self._health.api_address if self._health is not None and self.token_file else None
        return url_of(address) if address is not None else ""

    @property
    def token_file(self) -> str:
        """Where the token lies that opens it, ``""`` when there is none."""
        return self._api.token_file if self._api is not None else ""

    @property
    def token(self) -> tuple[str, bool]:
        """The token, ``""`` for none, and whether it is settled for all nodes."""
        return (self._api.token, self._api.is_settled) if self._api is not None else ("", False)

    def as_peer(self, node: str) -> Peer:
        """This agent as others may ask it."""
        address = self._health.api_address if self._health is not None else None
        network = own_network() if address is not None and names_loopback(address[0]) else ""
        return Peer(node, self.api_url, network)

    def nodes_met(self, token: str, peers: Sequence[Peer]) -> None:
        """Nodes have met.

        Args:
            token: the job's, ``""`` for none.
            peers: all agents that can be asked, this one included.
        """
        # An address of another host's loopback is here somebody else's, who must not be sent the token.
        reached = ("", own_network())
        if self._api is not None:
            others = (peer for peer in peers if peer.api != self.api_url and peer.network in reached)
            self._api.met(token, tuple(others))

    def phase(self, name: Phase, seconds: float | None) -> None:
        """Enter a phase; ``seconds`` is its own deadline."""
        if self._status is not None:
            self._status.phase(name, None if seconds is None else time.monotonic() + seconds)

    def main_loop_turned(self) -> None:
        """Torch's monitor loop turned."""
        if self._status is not None:
            self._status.stamp_main(time.monotonic_ns())

    def watch_loop_turned(self) -> None:
        """The watch thread turned; look after our processes."""
        if self._status is not None:
            self._status.stamp_watch(time.monotonic_ns())
        if (logs := self.logs) is not None:
            logs.check()
        if self._health is not None and (line := self._health.check()):
            self._console.say(line)

    def publish(self, status: HealthStatus) -> None:
        """Make ``status`` what the health server answers from."""
        if self._status is not None:
            self._status.publish(status)
