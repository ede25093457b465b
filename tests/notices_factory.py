"""A real HTTP server that behaves as badly as asked, and notices that go to it."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.health_factory import PATIENCE, eventually

from rankscope.agent.notices.delivery import Notices
from rankscope.agent.notices.lane import Limits
from rankscope.agent.notices.topics import TOPICS
from rankscope.agent.settings.values import Settings
from rankscope.diag.store.events import TYPE_PREFIX, Event

QUICK = Limits(
    waiting=50,
    tries=2,
    try_seconds=0.4,
    notice_seconds=30.0,
    first_pause=0.01,
    longest_pause=0.02,
    longest_wait=0.5,
    desk_late=1.0,
)
"""The limits of most tests: a server that hangs is given up soon."""
PATIENT = Limits(tries=5, try_seconds=20.0, first_pause=0.01, longest_pause=0.02)
"""For tests in which a try that is slow for want of CPU must not fail."""


SECRET = "T00-B11-s3cr3t"
"""Whatever must not be shown."""


def an_event(number: int = 0, name: str = "decision", **data: object) -> Event:
    given = data or {"action": "restart", "reason": f"reason {number}"}
    return Event(
        id=f"id-{number}",
        source="host-a",
        type=TYPE_PREFIX + name,
        time="2026-11-30T08:00:00.000Z",
        data=given,
    )


def settings(
    *webhooks: str,
    command: str = "",
    slack: bool = False,
    topics: Iterable[str] | None = None,
    sources: Mapping[str, str] | None = None,
) -> Settings:
    return Settings(
        webhooks=webhooks,
        notify_command=command,
        webhook_format="slack" if slack else "cloudevents",
        notify_on=frozenset(TOPICS if topics is None else topics),
        sources=sources or {},
    )


@dataclass
class Request:
    """What one connection brought."""

    line: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[["Receiver", socket.socket], None]


@dataclass
class Receiver:
    """A server; each connection takes the next of ``answers``, the last one for ever."""

    answers: list[Answer]
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    requests: list[Request] = field(default_factory=list)
    gone: list[bool] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def serve(self) -> None:
        while not self.ended.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            thread = threading.Thread(target=self._serve_one, args=(connection, answer))
            self._threads.append(thread)
            thread.start()

    def _serve_one(self, connection: socket.socket, answer: Answer) -> None:
        with connection, contextlib.suppress(OSError):
            with connection.makefile("rb") as stream:
                line = stream.readline().decode().strip()
                headers: dict[str, str] = {}
                while (raw := stream.readline().strip()) != b"":
                    name, _, value = raw.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = stream.read(int(headers.get("content-length", "0")))
            self.requests.append(Request(line, headers, body))
            answer(self, connection)

    def until_gone(self, connection: socket.socket) -> None:
        """Wait until the other side has closed, or the test is over."""
        while not self.ended.is_set():
            if select.select([connection], [], [], 0.02)[0] and not connection.recv(4096):
                self.gone.append(True)
                return

    def close(self) -> None:
        self.ended.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self._threads:
            thread.join(10)


def status(code: int, *headers: str, body: str = "") -> Answer:
    lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(body)}", *headers, "", body]

    def answer(receiver: Receiver, connection: socket.socket) -> None:
        connection.sendall("\r\n".join(lines).encode())

    return answer


def hangs(receiver: Receiver, connection: socket.socket) -> None:
    """Take the request and say nothing."""
    receiver.until_gone(connection)


def closes_early(receiver: Receiver, connection: socket.socket) -> None:
    """Close after the request."""


def closes_in_mid_answer(receiver: Receiver, connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 20")


def closes_in_mid_body(receiver: Receiver, connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")


def talks_nonsense(receiver: Receiver, connection: socket.socket) -> None:
    connection.sendall(b"\x00\xff no HTTP at all\r\n\r\n")


def resets(receiver: Receiver, connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def endless(head: bytes, piece: bytes, *, pause: float = 0.0) -> Answer:
    """Send ``head`` and then ``piece`` for ever."""

    def answer(receiver: Receiver, connection: socket.socket) -> None:
        connection.sendall(head)
        while not receiver.ended.wait(pause):
            connection.sendall(piece)

    return answer


ok = status(204)
drips = endless(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x", pause=0.02)
"""A byte now and then: no time-out of a socket ever fires."""


@contextlib.contextmanager
def a_receiver(*answers: Answer) -> Generator[Receiver]:
    receiver = Receiver(list(answers) or [ok])
    thread = threading.Thread(target=receiver.serve)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.close()
        thread.join(10)


@dataclass
class Sent:
    """Notices under test, and what they reported."""

    notices: Notices
    failed: list[dict[str, object]]
    said: list[str]

    def offer(self, *events: Event) -> None:
        for event in events:
            self.notices.offer(event)

    def fails(self, count: int = 1) -> list[dict[str, object]]:
        eventually(lambda: len(self.failed) >= count, f"{count} notices are given up")
        return self.failed

    def all_arrive(self) -> None:
        """Everything is delivered, answers included."""
        self.notices.close(PATIENCE)
        assert self.failed == []

    @property
    def shown(self) -> str:
        return "\n".join([*self.said, *map(repr, self.failed)])


@contextlib.contextmanager
def sending(wanted: Settings, *, limits: Limits = QUICK, job: str = "run-7") -> Generator[Sent]:
    """Notices that leave nothing behind: no thread, no process, no descriptor."""
    this = psutil.Process()
    fds, threads = this.num_fds(), threading.active_count()
    failed: list[dict[str, object]] = []
    said: list[str] = []
    notices = Notices(wanted, said.append, failed.append, job=job, limits=limits)
    sent = Sent(notices, failed, said)
    try:
        yield sent
    finally:
        family = processes()
        notices.close(0.0)
        eventually(lambda: not any(map(is_alive, family)), "all processes of the notices have ended")
    # The servers of a test close theirs when they like: fewer is no leak.
    eventually(lambda: this.num_fds() <= fds, "no descriptor is left")
    eventually(lambda: threading.active_count() <= threads, "no thread is left")


def processes() -> list[psutil.Process]:
    """The desk and all that descends from it."""
    return [each for each in psutil.Process().children(recursive=True) if "multiprocessing" not in name(each)]


def name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def the_desk() -> psutil.Process:
    """The process that delivers; there is one."""
    (found,) = [each for each in psutil.Process().children() if "notices.desk" in name(each)]
    return found


def a_script(path: Path, text: str) -> str:
    """An executable shell script; its path."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def bodies(receiver: Receiver) -> list[str]:
    return [request.json()["id"] for request in receiver.requests]


def arrive(receiver: Receiver, *ids: str) -> None:
    eventually(lambda: bodies(receiver)[-len(ids) :] == list(ids), f"{ids} arrive, not {bodies(receiver)}")


def read(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text()
    return ""


def noted(path: Path) -> psutil.Process:
    """The process whose number stands in a file."""
    eventually(lambda: read(path).endswith("\n"), "a process has noted its number")
    return psutil.Process(int(read(path)))
