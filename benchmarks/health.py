"""Row about health (NUMBERS.md): `/health` at 1,000 requests/s while the agent's main thread spins in Python.

Ours answers from the health server's process. The peer is the same application in a thread of the agent,
which is how agents usually do it. Requests are sent when they are due, over keep-alive connections, and
a latency counts from when the request was due, so that a server that stands still cannot hide it.
Run as a program this module is the agent: ``process`` or ``thread``.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.row import Row
from rankscope.agent.health import HealthProcess, HealthStatus, StatusWriter, WorkerHealth

RATE: Final = 1_000
SECONDS: Final = 3.0
CONNECTIONS: Final = 64
BAR: Final = 0.020
_ROUNDS: Final = 3
_PATIENCE: Final = 30.0
_GRACE: Final = 10.0
_REQUEST: Final = b"GET /health HTTP/1.1\r\nHost: agent\r\n\r\n"


@dataclass(frozen=True)
class Latencies:
    """Seconds of the requests that were answered, sorted, and how many were not."""

    seconds: list[float]
    unanswered: int

    @property
    def p99(self) -> float:
        """With those that were never answered counted as the slowest."""
        place = int(0.99 * (len(self.seconds) + self.unanswered))
        return self.seconds[place] if place < len(self.seconds) else float("inf")


def rows() -> list[Row]:
    """Measure: about half a minute."""
    ours, peer = [], []
    for _ in range(_ROUNDS):
        ours.append(measure("process").p99)
        peer.append(measure("thread").p99)
    mine, others = statistics.median(ours), statistics.median(peer)
    return [
        Row(
            f"/health p99, {RATE:,} requests/s, main thread spinning",
            f"{mine * 1e3:.1f} ms",
            f"{others * 1e3:.1f} ms from a thread of the agent",
            others / mine,
            "<= 20 ms",
            mine <= BAR,
        )
    ]


def measure(kind: str) -> Latencies:
    """Latencies of one run against an agent that serves from a ``process`` or a ``thread``."""
    with _agent(kind) as port:
        return asyncio.run(_load(port))


@contextmanager
def _agent(kind: str) -> Generator[int]:
    with tempfile.TemporaryDirectory() as folder:
        agent = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.health", kind, f"{folder}/page"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        try:
            yield int((agent.stdout and agent.stdout.readline()) or 0)
        finally:
            agent.kill()
            agent.communicate()


class _Client(asyncio.Protocol):
    """One keep-alive connection; requests are answered in order."""

    def __init__(self) -> None:
        self.due: deque[float] = deque()
        self.found: list[float] = []
        self.answered = asyncio.Event()
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, due: float) -> None:
        assert self._transport is not None
        self.due.append(due)
        self._transport.write(_REQUEST)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head = self._rest[:end].lower()
            length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
            if len(self._rest) < end + 4 + length:
                return
            self._rest = self._rest[end + 4 + length :]
            self.found.append(time.perf_counter() - self.due.popleft())
            self.answered.set()

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()


async def _all_answered(clients: list[_Client]) -> None:
    for client in clients:
        while client.due:
            client.answered.clear()
            await client.answered.wait()


async def _load(port: int) -> Latencies:
    loop = asyncio.get_running_loop()
    clients = [(await loop.create_connection(_Client, "127.0.0.1", port))[1] for _ in range(CONNECTIONS)]
    begin = time.perf_counter() + 0.2
    for number in range(int(RATE * SECONDS)):
        due = begin + number / RATE
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        clients[number % CONNECTIONS].ask(due)
    await asyncio.wait({asyncio.create_task(_all_answered(clients))}, timeout=_GRACE)
    for client in clients:
        client.close()
    found = sorted(seconds for client in clients for seconds in client.found)
    return Latencies(found, sum(len(client.due) for client in clients))


def _serve_from_thread(page: str) -> int:
    from aiohttp import web

    from rankscope.agent.health.connections import Connections
    from rankscope.agent.health.lifetime import AgentLife
    from rankscope.agent.health.listen import bound_address, open_listener
    from rankscope.agent.health.routes import Source, make_app
    from rankscope.agent.health.status import StatusReader

    listener = open_listener(None, 0)
    life = AgentLife(os.getppid(), 0)

    async def serve() -> None:
        runner = web.AppRunner(make_app(Source(StatusReader(page), life, timeout=60.0)))
        await runner.setup()
        assert runner.server is not None
        await asyncio.get_running_loop().create_server(Connections(runner.server), sock=listener)
        await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(serve()), name="rankscope-bench", daemon=True).start()
    return bound_address(listener)[1]


def _serve_from_process(page: str) -> int:
    return HealthProcess(page, None, 0).start(_PATIENCE)[1]


def _be_the_agent(kind: str, page: str) -> None:
    writer = StatusWriter(page)
    workers = tuple(WorkerHealth(rank, rank, 100 + rank, "running", 5, 0.1) for rank in range(8))
    writer.publish(HealthStatus(job="bench", node="host", pid=os.getpid(), workers=workers))
    writer.phase("running", None)
    port = _serve_from_thread(page) if kind == "thread" else _serve_from_process(page)
    print(port, flush=True)
    while True:
        pass


if __name__ == "__main__":
    _be_the_agent(sys.argv[1], sys.argv[2])
