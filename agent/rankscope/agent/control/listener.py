"""The agent's control socket: one thread that reads a line, has it answered, and writes a line, a connection.

Whoever connects and says nothing, sends too much, or does not read, is dropped at a deadline and holds
nobody. An answer may come later and from any thread; the thread here never waits for one. It must not know
what is asked or answered beyond its form.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from rankscope.agent.control.messages import (
    ANALYZE_SECONDS,
    ANSWER_SECONDS,
    MAX_ANSWER,
    MAX_REQUEST,
    ControlError,
    Refusal,
    Request,
)

logger = logging.getLogger(__name__)
LONGEST_PATH: Final = 107
"""Bytes of a unix socket's name, one for the NUL."""
MOST: Final = 16
"""Connections at a time; past it the one that has said nothing for longest gives way."""
_BACKLOG: Final = 128
REQUEST_SECONDS: Final = 5.0
"""That a request, and the reading of an answer, may take."""
_WAIT_SECONDS: Final = ANALYZE_SECONDS + ANSWER_SECONDS
_CHUNK: Final = 64 * 1024
_PAUSE: Final = 0.05
"""Seconds before something that failed at once is tried again."""

Reply = Callable[[msgspec.Raw | Refusal], None]
"""Takes the answer, once, from any thread; returns at once."""
Answering = Callable[[Request, Reply], None]
"""Begins to answer a request; returns soon. A ``ControlError`` that it raises is the answer."""


