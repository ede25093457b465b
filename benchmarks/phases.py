"""Real agents that stay in one phase while their health server is asked: the main thread blocked or busy.

The ranks are without torch, so that an agent costs three CPU seconds and none of the figures is about the
start of ranks. Measures nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.jobs import Job, diag_run, until

Address = tuple[str, int]
RANKS: Final = 8
_WAITS: Final = """
import sys, time
from pathlib import Path
from rankscope.watchdog import job_monitor
monitor, step, stop = job_monitor.Monitor(), 0, Path(sys.argv[1])
while not stop.exists():
    step += 1
    monitor.step(step)
    time.sleep(0.05)
"""
_ENDS: Final = "raise SystemExit(7)\n"
_FIRST_NODE_ENDS: Final = f"""
import os
if os.environ["GROUP_RANK"] == "0":
    raise SystemExit
{_WAITS}
"""
_LOOKS: Final = """
import sys
from rankscope.diag.capture import Target, capture_ranks
targets = [Target(rank, int(pid)) for rank, pid in enumerate(sys.argv[1:])]
while True:
    capture_ranks(targets, timeout=30.0)
"""
_ENDS_WITHIN: Final = 30.0
_EVERY_RESTART: Final = (
    *("--max-restarts=100000", "--no-progress-limit=-1", "--max-num-of-same-error=-1"),
    *("--evidence-budget=0", "--monitor-interval=0.1"),
)


@contextmanager
def running(folder: Path) -> Generator[Address]:
    """Eight ranks train and nothing else happens."""
    with _job(folder, _WAITS, ranks=RANKS) as job:
        yield _in_phase(job, "running")


@contextmanager
def capture(folder: Path) -> Generator[Address]:
    """Eight ranks are looked at without a pause."""
    with _job(folder, _WAITS, ranks=RANKS) as job:
        address = _in_phase(job, "running")
        pids = [str(worker.pid) for worker in job.agent().workers]
        looking = subprocess.Popen([sys.executable, "-c", _LOOKS, *pids])
        try:
            yield address
        finally:
            looking.terminate()
            looking.wait(_ENDS_WITHIN)


@contextmanager
def rendezvous(folder: Path) -> Generator[Address]:
    """The main thread waits in rendezvous for a node that does not come."""
    with _job(folder, _WAITS, *_two_nodes(_free_port()), ranks=1) as job:
        yield _in_phase(job, "rendezvous")


@contextmanager
def exit_barrier(folder: Path) -> Generator[Address]:
    """The main thread waits in the exit barrier for a node whose rank goes on."""
    flags = _two_nodes(_free_port())
    with _job(folder / "a", _FIRST_NODE_ENDS, *flags, ranks=1) as one:
        same = f"--rdzv-id={one.run_id}"
        with _job(folder / "b", _FIRST_NODE_ENDS, *flags, same, ranks=1) as other:
            agents = (one, other)
            until(lambda: any(_phase(job) == "exit_barrier" for job in agents), "the exit barrier")
            (first,) = [job for job in agents if _phase(job) == "exit_barrier"]
            yield _address(first)
            for job in agents:
                (job.folder / "stop").touch()


@contextmanager
def restart(folder: Path) -> Generator[Address]:
    """Two ranks end as soon as they run, and are started again, for ever."""
    with _job(folder, _ENDS, *_EVERY_RESTART, ranks=2) as job:
        until(lambda: len(job.events("restart")) >= 2, "restarts")
        yield _address(job)


PHASES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Address]]]] = {
    "main thread blocked in rendezvous": rendezvous,
    "main thread blocked in the exit barrier": exit_barrier,
    "while 8 ranks are captured without a pause": capture,
    "while ranks are restarted without a pause": restart,
}


@contextmanager
def _job(folder: Path, script: str, *flags: str, ranks: int) -> Generator[Job]:
    folder.mkdir(parents=True)
    program = folder / "program.py"
    program.write_text(script)
    words = [str(program), str(folder / "stop")]
    environ = {"TMPDIR": str(folder)}
    with diag_run(folder, *flags, ranks=ranks, script=words, environ=environ) as job:
        yield job


def _two_nodes(port: int) -> tuple[str, ...]:
    return "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _in_phase(job: Job, phase: str) -> Address:
    until(lambda: _phase(job) == phase, f"phase {phase}")
    return _address(job)


def _address(job: Job) -> Address:
    line = next(line for line in job.stderr.splitlines() if "health on http://" in line)
    host, _, port = line.partition("health on http://")[2].partition("/")[0].rpartition(":")
    return host.strip("[]"), int(port)


def _phase(job: Job) -> str:
    """What the agent's own health server says; empty before it answers."""
    if "health on http://" not in job.stderr:
        return ""
    connection = http.client.HTTPConnection(*_address(job), timeout=10.0)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/health")
        body = json.loads(connection.getresponse().read())
        return str(body["checks"]["agent"][0]["observedValue"])
    return ""
