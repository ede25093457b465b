"""The server of the timers: one thread that reads the pipe, keeps the timers and says which expired.

Alone it does what torch's does (2.13, ``torch/distributed/elastic/timer/file_based_local_timer.py``):
signals the worker, then its own process. With ``on_expired`` it only tells: what follows is the agent's
decision. What expires when is decided in ``registry``; this module has the clock, the thread and the
signals, and knows nothing of ranks, torch or the agent.

It sleeps until a line comes or the next timer is due. A line that cannot be used is counted and skipped.
Before a timer expires, all that was in the pipe at that moment has been read; when that was so much that
the pipe may have been full, the writers get a moment to send what they had to keep. Time in which this
process did not run (stopped, frozen, a suspended machine) is given back to every timer: the thread notices
it by waking too late. So while timers run it wakes now and then, the more often the nearer an expiry, and of
the time that a timer has left a quarter at most (and ``_LAST_TICK``) can go unseen.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from rankscope.watchdog.timers.intake import Intake, TimerCounts
from rankscope.watchdog.timers.liveness import is_running
from rankscope.watchdog.timers.pipe import TimerPipe
from rankscope.watchdog.timers.registry import ActiveTimer, ExpiredTimers, TimerRegistry, signal_of
from rankscope.watchdog.timers.wire import Event, FileTimerRequest

OnExpired = Callable[[int, tuple[FileTimerRequest, ...]], None]
OnEvent = Callable[[Event], None]
LogEvent = Callable[[str, FileTimerRequest | None], None]

_TICK: Final = 5.0
"""Most seconds between wake-ups while timers run. None run: no wake-ups."""
_LAST_TICK: Final = 0.25
"""Least seconds between them; 30 s before an expiry there are some 20 to come."""
_PAUSE: Final = 0.25
"""Waking later than this is a pause; a loaded machine is some 10 ms late."""
_LONG_PAUSE: Final = 1.0
"""A pause that is worth a line in the log, and a word about the thread's health."""
_REST: Final = 0.001
"""Seconds between two sleeps in the poll. A write that wakes nobody costs its writer half: under a stream of
requests this is nearly all of them. The pipe holds some 20 ms of eight writers at full speed."""
_STOP_DEADLINE: Final = 5.0
_logger = logging.getLogger(__name__)


