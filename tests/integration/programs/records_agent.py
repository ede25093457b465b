"""An agent's records without the agent: does what it is told on stdin, a line each, and answers on stdout.

``python records_agent.py JOB_FOLDER RUN_ID shared|alone``. What it answers has happened: it may be killed
at any time.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from rankscope.agent.failures.model import Failure
from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag.model import Decision, ExitFacts
from rankscope.diag.store.job import JobFolder


class Agent:
    """Records and ledger of one process."""

    def __init__(self, folder: Path, run_id: str, *, shared: bool) -> None:
        self.said: list[str] = []
        self.records = Records(JobFolder(folder), self.said.append, shared=shared)
        self.ledger = Ledger(self.records, run_id=run_id, command=["train.py"], nodes="1:2")

    def started(self) -> None:
        self.ledger.job_started({"on-hang": {"value": "auto", "source": "default"}})
        self.ledger.agent_is("running", None, address=None, page="")

    def launched(self, restarts: int = 0) -> None:
        self.ledger.enter("rendezvous")
        self.ledger.enter("start")
        workers = tuple(WorkerRef(rank, rank, os.getpid(), 1) for rank in range(2))
        self.ledger.cycle_started(Launch(workers, restart_count=restarts, world_size=2))

    def progressed(self, step: int) -> None:
        self.ledger.progressed(steps=1, step=step)

    def failed(self, rank: int, identity: str) -> None:
        root = Failure(rank, rank, self.records.node, "", 1, identity, identity, "log", True, "", 0.0)
        self.ledger.workers_failed(None, {rank: ExitFacts(1, identity), 1 - rank: ExitFacts(1)}, root=root)

    def restarts(self, restarts: int) -> None:
        decision = Decision(action="restart", reason="because", time="2026-01-01T00:00:00.000Z")
        self.ledger.decided(decision)
        self.ledger.enter("stopping")
        self.ledger.restart_begins(decision, restarts=restarts)

    def ended(self, code: int) -> None:
        self.ledger.job_ended("failed" if code else "succeeded", code)
        self.ledger.agent_is("ended", None, address=None, page="")

    def event(self, name: str, size: int = 0) -> bool:
        return self.records.event(name, {"text": "x" * size})

    def limit(self, more: int | None) -> None:
        """Let no file of this process grow by more than ``more`` bytes; ``None`` for as much as it likes."""
        log = self.records.node_path / "events.jsonl"
        wanted = resource.RLIM_INFINITY if more is None else log.stat().st_size + more
        resource.setrlimit(resource.RLIMIT_FSIZE, (wanted, resource.RLIM_INFINITY))

    def past(self) -> list[int]:
        history = self.ledger.past.history(allowed=9, workers=2)
        return [history.restarts_used, history.without_progress, history.failed_workers]

    def retry(self) -> None:
        self.records.retry()

    def fork(self) -> int:
        """A child that outlives this process, until it is killed."""
        child = os.fork()
        if not child:
            os.close(0)
            os.close(1)
            signal.pause()
            os._exit(0)
        return child

    def where(self) -> list[str]:
        return [str(self.records.folder.path), self.records.node]

    def close(self) -> list[str]:
        self.records.close()
        return self.said


def main() -> None:
    folder, run_id, shared = sys.argv[1:]
    agent = Agent(Path(folder), run_id, shared=shared == "shared")
    print(json.dumps(agent.where()), flush=True)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answer: Any = getattr(agent, name)(*arguments)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
