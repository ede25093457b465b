"""Starts ``programs/records_agent.py``: a small real agent process that is told what happens, and killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from rankscope.agent.records.past import Past
from rankscope.diag.store.events import LogContent, read_log

PROGRAM = Path(__file__).parent / "integration" / "programs" / "records_agent.py"


class RecordsAgent:
    """One such process."""

    def __init__(self, folder: Path, *, shared: bool = True) -> None:
        words = [sys.executable, str(PROGRAM), str(folder), "run-7", "shared" if shared else "alone"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        path, self.node = self.answer()
        self.folder = Path(path)

    def answer(self) -> list[str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the agent has ended"
        answer: list[str] = json.loads(line)
        return answer

    def say(self, name: str, *arguments: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        self.process.stdin.flush()

    def do(self, name: str, *arguments: object) -> object:
        self.say(name, *arguments)
        return self.answer()

    @property
    def log(self) -> Path:
        return self.folder / "nodes" / self.node / "events.jsonl"

    @property
    def content(self) -> LogContent:
        return read_log(self.log)

    @property
    def past(self) -> Past:
        return Past.of(self.content.events)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


@contextmanager
def records_agents(folder: Path, *, shared: bool = True) -> Generator[list[RecordsAgent]]:
    """A list that ends what is put into it; the first is there."""
    agents = [RecordsAgent(folder, shared=shared)]
    try:
        yield agents
    finally:
        for agent in agents:
            agent.end()
