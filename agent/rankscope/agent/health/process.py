"""The agent's handle on its health server process: start it, see that it stays, end it.

``begin`` returns as soon as the port is ours and the process is on its way (2 ms), so that the agent can
import torch meanwhile; ``wait_ready`` waits for the rest (0.2 s). Nothing here may hold the agent up: every
wait has a deadline, and a server that cannot be had is one ``HealthError``, after which the job goes on.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Final

from rankscope.agent.health.child import ServerChild
from rankscope.agent.health.handover import ServerSettings
from rankscope.agent.health.lifetime import start_ticks
from rankscope.agent.health.listen import LOOPBACK, HealthError, bound_address, is_loopback, open_listener
from rankscope.agent.health.offer import ApiOffer, offer_path, remove_offer, write_offer
from rankscope.agent.health.probes import TIMEOUT

FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 30.0
STABLE_AFTER: Final = 60.0
"""A server that lived this long starts again after ``FIRST_DELAY``; one that did not waits twice as long
as the last time, at most ``LONGEST_DELAY``."""

__all__ = ["HealthError", "HealthProcess"]


class HealthProcess:
    """One health server. ``check`` and ``offer`` may be called from another thread than the rest.

    Attributes:
        api_trouble: why what needs the token is not to be had, ``""`` while nothing is in the way.
    """

    def __init__(
        self,
        status_path: str | os.PathLike[str],
        host: str | None,
        port: int,
        *,
        timeout: float = TIMEOUT,
        api_host: str | None = None,
    ) -> None:
        """Prepare, without starting anything.

        Args:
            status_path: the page of a ``StatusWriter`` that exists when ``begin`` is called.
            host: address to bind; ``None``: loopback for port 0, else all interfaces.
            port: 0 for a free one.
            timeout: seconds without a turn of either loop after which the agent counts as dead.
            api_host: address for what needs the token: the node's own one on a job of several nodes;
                ``None``: loopback, as where that address cannot be had.
        """
        self._status_path = Path(status_path).absolute()
        self._host = host
        self._port = port
        self._timeout = timeout
        self._lock = threading.Lock()
        self._api_host = api_host
        self._listener: socket.socket | None = None
        self._api_listener: socket.socket | None = None
        self._child: ServerChild | None = None
        self._deaths = 0
        self._due: float | None = None
        self.api_trouble = ""

    @property
    def address(self) -> tuple[str, int] | None:
        """Bound host and port, ``None`` while there is none."""
        return None if self._listener is None else bound_address(self._listener)

    @property
    def api_address(self) -> tuple[str, int] | None:
        """Host and port for what needs the token, ``None`` where it is not to be had."""
        if self._shares_listener:
            return self.address
        return None if self._api_listener is None else bound_address(self._api_listener)

    @property
    def _shares_listener(self) -> bool:
        return self._api_host is None and self._listener is not None and is_loopback(self._listener)

    @property
    def pid(self) -> int | None:
        """Process id of the server, ``None`` while there is none."""
        child = self._child
        return None if child is None else child.pid

    def begin(self) -> tuple[str, int]:
        """Take the port and start the process; requests wait in the kernel's queue until it answers.

        Returns:
            The bound host and port.

        Raises:
            HealthError: the port cannot be had, or no process could be started.
        """
        with self._lock:
            if self._listener is not None:
                return bound_address(self._listener)
            self._listener = listener = open_listener(self._host, self._port)
            self._api_listener = self._open_api()
            try:
                self._child = self._spawn(listener)
            except HealthError:
                self._release()
                raise
            return bound_address(listener)

    def _open_api(self) -> socket.socket | None:
        """The second listener; the probes are worth having without it."""
        if self._shares_listener:
            return None
        for host in dict.fromkeys((self._api_host or LOOPBACK, LOOPBACK)):
            try:
                listener = open_listener(host, 0)
            except HealthError as error:
                self.api_trouble = str(error)
            else:
                self.api_trouble = ""
                return listener
        return None

    def offer(self, offer: ApiOffer) -> None:
        """Serve a job's records to whoever has its token, from now on; any number of times. Never raises.

        Args:
            offer: what is served, in place of what was.
        """
        try:
            write_offer(offer_path(self._status_path), offer)
        except OSError as error:
            self.api_trouble = f"the API cannot be had: {error.strerror or error}"

    def wait_ready(self, timeout: float) -> tuple[str, int]:
        """Wait until the server answers.

        Args:
            timeout: seconds. A server that is late stays: it may still come.

        Returns:
            The bound host and port.

        Raises:
            HealthError: it ended before it was ready, is not ready in time, or was never begun.
        """
        child, listener = self._child, self._listener
        if child is None or listener is None:
            raise HealthError("health server: not started")
        child.wait_ready(timeout)
        return bound_address(listener)

    def start(self, timeout: float) -> tuple[str, int]:
        """``begin`` and ``wait_ready``.

        Raises:
            HealthError: as those two; after this one nothing is left running.
        """
        self.begin()
        try:
            return self.wait_ready(timeout)
        except HealthError:
            self.stop(timeout=1.0)
            raise

    def check(self, now: float | None = None) -> str | None:
        """See to the process; called every tick. Never waits (a start takes 2 ms), never raises.

        Args:
            now: ``time.monotonic()``.

        Returns:
            One line when there is something to say, else ``None``.
        """
        if not self._lock.acquire(blocking=False):
            return None  # being started or stopped
        try:
            return self._check(time.monotonic() if now is None else now)
        finally:
            self._lock.release()

    def _check(self, now: float) -> str | None:
        if self._listener is None:
            return None
        if self._child is not None:
            ended = self._child.ended()
            if ended is None:
                return None
            self._deaths = 1 if now - self._child.started > STABLE_AFTER else self._deaths + 1
            delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(self._deaths - 1, 10))
            self._child.close()
            self._child, self._due = None, now + delay
            return f"health server ended ({ended}); it starts again in {delay:g} s"
        if self._due is None or now < self._due:
            return None
        try:
            self._child = self._spawn(self._listener)
        except HealthError as error:
            self._due = now + LONGEST_DELAY
            return f"{error}; next try in {LONGEST_DELAY:g} s"
        return None

    def stop(self, timeout: float = 5.0) -> None:
        """End the process (SIGTERM, after ``timeout`` seconds SIGKILL) and give the port back."""
        with self._lock:
            child, self._child, self._due = self._child, None, None
            if child is not None:
                child.stop(timeout)
            remove_offer(offer_path(self._status_path))
            self._release()

    def _release(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._api_listener is not None:
            self._api_listener.close()
            self._api_listener = None

    def _spawn(self, listener: socket.socket) -> ServerChild:
        settings = ServerSettings(
            page=str(self._status_path),
            agent_pid=os.getpid(),
            agent_start_ticks=start_ticks(os.getpid()) or 0,
            timeout=self._timeout,
            listen_fd=listener.fileno(),
            api_fd=self._api_listener.fileno() if self._api_listener is not None else None,
            api_shared=self._shares_listener,
            offer=str(offer_path(self._status_path)),
        )
        return ServerChild(settings)