class FileTimerServer:
    """Reads timers from a named pipe; torch's server in torch's place, or the agent's eyes."""

    def __init__(
        self,
        file_path: str,
        run_id: str,
        max_interval: float = 10,
        daemon: bool = True,  # noqa: FBT001, FBT002 - torch's signature
        log_event: LogEvent | None = None,
        *,
        on_expired: OnExpired | None = None,
        on_event: OnEvent | None = None,
        is_known_pid: Callable[[int], bool] | None = None,
    ) -> None:
        """Make the pipe; from here on clients can write.

        Args:
            file_path: where; the folder must exist. A named pipe of that name is replaced.
            run_id: the job, for the log.
            max_interval: torch's interval between looks at the timers; here only the least time that
                ``stop`` waits for the thread (5 s if that is more).
            daemon: whether the interpreter may end while the thread runs.
            log_event: torch's callback: "watchdog started", "timer expired", "kill worker process",
                "watchdog stopped", with the request where there is one.
            on_expired: called with a process and its expired requests *instead of* any signal.
            on_event: called with each event line. Both run in the server's thread and must return soon.
            is_known_pid: whether a process may set timers; it is asked once for a process that may, and
                once a second for one that may not.

        Raises:
            OSError: the pipe cannot be made.
        """
        self._run_id = run_id
        self._stop_deadline = max(max_interval, _STOP_DEADLINE)
        self._daemon = daemon
        self._log_event: LogEvent = log_event or (lambda _name, _request: None)
        self._on_expired = on_expired
        self._on_event = on_event
        self._pipe = TimerPipe(file_path)
        self._thread: threading.Thread | None = None
        self._stopping = False
        # Guards the registry and the counts: whoever looks gets the state between two batches.
        self._lock = threading.RLock()
        self._registry = TimerRegistry()
        self._intake = Intake(self._registry, is_known_pid)
        self._expired = 0
        self._last_progress_time = time.time()
        self._due = math.inf
        self._swept = 0.0

    def start(self) -> None:
        """Start the thread; twice is once.

        Raises:
            OSError: the process can have no more threads; the pipe is closed and gone.
        """
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="rankscope-timers", daemon=self._daemon)
        try:
            thread.start()
        except RuntimeError as error:
            self._pipe.close()
            raise OSError(errno.EAGAIN, str(error)) from error
        self._thread = thread
        self._log_event("watchdog started", None)

    def stop(self) -> None:
        """End the thread, close and remove the pipe; twice is once.

        A thread that is still in a callback after the deadline is left to close the pipe by itself.
        """
        if self._stopping:
            return
        self._stopping = True
        self._pipe.wake()
        if self._thread is None:
            self._pipe.close()
        elif self._thread is not threading.current_thread():
            self._thread.join(self._stop_deadline)
            if self._thread.is_alive():
                _logger.error("the timers' thread is still in a callback after %g s", self._stop_deadline)
        self._log_event("watchdog stopped", None)

    def clear(self, pids: Collection[int]) -> None:
        """Forget the timers of these processes: they are being restarted."""
        with self._lock:
            self._registry.clear(pids)
            self._intake.clear(pids)

    def active_timers(self) -> list[ActiveTimer]:
        """The running timers, the next to expire first."""
        with self._lock:
            return self._registry.active(time.monotonic())

    def is_overrun(self, pid: int, scope: str) -> bool:
        """Whether a timer expired and has neither been given up nor set again since."""
        with self._lock:
            return self._registry.is_overrun(pid, scope)

    def last_request_times(self) -> dict[int, float]:
        """When each process was last heard (CLOCK_MONOTONIC, seconds): a timer call is progress."""
        with self._lock:
            return self._intake.heard()

    def counts(self) -> TimerCounts:
        """What was read and done so far."""
        with self._lock:
            return self._intake.counts(expired=self._expired)

    @property
    def last_progress_time(self) -> float:
        """Last time (seconds since the epoch) at which the thread was known to do its work.

        Now, as long as it sleeps no longer than it meant to (torch's wakes up all the time to say so).
        """
        if self._thread is None or (self._thread.is_alive() and time.monotonic() < self._due + _LONG_PAUSE):
            return time.time()
        return self._last_progress_time

    def get_last_progress_time(self) -> int:
        """``last_progress_time`` in whole seconds, under torch's name."""
        return int(self.last_progress_time)

    def _run(self) -> None:
        try:
            woke = time.monotonic()
            while not self._stopping:
                woke = self._turn(woke)
        except Exception:
            _logger.exception(
                "the timers' server of run %s has failed; timers are without effect", self._run_id
            )
        finally:
            self._pipe.close()

    def _turn(self, last_woke: float) -> float:
        """Sleep, read, expire; returns when it woke."""
        self._due = self._next_wake(last_woke)
        left = self._due - time.monotonic()
        self._pipe.wait(None if math.isinf(left) else max(0.0, left))
        woke = time.monotonic()
        paused = 0.0
        if woke - self._due > _PAUSE:
            # When it began is unknown: the whole sleep is given, else a timer would be due on waking.
            paused = woke - last_woke
            level = logging.WARNING if woke - self._due > _LONG_PAUSE else logging.DEBUG
            _logger.log(level, "run %s: timers stood still, %.1f s are given back", self._run_id, paused)
            with self._lock:
                self._registry.give_back(paused)
        self._due = woke
        with self._lock:
            self._intake.ask_again(woke)
        if self._drain(woke, grace=paused) >= self._pipe.half_full:
            with self._lock:
                self._registry.withhold(woke)
        self._expire(woke)
        self._forget_dead(woke)
        self._last_progress_time = time.time()
        time.sleep(_REST)
        return woke

    def _next_wake(self, last_woke: float) -> float:
        with self._lock:
            deadline, question = self._registry.next_deadline(), self._intake.next_question()
        # Never before the last waking: a timer long released must not look like a pause.
        due = max(last_woke, min(deadline, question))
        return (
            due
            if math.isinf(due)
            else min(due, last_woke + min(_TICK, max(_LAST_TICK, (due - last_woke) / 4)))
        )

    def _drain(self, now: float, *, grace: float) -> int:
        """Read all that was in the pipe at ``now``; returns the number of bytes."""
        size_bytes = 0
        while size_bytes < self._pipe.capacity and (lines := self._pipe.read()):
            size_bytes += sum(map(len, lines)) + len(lines)
            wall = time.time()
            with self._lock:
                events = self._intake.take(lines, now=now, wall=wall, grace=grace)
            for event in events:
                self._tell(event)
        return size_bytes

    def _tell(self, event: Event) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:
            _logger.exception("error in the callback for event %s of process %d", event.name, event.pid)

    def _expire(self, now: float) -> None:
        with self._lock:
            expired = self._registry.expired(now)
            living = [each for each in expired if self._counts(each, now)]
        ended_with = 0
        for each in living:
            self._expired += len(each.requests)
            _logger.warning(
                "run %s: timers of process %d expired: %s",
                self._run_id,
                each.pid,
                ", ".join(request.scope_id for request in each.requests),
            )
            try:
                for request in each.requests:
                    self._log_event("timer expired", request)
                if self._on_expired is None:
                    ended_with = self._end(each) or ended_with
                else:
                    self._on_expired(each.pid, each.requests)
            except Exception:
                _logger.exception("error in the callback for expired timers of process %d", each.pid)
        if ended_with:
            _logger.error("ending the server's own process %d, as torch's server does", os.getpid())
            os.kill(os.getpid(), ended_with)

    def _counts(self, expired: ExpiredTimers, now: float) -> bool:
        """Whether it is still the process that set the timers, and still one of the job's."""
        pid = expired.pid
        return is_running(pid, seconds_ago=now - expired.since) and self._intake.is_still_known(pid)

    def _end(self, expired: ExpiredTimers) -> int:
        """Signal the worker as torch does; returns the signal sent, 0 for none."""
        with self._lock:
            self._registry.clear({expired.pid})
        request = signal_of(expired.requests)
        if request is None:
            return 0
        try:
            os.kill(expired.pid, request.signal)
        except ProcessLookupError:
            return 0
        except OSError:
            _logger.exception("cannot send signal %d to process %d", request.signal, expired.pid)
            return 0
        self._log_event("kill worker process", request)
        return request.signal

    def _forget_dead(self, now: float) -> None:
        if now < self._swept + _TICK:
            return
        self._swept = now
        with self._lock:
            dead = [pid for pid in self._intake.pids() if not is_running(pid)]
        self.clear(dead)