class _Connection:
    """One client."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.sock = sock
        self.deadline = deadline
        self.state: Literal["asking", "waiting", "reading"] = "asking"
        self.line = bytearray()
        self.answer = memoryview(b"")


class ControlListener:
    """Owner of the socket and of the thread ``rankscope-control``.

    Args:
        path: of the socket, in a folder that only this user can enter.
        answering: answers; called in the thread.
    """

    def __init__(self, path: Path, answering: Answering) -> None:
        self._path = path
        self._answering = answering
        self._decoder = msgspec.json.Decoder(Request)
        self._connections: dict[int, _Connection] = {}
        self._answers: queue.SimpleQueue[tuple[_Connection, msgspec.Raw | Refusal]] = queue.SimpleQueue()
        self._poller = select.poll()
        self._stopping = False
        self._wake = -1
        self._wake_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="rankscope-control", daemon=True)

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: the socket cannot be had.
        """
        name = str(self._path)
        if len(os.fsencode(name)) > LONGEST_PATH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), name)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(name)
            self._path.chmod(0o600)
            listener.listen(_BACKLOG)
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        _sockets.add(listener)
        self._poller.register(listener, select.POLLIN)
        self._poller.register(self._wake, select.POLLIN)
        self._thread.start()

    def close(self, timeout: float = 2.0) -> None:
        """End the thread, and drop who is connected; one that is held up by its answer is left behind."""
        if self._thread.ident is None:
            return
        self._stopping = True
        self._ring()
        self._thread.join(timeout)
        if self._thread.is_alive():
            return
        with self._wake_lock:
            os.close(self._wake)
            self._wake = -1

    def _ring(self) -> None:
        # An answer may come after the end, when the number of the descriptor is somebody else's.
        with self._wake_lock, contextlib.suppress(BlockingIOError):  # full: it is awake
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    # The thread.

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception:  # the thread's edge
                logger.exception("rankscope's control socket failed once; it goes on, training is untouched")
                time.sleep(_PAUSE)
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _turn(self) -> None:
        now = time.monotonic()
        nearest = min((one.deadline for one in self._connections.values()), default=None)
        wait = None if nearest is None else max(0.0, nearest - now) * 1000 + 1
        for fd, event in self._poller.poll(wait):
            if fd == self._wake:
                self._drain()
            elif fd == self._listener.fileno():
                self._accept()
            elif (connection := self._connections.get(fd)) is not None:
                self._serve(connection, event)
        self._deliver()
        self._expire(time.monotonic())

    def _drain(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return

    def _accept(self) -> None:
        try:
            sock, _address = self._listener.accept()
        except OSError:  # the client has gone again; or no descriptor is left, and it waits in the queue
            time.sleep(_PAUSE)
            return
        sock.setblocking(False)
        _sockets.add(sock)
        if len(self._connections) >= MOST:
            silent = [one for one in self._connections.values() if one.state != "waiting"]
            self._drop(min(silent, key=lambda one: one.deadline, default=None))
        if len(self._connections) >= MOST:
            sock.close()
            return
        self._connections[sock.fileno()] = _Connection(sock, time.monotonic() + REQUEST_SECONDS)
        self._poller.register(sock, select.POLLIN)

    def _drop(self, connection: _Connection | None) -> None:
        if connection is None or self._connections.pop(connection.sock.fileno(), None) is None:
            return
        self._poller.unregister(connection.sock)
        with contextlib.suppress(OSError):  # the client was first
            # A worker that was forked meanwhile may have it too: to the client it ends all the same.
            connection.sock.shutdown(socket.SHUT_RDWR)
        connection.sock.close()

    def _expire(self, now: float) -> None:
        for connection in list(self._connections.values()):
            if now < connection.deadline:
                continue
            if connection.state == "waiting":
                self._answer(connection, Refusal("failed", "the answer did not come in time"))
            else:
                self._drop(connection)

    def _serve(self, connection: _Connection, event: int) -> None:
        if event & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
            # It does not wait for the answer (an agent that was stopped may read it minutes later): what it
            # asked for is not done behind its back.
            self._drop(connection)
        elif connection.state == "asking":
            self._read(connection)
        elif connection.state == "reading":
            self._write(connection)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        connection.line += data
        line, newline, _rest = connection.line.partition(b"\n")
        if len(line) > MAX_REQUEST:
            self._answer(connection, Refusal("bad_request", f"a request has {MAX_REQUEST} bytes at most"))
        elif newline:
            self._take(connection, bytes(line))

    def _take(self, connection: _Connection, line: bytes) -> None:
        connection.state, connection.deadline = "waiting", time.monotonic() + _WAIT_SECONDS
        self._poller.modify(connection.sock, 0)
        try:
            request = self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._answer(connection, Refusal("bad_request", str(error)))
            return
        try:
            self._answering(request, lambda answer: self._put(connection, answer))
        except ControlError as error:
            self._answer(connection, error.refusal)
        except Exception as error:  # the edge of one request
            logger.exception("rankscope could not answer a request on its control socket")
            self._answer(connection, Refusal("failed", f"the agent could not answer: {error!r}"))

    def _put(self, connection: _Connection, answer: msgspec.Raw | Refusal) -> None:
        self._answers.put((connection, answer))
        self._ring()

    def _deliver(self) -> None:
        while True:
            try:
                connection, answer = self._answers.get_nowait()
            except queue.Empty:
                return
            if connection.state == "waiting":
                self._answer(connection, answer)

    def _answer(self, connection: _Connection, answer: msgspec.Raw | Refusal) -> None:
        """Begin to write; what comes after the first answer is nobody's."""
        line = msgspec.json.encode({"error" if isinstance(answer, Refusal) else "ok": answer}) + b"\n"
        if len(line) > MAX_ANSWER:
            refusal = Refusal("failed", f"the answer has {len(line)} bytes, {MAX_ANSWER} at most")
            line = msgspec.json.encode({"error": refusal}) + b"\n"
        connection.answer = memoryview(line)
        connection.state, connection.deadline = "reading", time.monotonic() + REQUEST_SECONDS
        if connection.sock.fileno() not in self._connections:
            return
        self._poller.modify(connection.sock, select.POLLOUT)
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        try:
            sent = connection.sock.send(connection.answer)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)
            return
        connection.answer = connection.answer[sent:]
        if not connection.answer:
            self._drop(connection)


_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _forget_sockets() -> None:
    for sock in list(_sockets):
        sock.close()


# A worker forked from the agent must not keep its clients, nor take connections that nobody answers.
os.register_at_fork(after_in_child=_forget_sockets)
