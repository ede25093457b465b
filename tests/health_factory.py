"""Real servers, real sockets and real agents for the tests of the health room."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.agent.health import HealthProcess
from rankscope.agent.health.lifetime import start_ticks
from rankscope.agent.health.model import HealthStatus, WorkerHealth
from rankscope.agent.health.status import StatusWriter

PATIENCE = 30.0


def eventually(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Wait for a condition, with a deadline."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def ask(
    address: tuple[str, int],
    path: str,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Reply:
    connection = http.client.HTTPConnection(address[0], address[1], timeout=PATIENCE)
    try:
        connection.request(method, path, headers=headers or {}, body=body)
        response = connection.getresponse()
        return Reply(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def answers(address: tuple[str, int], path: str, status: int) -> Callable[[], bool]:
    return lambda: ask(address, path).status == status


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=PATIENCE)


def is_gone(pid: int) -> bool:
    return start_ticks(pid) is None


def a_page(path: Path) -> StatusWriter:
    """A page of an agent whose two workers run."""
    writer = StatusWriter(path)
    workers = (WorkerHealth(0, 0, 100, "running"), WorkerHealth(1, 1, 101, "running"))
    writer.publish(HealthStatus(job="run-7", node="host-a", pid=os.getpid(), workers=workers))
    writer.phase("running", None)
    return writer


@contextmanager
def a_published_page(path: Path, status: HealthStatus | None = None) -> Generator[StatusWriter]:
    """``a_page`` for a while, with ``status`` in place of its own."""
    writer = a_page(path)
    if status is not None:
        writer.publish(status)
    try:
        yield writer
    finally:
        writer.close()


@contextmanager
def a_health_process(page: Path) -> Generator[HealthProcess]:
    """The server's process as an agent starts it, on a free port of loopback."""
    process = HealthProcess(page, None, 0)
    process.start(PATIENCE)
    try:
        yield process
    finally:
        process.stop()


@contextmanager
def a_server(page: Path, *, agent_pid: int | None = None, **settings: object) -> Generator[ServerByHand]:
    """``python -m rankscope.agent.health.server``, as somebody would start it by hand."""
    pid = agent_pid or os.getpid()
    given = {"page": str(page), "agent_pid": pid, "agent_start_ticks": start_ticks(pid), "host": "127.0.0.1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "rankscope.agent.health.server", json.dumps(given | settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline() or "null")
        assert ready is not None, process.communicate()[1]
        yield ServerByHand(process, (ready["host"], ready["port"]))
    finally:
        process.kill()
        process.communicate()


@dataclass(frozen=True)
class ServerByHand:
    process: subprocess.Popen[str]
    address: tuple[str, int]

    def end(self) -> tuple[int, str, str]:
        """SIGTERM; exit code and all that it wrote after its first line."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


AGENT = """
import ctypes, os, sys, threading, time
from rankscope.agent.health import HealthProcess, HealthStatus, StatusWriter
writer = StatusWriter(sys.argv[1])
writer.publish(HealthStatus(job="run-7", node="host-a", pid=os.getpid()))
writer.phase("running", None)
server = HealthProcess(writer.path, None, 0)
def start():
    host, port = server.start(30)
    print(host, port, server.pid, flush=True)
"""


@contextmanager
def an_agent(
    page: Path, does: str, *, start: str = "start()"
) -> Generator[tuple[subprocess.Popen[str], Any]]:
    """A process with a status page and a health server that then does something else.

    Yields:
        The process, and ``(address, server pid)``.
    """
    program = f"{AGENT}\n{start}\n{does}\n"
    agent = subprocess.Popen(
        [sys.executable, "-c", program, str(page)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        assert agent.stdout is not None
        host, port, pid = agent.stdout.readline().split()
        yield agent, ((host, int(port)), int(pid))
    finally:
        agent.kill()
        agent.communicate()


def closes(connection: socket.socket, seconds: float = PATIENCE) -> bool:
    """Whether the other side ends the connection within the time."""
    poller = select.poll()
    poller.register(connection, select.POLLIN | select.POLLHUP)
    while poller.poll(seconds * 1000):
        try:
            if not connection.recv(65536):
                return True
        except ConnectionResetError:
            return True
    return False
