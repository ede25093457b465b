"""Job folders as agents leave them, written by the store's own writers: many small jobs, or one large one.

Of many, some tens are written and the rest are copies with another run id: a file system flushes each file
that the store writes, and ten thousand jobs would take minutes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.model import (
    Collective,
    Decision,
    Diagnosis,
    FlightRecord,
    Frame,
    GroupProgress,
    JobSnapshot,
    ProcessFacts,
    Progress,
    RankSnapshot,
    RecordedGroup,
    ThreadStack,
)
from rankscope.diag.store.events import TYPE_PREFIX, Event, EventLog, clock_text, iso_time, sequence_text
from rankscope.diag.store.files import write_json
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import AgentFile, JobFile, JobFolder, job_folder
from rankscope.diag.store.launches import Cycle, RestartRecord

_BEGAN: Final = 1_790_000_000.0
_SITE: Final = "/opt/venv/lib/python3.11/site-packages/torch"
_NODE: Final = 8
"""Ranks of a node."""
_WRITTEN: Final = 40
"""Jobs of a fleet that are written one by one."""
_MESSAGES: Final = 16


def write_fleet(root: Path, jobs: int) -> None:
    """Jobs of 8 ranks on one node: a hang, its incident with both looks, a restart, 29 events."""
    written = [_write_job(root, f"run-{number:05d}", _NODE, number) for number in range(min(jobs, _WRITTEN))]
    for number in range(len(written), jobs):
        folder = job_folder(f"run-{number:05d}", root)
        shutil.copytree(written[number % len(written)].path, folder.path)
        stored = written[number % len(written)].job()
        if stored is not None:
            job = msgspec.structs.replace(stored, run_id=folder.run_id)
            folder.job_file.write_bytes(msgspec.json.encode(job))


def write_large(root: Path, ranks: int) -> None:
    """One job with that many ranks, of which one hangs."""
    _write_job(root, "large", ranks, 0)


def _write_job(root: Path, run_id: str, ranks: int, number: int) -> JobFolder:
    folder = job_folder(run_id, root)
    began = _BEGAN + 60 * number
    incident = "20260921T132640Z-0000001"
    first, second = (_look(run_id, began + after, ranks, number % ranks) for after in (100.0, 104.0))
    diagnosis = diagnose(
        (first, second),
        catalogue=load_catalogue(),
        source_line=lambda _file, _line: None,
        time=iso_time(began + 105),
        incident=incident,
    )
    files = IncidentFolder(folder.incidents / incident)
    files.write_snapshot("a", first)
    files.write_snapshot("b", second)
    files.write_diagnosis(diagnosis)
    decision = Decision(
        "restart", f"no progress for 100 s: {diagnosis.summary}", iso_time(began + 106), incident
    )
    files.write_decision(decision)
    for place in range(max(1, ranks // _NODE)):
        _write_node(folder.node(f"node-{place}"), place, began, diagnosis, decision)
    job = JobFile(
        run_id, iso_time(began), ("train.py", "--lr", "0.1"), "1:2", ranks, iso_time(began + 900), "succeeded"
    )
    write_json(folder.job_file, job)
    return folder


def _write_node(path: Path, place: int, began: float, diagnosis: Diagnosis, decision: Decision) -> None:
    node = path.name
    log = EventLog(path / "events.jsonl")
    ranks = tuple(range(place * _NODE, (place + 1) * _NODE))
    told = _events(node, began, ranks, diagnosis, decision)
    for number, (after, name, data, subject) in enumerate(told, 1):
        event = Event(
            id=f"{node}-{number}",
            source=node,
            type=TYPE_PREFIX + name,
            time=iso_time(began + after),
            data=data,
            subject=subject,
            sequence=sequence_text(number),
            clock=clock_text("3f9c12ab", after),
        )
        log.append(event)
    log.close()
    write_json(path / "agent.json", AgentFile(node, 2**22 + 7, 1, "ended", restart_count=1))


def _events(
    node: str, began: float, ranks: tuple[int, ...], diagnosis: Diagnosis, decision: Decision
) -> Iterator[tuple[float, str, dict[str, object], str | None]]:
    incident = diagnosis.incident
    launch: dict[str, object] = {"restart_count": 0, "world_size": diagnosis.world_size, "ranks": list(ranks)}
    settings = {f"setting-{at}": {"value": str(at), "source": "default"} for at in range(30)}
    yield 0, "job.started", {"command": ["train.py"], "nodes": "1:2", "pid": 7, "settings": settings}, None
    yield (
        3,
        "cycle.started",
        {**launch, "number": 1, "began": iso_time(began), "rendezvous": 2.0, "start": 1.0},
        None,
    )
    yield 4, "cycle.training", {"number": 1, "steps": 1, "step": None}, None
    for at in range(_MESSAGES):
        yield (
            5 + at,
            "message",
            {"rank": ranks[0], "content": f"epoch {at} has a loss of {1 / (at + 1)}"},
            None,
        )
    silence: dict[str, object] = {
        "reason": "rank 2 is silent",
        "clock": "quiet",
        "seconds": 60.0,
        "limit": 10.0,
    }
    yield 100, "suspected", {**silence, "ranks": list(diagnosis.culprits), "waiting": []}, incident
    found: dict[str, object] = {
        name: getattr(diagnosis, name)
        for name in ("verdict", "culprits", "severity", "confidence", "summary")
    }
    yield 105, "incident.confirmed", {**found, "seconds": 65.0}, incident
    decided: dict[str, object] = {
        "action": decision.action,
        "reason": decision.reason,
        "culprits": [],
        "exit_code": None,
    }
    yield 106, "decision", {**decided, "asked": {"about": found, "history": launch}}, incident
    restart = RestartRecord(
        restarts=1,
        restart_time=decision.time,
        node_name=node,
        instance_name="rank 2",
        error_code=diagnosis.verdict,
        error_message=diagnosis.summary,
        error_source="log",
        reason=decision.reason,
        incident=incident,
    )
    begun: dict[str, object] = msgspec.to_builtins(restart)
    yield 107, "restart.begun", begun, incident
    for number, duration in ((1, 110.0), (2, 780.0)):
        cycle = Cycle(
            number=number,
            node=node,
            began=iso_time(began),
            ended=iso_time(began + duration),
            duration=duration,
            restart_count=number - 1,
            world_size=diagnosis.world_size,
            ranks=ranks,
            result="restarted" if number == 1 else "succeeded",
            incident=incident,
            rendezvous=2.0,
            start=1.0,
            first_step=1.0,
            training=duration - 4.0,
            steps=100,
        )
        fields: dict[str, object] = msgspec.to_builtins(cycle)
        yield 110 + 780 * (number - 1), "cycle.ended", fields, None
        if number == 1:
            yield 112, "cycle.started", {**launch, "number": 2, "rendezvous": 1.0, "start": 1.0}, None
            yield 113, "restart", {**begun, "result": "running", "duration": 7.0, "lost": 72.0}, incident
            yield 114, "cycle.training", {"number": 2, "steps": 1, "step": None}, None
    yield 891, "job.ended", {"result": "succeeded", "exit_code": 0}, None


def _look(run_id: str, at: float, ranks: int, culprit: int) -> JobSnapshot:
    return JobSnapshot(
        run_id, at, ranks, tuple(_rank(rank, at, ranks, stuck=rank == culprit) for rank in range(ranks))
    )


def _rank(rank: int, at: float, ranks: int, *, stuck: bool) -> RankSnapshot:
    calls = 40 - stuck
    pid = 1000 + 10 * (rank % _NODE)
    threads = [
        ThreadStack(
            pid, "MainThread", _STUCK if stuck else _WAITING, is_main=True, holds_gil=False, active=False
        )
    ]
    threads += [ThreadStack(pid + place, f"Thread-{place}", stack) for place, stack in enumerate(_OTHERS, 1)]
    return RankSnapshot(
        rank=rank,
        node=f"node-{rank // _NODE}",
        pid=pid,
        start_ticks=1,
        time=at,
        source="py-spy",
        threads=tuple(threads),
        facts=ProcessFacts(pid, 1, 1, at, "S", "python", "futex_wait", 10.0, 0.1, 2.0, 1000, 10_000),
        progress=Progress(
            40, 60.0 + at % 100, 0.5, (GroupProgress("0", ranks, calls, calls - (not stuck)),), batches=41
        ),
        record=FlightRecord(
            (RecordedGroup("0", "default_pg", (), calls, -1, calls - (not stuck)),),
            tuple(
                _call(seq, rank, is_completed=seq < calls or stuck) for seq in range(calls - 14, calls + 1)
            ),
        ),
    )


def _call(seq: int, rank: int, *, is_completed: bool) -> Collective:
    created = int((_BEGAN + seq) * 1e9) + 1000 * rank
    return Collective("0", seq, "all_reduce", is_completed=is_completed, input_sizes=((1024, 64),),
        input_dtypes=("Float",), created_ns=created, frames=_WAITING[1:3])  # fmt: skip


def _stack(*leaf: Frame, depth: int) -> tuple[Frame, ...]:
    below = [Frame(f"layer_{at}", f"{_SITE}/nn/modules/module.py", 1700 + at) for at in range(depth)]
    return (
        *leaf,
        *below,
        Frame("train_step", "/workspace/train.py", 11),
        Frame("<module>", "/workspace/train.py", 40),
    )


_WAITING: Final = _stack(Frame("all_reduce", f"{_SITE}/distributed/distributed_c10d.py", 3252), depth=20)
_STUCK: Final = _stack(Frame("load_batch", "/workspace/train.py", 8), depth=20)
_OTHERS: Final = (
    _stack(Frame("wait", "/usr/lib/python3.11/threading.py", 331), depth=15),
    _stack(Frame("_pin_memory_loop", f"{_SITE}/utils/data/_utils/pin_memory.py", 55), depth=10),
    _stack(
        Frame("_run", "/opt/venv/lib/python3.11/site-packages/rankscope/watchdog/probe/beat.py", 101), depth=5
    ),
)
