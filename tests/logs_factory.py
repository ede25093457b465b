"""Agents and workers for the tests of log capture: real processes, told what to do on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import deadline

from rankscope.agent.logs.stream import Limits

PROGRAM = Path(__file__).with_name("logs_agent_program.py")
DEADLINE = deadline.DEADLINE


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; the test fails when it does not come."""
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@dataclass
class Agent:
    """A process that captures the output of workers and reports over a pipe of its own."""

    process: subprocess.Popen[bytes]
    reports: int
    folder: Path
    events: list[str] = field(default_factory=list)
    _rest: bytes = b""

    def report(self, key: str) -> Any:
        """The next report of this kind; events on the way are kept."""
        deadline = time.monotonic() + DEADLINE
        while True:
            line, newline, rest = self._rest.partition(b"\n")
            if newline:
                self._rest = rest
                message: dict[str, Any] = json.loads(line)
                if "event" in message:
                    self.events.append(message["event"])
                if key in message:
                    return message[key]
                continue
            assert time.monotonic() < deadline, f"no report {key}"
            with suppress(BlockingIOError):
                data = os.read(self.reports, 65536)
                assert data, f"the agent ended without {key}: {self.events}"
                self._rest += data
                continue
            time.sleep(0.01)

    def file(self, rank: int, name: str = "stdout") -> Path:
        """Where the output of a rank is kept."""
        return self.folder / f"{rank}-{name}.log"


@contextmanager
def an_agent(
    folder: Path,
    workers: Sequence[str],
    *,
    stdout: int,
    stderr: int | None = None,
    limits: Limits | None = None,
    finish: float = 20.0,
) -> Generator[Agent]:
    """An agent with one Python worker for each source text; whatever is left is killed at the end."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    told = {"workers": list(workers), "limits": (limits or Limits()).to_dict(), "finish": finish}
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(folder), str(writing), json.dumps(told)],
        stdout=stdout,
        stderr=stderr,
        pass_fds=(writing,),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    os.close(writing)
    agent = Agent(process, reading, folder)
    left: list[int] = []
    try:
        left = agent.report("pids")
        yield agent
    finally:
        for pid in (process.pid, *left):
            with suppress(OSError):
                os.kill(pid, 9)
        process.wait()
        if process.stdout:
            process.stdout.close()
        if process.stderr:
            process.stderr.close()
        os.close(reading)


def read_all(fd: int) -> bytes:
    """Everything up to the end of a pipe."""
    parts: list[bytes] = []
    while data := os.read(fd, 1 << 20):
        parts.append(data)
    return b"".join(parts)
