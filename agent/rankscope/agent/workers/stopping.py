"""Ends worker processes in bounded time: all are signalled together, and one that cannot be ended is left.

torch waits for each in turn after SIGKILL (older versions without end), and a process that sleeps in the
kernel waiting for a device obeys no signal. Whether a process has ended is asked of a pidfd, which reaps
nothing and sees threads that outlive their main thread. It must not know why they are stopped, nor torch's
process context.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from typing import Final

from rankscope.agent.workers.exits import exit_code
from rankscope.agent.workers.model import WorkerRef
from rankscope.diag import proc

logger = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
"""torch's own, for the lines that its users know."""
LEAST_AFTER_KILL: Final = 5.0
MOST_AFTER_KILL: Final = 30.0
"""Seconds that SIGKILL may take: freeing memory takes its time, a silent device takes for ever."""
HURRIED_AT: Final = 2
KILLED_AT: Final = 3
"""How often an end is asked for before workers get SIGTERM again, and before they get SIGKILL."""
_PAUSE: Final = 0.02
_STOPPED: Final = "T"


def stop_processes(
    workers: Iterable[WorkerRef],
    *,
    death_sig: signal.Signals,
    timeout: float,
    as_groups: bool,
    askings: Callable[[], int] = lambda: 0,
) -> tuple[WorkerRef, ...]:
    """End processes: ``death_sig`` first, SIGKILL after ``timeout`` seconds.

    Args:
        workers: the processes; those that have ended are left alone.
        death_sig: what they get first.
        timeout: seconds until SIGKILL; those that it does not end either in as many seconds (5 at least,
            30 at most) are left.
        as_groups: whether each leads a process group that is signalled as a whole (torch's commands).
        askings: how often an end was asked for. The second time they get SIGTERM, as torch does it, the
            third time SIGKILL.

    Returns:
        Those that are left.
    """
    with contextlib.closing(_Ends(workers)) as ends:
        for worker in ends.running:
            logger.warning("Sending process %s closing signal %s", worker.pid, death_sig.name)
            _send(worker, death_sig, as_group=as_groups)
            _continue_if_stopped(worker, as_group=as_groups)
        deadline = time.monotonic() + timeout
        asked = askings()
        while ends.running and time.monotonic() < deadline:
            ends.wait(min(_PAUSE, timeout))
            before, asked = asked, askings()
            if asked >= KILLED_AT > before:
                break
            if asked >= HURRIED_AT > before:
                for worker in ends.running:
                    _send(worker, signal.SIGTERM, as_group=as_groups)
        for worker in ends.running:
            logger.warning(
                "Unable to shutdown process %s via %s, forcefully exiting via %s",
                worker.pid,
                death_sig.name,
                signal.SIGKILL.name,
            )
            _send(worker, signal.SIGKILL, as_group=as_groups)
        deadline = time.monotonic() + min(max(timeout, LEAST_AFTER_KILL), MOST_AFTER_KILL)
        while ends.running and time.monotonic() < deadline:
            ends.wait(_PAUSE)
        return tuple(ends.running)


def _send(worker: WorkerRef, number: signal.Signals, *, as_group: bool) -> None:
    if proc.start_ticks(worker.pid) != worker.start_ticks:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if as_group:
            os.killpg(worker.pid, number)
        else:
            os.kill(worker.pid, number)


def _continue_if_stopped(worker: WorkerRef, *, as_group: bool) -> None:
    """A stopped process takes no signal but SIGKILL: let it end by itself instead of waiting for that."""
    facts = proc.read_facts(worker.pid, now=time.monotonic())
    if facts is not None and facts.state == _STOPPED:
        _send(worker, signal.SIGCONT, as_group=as_group)


class _Ends:
    """Sees processes end; owns a pidfd for each, where the kernel gives one."""

    def __init__(self, workers: Iterable[WorkerRef]) -> None:
        self._poller = select.poll()
        self._fds: dict[int, WorkerRef] = {}
        self._without: list[WorkerRef] = []
        for worker in workers:
            if proc.start_ticks(worker.pid) != worker.start_ticks:
                continue  # reaped; the pid may be somebody else's by now
            try:
                fd = os.pidfd_open(worker.pid)
            except ProcessLookupError:
                continue
            except OSError:
                self._without.append(worker)
                continue
            self._fds[fd] = worker
            self._poller.register(fd, select.POLLIN)
        self.wait(0.0)

    def close(self) -> None:
        """Close the pidfds."""
        for fd in self._fds:
            os.close(fd)

    @property
    def running(self) -> list[WorkerRef]:
        """Those that have not ended."""
        return [*self._fds.values(), *self._without]

    def wait(self, seconds: float) -> None:
        """Wait for ends, at most ``seconds``."""
        for fd, _event in self._poller.poll(seconds * 1000):
            self._poller.unregister(fd)
            os.close(fd)
            del self._fds[fd]
        if self._without:
            self._without = [worker for worker in self._without if _runs(worker)]
            time.sleep(seconds)


def _runs(worker: WorkerRef) -> bool:
    if exit_code(worker.pid) is not None:
        return False
    facts = proc.read_facts(worker.pid, now=time.monotonic())
    return facts is not None and facts.start_ticks == worker.start_ticks and facts.state not in "ZX"
