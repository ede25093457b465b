"""The worker's end of the timers: acquire and release by one write to the named pipe.

It runs inside training, so it never raises there (a scope too long for a line excepted), waits a bounded
moment for a full pipe, and keeps nothing in a buffer: the line is in the pipe when the call returns,
whatever happens to the process next. It knows the server only as the far end of a path, and needs no
torch: torch's own ``configure`` and ``expires`` take this client as they take theirs.

What is sent, and when:

- *Our server* (it holds a lock on the pipe that tells it from torch's): one descriptor is kept open for
  the life of the process. torch's server reads blocking, and stops looking at its timers while a writer
  keeps the pipe open: for it the pipe is opened and closed for each request, as torch's client does.
- *A pipe that stays full* (a stopped server): the newest state of each scope is kept and goes out before
  anything else: at the next call, or by a thread that lives only as long as something is kept. So a
  release that met a full pipe still reaches the server when it wakes, though the caller never calls
  again. The server, for its part, reads all that was in the pipe before it lets a timer expire, gives
  the writers a second when it found the pipe full, and every timer the time for which it was stopped.
- *No server*: nothing happens, which is logged once. Timers that run are remembered and told first to a
  server that comes (back); a release needs no telling, a new server knows no timers.
- *A forked child* starts afresh: the parent's timers and descriptor stay the parent's. A fork that Python
  does not see (made in C) is known by the pid.
- *A signal handler of the program* may run, raise and use the client at any place in here: what it raises
  goes on to the program, what was to be sent goes out all the same.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal as signals
import sys
import threading
import time
import weakref
from collections.abc import Generator
from enum import Enum
from typing import Final

from rankscope.watchdog.timers.connection import PipeConnection
from rankscope.watchdog.timers.descriptor import is_of_the_system
from rankscope.watchdog.timers.wire import (
    Event,
    OversizeRequestError,
    ScopeLines,
    as_seconds,
    encode_event,
)

PATIENCE: Final = 0.5
"""Seconds a call waits for a pipe that stays full; our server empties one in 20-50 ms."""
MAX_PATIENCE: Final = 3.0
"""Seconds a call waits for a pipe that is being read but that other writers fill first."""
STRICT_PATIENCE: Final = 0.9
"""Seconds a strict client looks for a server: torch 2.13 tries ten times, 0.1 s apart."""
_STRICT_RETRY: Final = 0.1
_FLUSH_WAIT: Final = 10.0
_FLUSH_RETRY: Final = 0.1
_LOCK_PATIENCE: Final = 0.5
"""Seconds; nobody holds the lock while he waits. A thread that the interpreter's end froze may hold it."""
_MAX_CACHED_SCOPES: Final = 1024
_logger = logging.getLogger(__name__)
_clients: weakref.WeakSet[FileTimerClient] = weakref.WeakSet()


class _Outcome(Enum):
    SENT = "sent"
    FULL = "full"
    ABSENT = "absent"


