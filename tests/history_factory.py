"""Event logs as agents leave them: ``a_log("vm").agent().launch().fails(2).restart_begins().ends(75)``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rankscope.agent.failures.model import Failure
from rankscope.diag.model import Decision, Diagnosis, Severity
from rankscope.diag.store.events import (
    TYPE_PREFIX,
    Event,
    clock_text,
    iso_time,
    sequence_text,
)
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import AgentFile, JobFile, JobFolder
from rankscope.diag.store.launches import Cycle, RestartRecord

BEGAN = 1_800_000_000.0


class NodeLogBuilder:
    """Events of one node in order; every step takes ``seconds`` by the monotonic clock."""

    def __init__(self, node: str = "vm") -> None:
        self.node = node
        self.boot = "aaaaaaaa"
        self.at = 1000.0
        self.skew = 0.0
        self.events: list[Event] = []
        self.number = 0
        self.restarts = 0

    def event(
        self, name: str, data: Mapping[str, object] | None = None, *, subject: str | None = None
    ) -> NodeLogBuilder:
        self.number += 1
        self.events.append(
            Event(
                id=f"{self.node}-{self.number}",
                source=self.node,
                type=TYPE_PREFIX + name,
                time=iso_time(BEGAN + self.at + self.skew),
                data=dict(data or {}),
                subject=subject,
                sequence=sequence_text(self.number),
                clock=clock_text(self.boot, self.at),
            )
        )
        return self

    def passes(self, seconds: float) -> NodeLogBuilder:
        self.at += seconds
        return self

    def agent(self, **data: object) -> NodeLogBuilder:
        return self.event("job.started", {"command": ["train.py"], "nodes": "1:1", "pid": 7, **data})

    def launch(self, number: int = 1, *, rendezvous: float = 2.0, start: float = 1.0) -> NodeLogBuilder:
        self.passes(rendezvous + start)
        return self.event(
            "cycle.started",
            {
                "restart_count": self.restarts,
                "world_size": 4,
                "ranks": [0, 1, 2, 3],
                "number": number,
                "began": iso_time(BEGAN + self.at - rendezvous - start + self.skew),
                "rendezvous": rendezvous,
                "start": start,
            },
        )

    def trains(self, steps: int = 1, step: int | None = None) -> NodeLogBuilder:
        return self.event("cycle.training", {"number": 1, "steps": steps, "step": step})

    def cycle(self, cycle: Cycle) -> NodeLogBuilder:
        return self.event("cycle.ended", msgspec.to_builtins(cycle))

    def fails(
        self, rank: int, identity: str = "ValueError: x", *, root: bool = True, incident: str | None = None
    ) -> NodeLogBuilder:
        data: dict[str, object] = {"rank": rank, "exit_code": 1, "message": identity}
        if root:
            data |= {"root": True, "identity": identity, "node": self.node}
        return self.event("worker.failed", data, subject=incident)

    def restart_begins(self, *, counted: bool = True, reason: str = "rank 2 failed") -> NodeLogBuilder:
        self.restarts += counted
        return self.event("restart.begun", self._record(reason, counted=counted))

    def restart_done(self, *, counted: bool = True, reason: str = "rank 2 failed") -> NodeLogBuilder:
        record = {**self._record(reason, counted=counted), "result": "running", "duration": 8.0, "lost": 12.0}
        return self.event("restart", record)

    def _record(self, reason: str, *, counted: bool) -> dict[str, object]:
        return dict(
            msgspec.to_builtins(
                RestartRecord(
                    restarts=self.restarts,
                    restart_time=iso_time(BEGAN + self.at + self.skew),
                    node_name=self.node,
                    instance_name="rank 2",
                    error_code="1",
                    error_message="ValueError: x",
                    error_source="log",
                    reason=reason,
                    identity="ValueError: x",
                    is_counted=counted,
                )
            )
        )

    def ends(self, code: int = 0, result: str = "succeeded") -> NodeLogBuilder:
        return self.event("job.ended", {"result": result, "exit_code": code})

    def write(self, folder: JobFolder, *, phase: str = "running") -> Path:
        """Into a job folder, with an ``agent.json`` of a process that is gone."""
        path = folder.node(self.node)
        path.mkdir(parents=True, exist_ok=True)
        log = path / "events.jsonl"
        log.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in self.events))
        agent = AgentFile(node=self.node, pid=2**22 + 7, start_ticks=1, phase=phase)
        (path / "agent.json").write_bytes(msgspec.json.encode(agent))
        return log


def a_log(node: str = "vm") -> NodeLogBuilder:
    """An empty log of a node."""
    return NodeLogBuilder(node)


def a_job_file(
    folder: JobFolder, *, ended: float | None = None, result: str = "", created: float = 0.0
) -> None:
    """``job.json``; times in seconds after the begin."""
    job = JobFile(
        run_id=folder.run_id,
        created=iso_time(BEGAN + 1000.0 + created),
        command=("train.py", "--lr", "0.1"),
        nodes="1:2",
        world_size=4,
        ended=None if ended is None else iso_time(BEGAN + 1000.0 + ended),
        result=result,
    )
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.job_file.write_bytes(msgspec.json.encode(job))


def a_hang(
    incident: str, *, job: str = "run-7", time: str = iso_time(BEGAN), severity: Severity = "warning"
) -> Diagnosis:
    """A diagnosis: rank 2 of 4 is to blame, on the one node."""
    return Diagnosis(
        job=job,
        time=time,
        world_size=4,
        observed="0-3",
        verdict="RankNonCommHang",
        kind="lock",
        severity=severity,
        confidence="high",
        culprits=(2,),
        nodes=("vm",),
        summary="rank 2 is stuck in load_batch (train.py:8)",
        location=None,
        rule="8",
        incident=incident,
    )


def an_incident(folder: JobFolder, name: str, *, at: float = 1100.0, action: str = "restart") -> None:
    """A stored incident with a decision."""
    time = iso_time(BEGAN + at)
    IncidentFolder(folder.incidents / name).write_diagnosis(a_hang(name, job=folder.run_id, time=time))
    decision = msgspec.convert({"action": action, "reason": "no progress for 180 s", "time": time}, Decision)
    IncidentFolder(folder.incidents / name).write_decision(decision)


def a_failure(rank: int = 2, identity: str = "ValueError: x", node: str = "vm") -> Failure:
    """A root failure."""
    return Failure(rank, rank, node, "default", 1, identity, identity, "log", True, "it may", BEGAN)


def lines(path: Path) -> list[dict[str, object]]:
    """The objects of an event log that can be read."""
    found: list[dict[str, object]] = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
