"""torch's health check server, with its names, that really answers.

torch 2.13 (``torch/distributed/elastic/agent/server/health_check_server.py``) has an interface whose
``start`` does nothing. This one stamps what the callback returns into a status page of its own and lets the
health server's process answer: 503 when ``now - alive_callback() > timeout``. It does not import torch.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rankscope.agent.health.listen import HealthError
from rankscope.agent.health.process import HealthProcess
from rankscope.agent.health.status import HealthStatus, StatusWriter

_LOG: Final = logging.getLogger(__name__)
_LONGEST_INTERVAL: Final = 1.0
_SHORTEST_INTERVAL: Final = 0.05
_JOIN_TIMEOUT: Final = 2.0
_NS: Final = 1_000_000_000
_EARLIEST: Final = -(2**62)


class HealthCheckServer:
    """Answers whether the agent lives, from a process of its own.

    The callback is asked every second (more often for a short ``timeout``) by a small thread; one that
    blocks or raises stamps nothing, so that after ``timeout`` seconds the answer is 503.
    """

    _alive_callback: Callable[[], int]
    _port: int
    _timeout: int

    def __init__(self, alive_callback: Callable[[], int], port: int, timeout: int) -> None:
        """Prepare, without starting anything.

        Args:
            alive_callback: returns when the agent last made progress, unix time in seconds.
            port: port to listen on, all interfaces; 0 for a free one on loopback.
            timeout: seconds after which an agent without progress counts as dead.
        """
        self._alive_callback = alive_callback
        self._port = port
        self._timeout = timeout
        self._running: _Running | None = None

    @property
    def alive_callback(self) -> Callable[[], int]:
        """The callback."""
        return self._alive_callback

    @property
    def address(self) -> tuple[str, int] | None:
        """Bound host and port, ``None`` while it does not run."""
        return None if self._running is None else self._running.process.address

    def start(self) -> None:
        """Start answering. Where that is impossible, one warning says why and the job goes on."""
        if self._running is not None:
            return
        try:
            self._running = _Running(self._alive_callback, port=self._port, timeout=self._timeout)
        except (OSError, HealthError) as error:
            _LOG.warning("no health check server: %s", error)

    def stop(self) -> None:
        """Stop answering and give the port back; may be called twice."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()


def create_healthcheck_server(
    alive_callback: Callable[[], int], port: int, timeout: int
) -> HealthCheckServer:
    """Make a health check server; ``start`` starts it (torch's name and arguments)."""
    return HealthCheckServer(alive_callback, port, timeout)


class AliveAge:
    """How long ago the callback's time was, also when the wall clock is set meanwhile. It is told the time.

    torch's callback says a time of the wall clock. It is compared with that clock once; as long as it says
    the same, the monotonic clock tells how much older it has become.
    """

    def __init__(self) -> None:
        self._said: float | None = None
        self._age = 0.0
        self._at = 0.0

    def of(self, said: float, *, wall: float, now: float) -> float:
        """Seconds since ``said``.

        Args:
            said: by the callback, unix time.
            wall: ``time.time()``.
            now: ``time.monotonic()``.
        """
        if said != self._said:
            self._said, self._age, self._at = said, wall - said, now
        return self._age + now - self._at


class _Running:
    """Folder, page, process and thread of a server that runs."""

    def __init__(self, alive_callback: Callable[[], int], *, port: int, timeout: float) -> None:
        self._alive_callback = alive_callback
        self._interval = min(_LONGEST_INTERVAL, max(_SHORTEST_INTERVAL, timeout / 10))
        self._complained = False
        self._age = AliveAge()
        self._stopping = threading.Event()
        folder = tempfile.mkdtemp(prefix="rankscope-health-")
        # Also when nobody calls ``stop``: at the end of the process.
        self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        try:
            self._writer = StatusWriter(Path(folder) / "status.page")
            self._writer.phase("running", None)
            self._writer.publish(
                HealthStatus(job="", node=os.uname().nodename, pid=os.getpid(), phase="running")
            )
            self.process = HealthProcess(self._writer.path, None, port, timeout=timeout)
            self.process.begin()
        except (OSError, HealthError):
            self._remove_folder()
            raise
        self._thread = threading.Thread(
            target=self._ask_forever, name="rankscope-health-callback", daemon=True
        )
        self._thread.start()

    def _ask_forever(self) -> None:
        while True:
            self._ask()
            said = self.process.check()
            if said is not None:
                _LOG.warning("%s", said)
            if self._stopping.wait(self._interval):
                return

    def _ask(self) -> None:
        try:
            said, now_ns = self._alive_callback(), time.monotonic_ns()
            age = self._age.of(said, wall=time.time(), now=now_ns / _NS)
            stamp_ns = max(_EARLIEST, now_ns - int(max(0.0, age) * _NS))
        except Exception:  # noqa: BLE001 - the caller's code, at this thread's edge; logged
            if not self._complained:
                self._complained = True
                _LOG.warning("the health check's alive_callback raised; said once", exc_info=True)
            return
        self._writer.stamp_main(stamp_ns or -1)

    def stop(self) -> None:
        self._stopping.set()
        self.process.stop(_JOIN_TIMEOUT)
        # A callback that never returns keeps its thread; it is a daemon and ends with the process.
        self._thread.join(_JOIN_TIMEOUT)
        self._writer.close()
        self._remove_folder()
