"""The records of a job as files have them: every node's events, ``job.json``, the incidents.

The one module of this package that looks at files. What cannot be read is said and left out, never raised:
half of a history is worth more than none.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from rankscope.diag.errors import StoreError
from rankscope.diag.history.here import is_here, lives, this_host
from rankscope.diag.history.runs import AgentLife, agent_lives, jobs_of
from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.store.events import Event, LogContent, clock_text, iso_time, read_log
from rankscope.diag.store.files import read_json
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import AgentFile, JobFile, JobFolder, newer_version, shown_name


@dataclass(frozen=True)
class NodeRecords:
    """What one agent, or several one after the other, has recorded.

    Attributes:
        node: name of its folder.
        events: oldest first.
        now: this moment if the agent runs on this host, as an event of it would have it.
        here: whether it is of this host and boot (``history.here``): an agent that does not run is dead then.
        is_watch: whether a ``diag watch`` beside an agent wrote it.
    """

    node: str
    events: tuple[Event, ...]
    now: Event | None = None
    here: bool = False
    is_watch: bool = False

    @functools.cached_property
    def jobs(self) -> list[list[AgentLife]]:
        """The agents of one job of its run id after the other."""
        return jobs_of(agent_lives(self.events))


@dataclass(frozen=True, slots=True)
class JobRecords:
    """What is stored of a job.

    Attributes:
        run_id: its run id.
        job: ``job.json``, ``None`` when it cannot be read.
        nodes: by name.
        diagnoses: of the incidents, by id; decisions likewise.
        warnings: one sentence for all that is missing or cannot be read.
    """

    run_id: str
    job: JobFile | None = None
    nodes: tuple[NodeRecords, ...] = ()
    diagnoses: dict[str, Diagnosis] = field(default_factory=dict[str, Diagnosis])
    decisions: dict[str, Decision] = field(default_factory=dict[str, Decision])
    warnings: tuple[str, ...] = ()


def read_job(folder: JobFolder, *, log: Callable[[Path], LogContent] = read_log) -> JobRecords:
    """Read all that is stored of a job, however little of it can be read.

    Args:
        folder: the job's.
        log: reads an event log; it may raise OSError.
    """
    warnings: list[str] = []
    job = _job_file(folder, warnings)
    nodes = tuple(_nodes(folder, log, warnings))
    diagnoses: dict[str, Diagnosis] = {}
    decisions: dict[str, Decision] = {}
    for path in _subfolders(folder.incidents, warnings):
        _incident(IncidentFolder(path), diagnoses, decisions, warnings)
    if not nodes and not diagnoses:
        warnings.append(f"{folder.path}: no events of any node")
    run_id = shown_name(folder, job)
    return JobRecords(run_id, job, nodes, diagnoses, decisions, tuple(warnings))


def _job_file(folder: JobFolder, warnings: list[str]) -> JobFile | None:
    try:
        job = read_json(folder.job_file, JobFile)
    except StoreError as error:
        warnings.append(f"{error}; what was launched, and when, is taken from the events")
        return None
    if newer := newer_version(str(folder.job_file), job.schema):
        warnings.append(newer)
    return job


def _nodes(
    folder: JobFolder, read: Callable[[Path], LogContent], warnings: list[str]
) -> Iterator[NodeRecords]:
    for path in _subfolders(folder.path / "nodes", warnings):
        node = unquote(path.name)
        log = path / "events.jsonl"
        try:
            content = read(log)
        except OSError as error:
            warnings.append(f"{log}: {error.strerror or error}; nothing is known of node {node}")
            continue
        warnings.extend(_what_is_missing(log, content))
        if content.events:
            yield _node(node, path, content.events)
        elif not content.unreadable:
            warnings.append(f"{log}: no events; nothing is known of node {node}")


def _node(node: str, path: Path, events: tuple[Event, ...]) -> NodeRecords:
    host = this_host()
    here = is_here(node, events[-1], host)
    now = None
    if here and _agent_lives(path):
        now = Event(
            id="",
            source=node,
            type="",
            time=iso_time(time.time()),
            clock=clock_text(host.boot, time.monotonic()),
        )
    is_watch = all(event.name != "job.started" for event in events) and not (path / "agent.json").exists()
    return NodeRecords(node, events, now, here, is_watch)


def _agent_lives(path: Path) -> bool:
    try:
        return lives(read_json(path / "agent.json", AgentFile))
    except StoreError:
        return False


def _what_is_missing(log: Path, content: LogContent) -> Iterator[str]:
    if content.unreadable:
        lines = content.unreadable
        which = f"line{'s' * (len(lines) > 1)} {fold_ranks(lines)}"
        yield f"{log}: {which} cannot be read (torn by a kill or a full disk); the rest is shown"
    if content.missing:
        count = sum(last - first + 1 for first, last in content.missing)
        spans = ", ".join(f"{first}-{last}".removesuffix(f"-{first}") for first, last in content.missing)
        yield f"{log}: {count} event{'s are' if count > 1 else ' is'} missing (sequence {spans})"
    yield from (f"{log}: {doubt}" for doubt in content.doubts)


def _incident(
    folder: IncidentFolder,
    diagnoses: dict[str, Diagnosis],
    decisions: dict[str, Decision],
    warnings: list[str],
) -> None:
    try:
        diagnoses[folder.id] = folder.diagnosis()
    except StoreError as error:
        # A suspicion that was cleared leaves a snapshot, and no diagnosis.
        if (folder.path / "diagnosis.json").exists():
            warnings.append(str(error))
    try:
        decision = folder.decision()
    except StoreError as error:
        warnings.append(str(error))
        return
    if decision is not None:
        decisions[folder.id] = decision


def _subfolders(path: Path, warnings: list[str]) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            names = [one.name for one in entries if one.is_dir() and not one.name.startswith(".")]
        return [path / name for name in sorted(names)]
    except FileNotFoundError:
        return []
    except OSError as error:
        warnings.append(f"{path}: {error.strerror or error}")
        return []