class FileTimerClient:
    """Sends this process's timers to a ``FileTimerServer``, ours or torch's. Safe for many threads."""

    def __init__(self, file_path: str, signal: int = signals.SIGKILL, *, strict: bool = False) -> None:
        """Nothing is opened yet.

        Args:
            file_path: the server's named pipe.
            signal: signal to end this process with when a timer expires; 0 or less for none.
            strict: raise as torch's client does when no server is there (torch's own tests want that).
        """
        # The program may change its folder, and be in one that is gone.
        with contextlib.suppress(OSError):
            file_path = os.path.abspath(file_path)  # noqa: PTH100 - pathlib costs 5 ms to import
        self._file_path = file_path
        self._signal = int(signal)
        self._strict = strict
        self._forget()
        _clients.add(self)

    def __reduce__(self) -> tuple[object, ...]:
        """Travels to another process (or into a copy) as its path and signal, without what is running."""
        return _made_again, (type(self), self._file_path, self._signal, self._strict)

    @property
    def signal(self) -> int:
        """Signal to end this process with when one of its timers expires."""
        return self._signal

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Set a timer; set again, its expiry moves.

        Args:
            scope_id: name of the timer within this process.
            expiration_time: seconds since the epoch.

        Raises:
            OversizeRequestError: the scope is too long for one line.
            BrokenPipeError: no server, with ``strict`` only.
        """
        if expiration_time < 0:
            self.release(scope_id)
            return
        lines = self._lines.get(scope_id) if self._pid == os.getpid() else None
        if lines is None:
            lines = self._encode(scope_id)
        expiration_time = as_seconds(expiration_time)
        after = expiration_time - time.time()
        line = lines.acquire(expiration_time, time.monotonic() + after, after)
        self._running[scope_id] = line
        self._send(scope_id, line)

    def release(self, scope_id: str) -> None:
        """Give a timer up. Raises as ``acquire`` does."""
        lines = self._lines.get(scope_id) if self._pid == os.getpid() else None
        if lines is None:
            lines = self._encode(scope_id)
        self._running.pop(scope_id, None)
        try:
            self._send(scope_id, lines.release)
        except BrokenPipeError:
            raise
        except BaseException:
            # A signal handler raised through us. The release is owed all the same.
            self._unsent[scope_id] = lines.release
            self._direct = False
            self._start_flushing()
            raise

    def send_event(self, name: str, **data: str | float | bool | None) -> bool:
        """Tell our server something at once; never raises, waits or keeps it for later.

        torch's server loses other requests over a line it does not know: it is not sent there.

        Returns:
            Whether the line is in our server's pipe.
        """
        self._start_afresh_in_a_child()
        with contextlib.suppress(OversizeRequestError, TypeError, ValueError):
            line = encode_event(Event(name, os.getpid(), data))
            with self._locked() as locked:
                if locked and not self._busy:
                    sent = self._write_event(line)
                    if self._unsent and self._flush() is _Outcome.FULL:
                        self._start_flushing()
                    return sent
        return False

    def _write_event(self, line: bytes) -> bool:
        connection = self._connection
        self._busy = True
        try:
            if connection.is_ours:
                try:
                    connection.write(line)
                except BlockingIOError:
                    return False
                except OSError as error:
                    self._lose(error)
                else:
                    return True
            if self._reconnect() and connection.is_ours:
                connection.write(line)
                return True
        except OSError as error:
            if not is_of_the_system(error):
                raise
        finally:
            self._busy = False
            connection.leave()
        return False

    def close(self) -> None:
        """Close the descriptor; the next call opens it again. Not while another thread calls."""
        with self._locked():
            if self._busy:
                return
            self._busy, self._direct = True, False
            try:
                self._connection.close()
            finally:
                self._busy = False
            if self._unsent:
                # Left by a signal handler meanwhile.
                self._flush()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        # Held by the thread that sends what is held back.
        self._flushing = threading.Lock()
        self._connection = PipeConnection(self._file_path)
        self._lines: dict[str, ScopeLines] = {}
        self._running: dict[str, bytes] = {}
        self._unsent: dict[str, bytes] = {}
        # Connected to our server and nothing held back: a call is one write.
        self._direct = False
        # Under the lock: its holder is at the connection.
        self._busy = False

    def _start_afresh_in_a_child(self) -> None:
        if self._pid != os.getpid():
            self._connection.close()
            self._forget()

    @contextlib.contextmanager
    def _locked(self) -> Generator[bool]:
        locked = self._lock.acquire(timeout=_LOCK_PATIENCE)
        try:
            yield locked
        finally:
            if locked:
                self._lock.release()

    def _encode(self, scope_id: str) -> ScopeLines:
        """The lines of a scope that this process has not had yet."""
        self._start_afresh_in_a_child()
        lines = ScopeLines(scope_id, pid=self._pid, signal=self._signal)
        if len(self._lines) >= _MAX_CACHED_SCOPES:
            self._lines.clear()
        self._lines[scope_id] = lines
        return lines

    def _send(self, scope_id: str, line: bytes) -> None:
        if self._direct:
            try:
                self._connection.write_kept(line)
            except OSError as error:
                if not is_of_the_system(error):
                    raise
            else:
                return
        outcome = self._hold_and_flush(scope_id, line)
        if outcome is _Outcome.FULL:
            self._wait_for_server()
        elif outcome is _Outcome.ABSENT and self._strict:
            self._insist(scope_id, line)

    def _hold_and_flush(self, scope_id: str, line: bytes) -> _Outcome:
        with self._locked() as locked:
            self._direct = False
            self._unsent.pop(scope_id, None)
            self._unsent[scope_id] = line
            return self._flush() if locked else _Outcome.FULL

    def _flush(self) -> _Outcome:
        """Send all that is held back, the longest held first, opening the pipe where it must."""
        with self._locked() as locked:
            if not locked:
                return _Outcome.FULL
            if self._busy:
                # A signal handler, in the midst of this thread's own sending: that goes on with it.
                return _Outcome.SENT
            while True:
                self._busy = True
                try:
                    outcome = self._send_what_is_held_back()
                finally:
                    self._busy = False
                    self._connection.leave()
                if outcome is not _Outcome.SENT or not self._unsent:
                    return outcome

    def _send_what_is_held_back(self) -> _Outcome:
        connection, may_open = self._connection, True
        while self._unsent:
            # A copy: a signal handler may add to it at any time.
            for scope_id in tuple(self._unsent):
                if not connection.is_open:
                    if not (may_open and self._reconnect()):
                        if connection.is_short:
                            return _Outcome.FULL
                        # What runs is in _running, and a new server has nothing to release.
                        self._unsent.clear()
                        return _Outcome.ABSENT
                    may_open = False
                if self._write_held_back(scope_id) is _Outcome.FULL:
                    return _Outcome.FULL
        self._direct = connection.is_ours
        return _Outcome.SENT

    def _write_held_back(self, scope_id: str) -> _Outcome:
        """Write one line; when the server is lost over it, the connection says so."""
        line = self._unsent.get(scope_id)
        if line is None:
            return _Outcome.SENT
        try:
            line = self._unsent.pop(scope_id, line)
            self._connection.write(line)
        except BaseException as error:
            # Back to the others, unless a signal handler has put a newer state there.
            self._unsent.setdefault(scope_id, line)
            if isinstance(error, BlockingIOError):
                return _Outcome.FULL
            if not isinstance(error, OSError):
                raise
            self._lose(error)
        return _Outcome.SENT

    def _lose(self, error: OSError) -> None:
        if not is_of_the_system(error):
            try:
                raise error
            finally:
                del error  # this frame stands in its traceback: a circle that only gc would free
        self._connection.lose(error)

    def _reconnect(self) -> bool:
        """Open the pipe; a server that has not heard of the running timers is told of them first."""
        self._direct = False
        if not self._connection.open():
            return False
        if self._connection.is_new:
            self._unsent = self._running | self._unsent
        return True

    def _wait_for_server(self) -> None:
        """Give a full pipe a moment, once; then leave what is held back to a thread."""
        now = time.monotonic()
        until, at_last = now + PATIENCE, now + MAX_PATIENCE
        try:
            while not self._flushing.locked() and now < min(until, at_last):
                if self._connection.wait_for_room(until - now):
                    # It is being read; others were quicker than we.
                    until = time.monotonic() + PATIENCE
                if self._flush() is not _Outcome.FULL:
                    return
                now = time.monotonic()
        finally:
            if self._unsent:
                self._start_flushing()

    def _insist(self, scope_id: str, line: bytes) -> None:
        until = time.monotonic() + STRICT_PATIENCE
        while time.monotonic() < until:
            time.sleep(_STRICT_RETRY)
            if self._hold_and_flush(scope_id, line) is not _Outcome.ABSENT:
                return
        self._running.pop(scope_id, None)
        raise BrokenPipeError(f"no timer server reads {self._file_path}")

    def _start_flushing(self) -> None:
        # At the interpreter's end a thread would never get to run, and Thread.start() wait for it for ever.
        if sys.is_finalizing() or not self._flushing.acquire(blocking=False):
            return
        try:
            threading.Thread(
                target=self._flush_until_sent,
                args=(self._flushing,),
                name="rankscope-timer-flush",
                daemon=True,
            ).start()
        except BaseException as error:
            self._flushing.release()
            # No thread to be had: the next call sends it.
            if not isinstance(error, RuntimeError):
                raise

    def _flush_until_sent(self, flushing: threading.Lock) -> None:
        try:
            while True:
                self._connection.wait_for_room(_FLUSH_WAIT, retry=_FLUSH_RETRY)
                with self._locked():
                    if self._flush() is not _Outcome.FULL:
                        # Under the lock: who finds the pipe full next must not count on this thread.
                        flushing.release()
                        return
        except Exception:
            flushing.release()
            _logger.exception("timer requests held back could not be sent; the next call tries again")


def _made_again(kind: type[FileTimerClient], path: str, signal: int, strict: bool) -> FileTimerClient:  # noqa: FBT001
    return kind(path, signal, strict=strict)


def _forget_parents() -> None:
    for client in list(_clients):
        client._start_afresh_in_a_child()  # noqa: SLF001 - the module's own class


os.register_at_fork(after_in_child=_forget_parents)
