"""Rows about health (NUMBERS.md): `/health` at 1,000 requests/s, with 200 more connections that say nothing.

Of an agent whose main thread spins in Python ours answers from the health server's process; the peer is the
same application in a thread of the agent, which is how agents usually do it. Of real agents in each phase in
which the main thread stands still or is busy (``phases``) the peer is an agent whose ranks just train, asked
in turn: torch's own health check server never answers. Requests are sent when they are due (``paced``). Run
as a program this module is the spinning agent: ``process`` or ``thread``.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.paced import Latencies, send
from benchmarks.phases import PHASES, Address, running
from benchmarks.row import Row
from rankscope.agent.health import HealthProcess, HealthStatus, StatusWriter, WorkerHealth

RATE: Final = 1_000
SECONDS: Final = 3.0
IDLE: Final = 200
BAR: Final = 0.020
_ROUNDS: Final = 3
_PATIENCE: Final = 30.0


def rows() -> list[Row]:
    """Measure: about two minutes."""
    return [_spinning_row(), *_phase_rows()]


def _spinning_row() -> Row:
    ours, peer = [], []
    for _ in range(_ROUNDS):
        ours.append(_of_spinning("process").p99)
        peer.append(_of_spinning("thread").p99)
    mine, others = statistics.median(ours), statistics.median(peer)
    return Row(
        f"/health p99, {RATE:,} requests/s, main thread spinning",
        _shown(mine),
        f"{_shown(others)} from a thread of the agent",
        others / mine,
        "<= 20 ms",
        mine <= BAR,
    )


def _phase_rows() -> list[Row]:
    """Each agent and one whose ranks just train are asked in turn: both meet what else the machine does."""
    with tempfile.TemporaryDirectory() as name, running(Path(name) / "running") as training:
        return [
            _phase_row(f"the same, {what}", phase(Path(name) / str(number)), training)
            for number, (what, phase) in enumerate(PHASES.items())
        ]


def _phase_row(name: str, phase: AbstractContextManager[Address], training: Address) -> Row:
    ours, peer = [], []
    with phase as address:
        for _ in range(_ROUNDS):
            ours.append(measure(address).p99)
            peer.append(measure(training).p99)
    mine, others = statistics.median(ours), statistics.median(peer)
    return Row(
        name,
        _shown(mine),
        f"{_shown(others)}, ranks train beside it",
        mine / others,
        "<= 20 ms",
        mine <= BAR,
    )


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def measure(address: Address) -> Latencies:
    """Latencies of one run."""
    return asyncio.run(send(address, ["/health"], rate=RATE, seconds=SECONDS, idle=IDLE))


def _of_spinning(kind: str) -> Latencies:
    """Latencies of an agent that serves from a ``process`` or a ``thread``."""
    with _agent(kind) as port:
        return measure(("127.0.0.1", port))


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
