"""Where a job's files lie, and what says which job and which agents there are.

``$RANKSCOPE_HOME`` (default ``~/.local/state/rankscope``) holds one folder per run id
(ARCHITECTURE.md, "Job directory").
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.model import SCHEMA
from rankscope.diag.store.files import read_json

_LONGEST_NAME: Final = 200
"""A file name may have 255 bytes; some are left for what is written beside and renamed."""
_JOBS: Final = "jobs"
ENDED: Final = "ended"
"""Phase of an agent that has said its last word."""


class JobFile(msgspec.Struct, frozen=True):
    """``job.json``: what was launched.

    Attributes:
        created: ISO 8601, UTC.
        command: the training command.
        world_size: ranks of the job when known, 0 before the first rendezvous.
        ended: when the job ended, ``None`` while it runs; result is what came of it.
    """

    run_id: str
    created: str
    command: tuple[str, ...]
    nodes: str = ""
    world_size: int = 0
    ended: str | None = None
    result: str = ""
    schema: int = SCHEMA


class WorkerFile(msgspec.Struct, frozen=True):
    """One worker in ``agent.json``."""

    rank: int
    local_rank: int
    pid: int
    start_ticks: int


class AgentFile(msgspec.Struct, frozen=True):
    """``nodes/<node>/agent.json``: one agent and its workers, replaced at each (re)start.

    Attributes:
        host: where its health server answers probes, with ``port``.
        beside: whether it is a ``diag watch``, which launched nothing.
        api: URL at which its records can be asked for with the token, ``""`` when nowhere.
        token_file: path of the file with the token, as its node has it.
    """

    node: str
    pid: int
    start_ticks: int
    phase: str
    restart_count: int = 0
    host: str = ""
    port: int = 0
    page: str = ""
    workers: tuple[WorkerFile, ...] = ()
    world_size: int = 0
    beside: bool = False
    api: str = ""
    token_file: str = ""
    schema: int = SCHEMA


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """The root of all jobs' records."""
    chosen = environ.get("RANKSCOPE_HOME")
    if chosen:
        return _expanded(Path(chosen)).absolute()
    state = environ.get("XDG_STATE_HOME")
    return _expanded(Path(state or "~/.local/state")) / "rankscope"


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        # Nobody's home: a user without an entry in the user database, a name nobody has.
        return Path(tempfile.gettempdir(), f"rankscope-state-{os.getuid()}") if path.parts[0] == "~" else path


def folder_name(text: str) -> str:
    """A run id or node name as a folder name: one path part, readable, reversible unless it is very long."""
    name = quote(text, safe="-_~@+,=:", errors="surrogateescape") or "%"
    if set(name) == {"."}:
        name = name.replace(".", "%2E")
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: _LONGEST_NAME - 17]}~{digest}"


class JobFolder:
    """Paths of one job's files. Creates nothing by itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run_id(self) -> str:
        """The run id this folder is named after."""
        return unquote(self.path.name)

    @property
    def job_file(self) -> Path:
        """``job.json``."""
        return self.path / "job.json"

    def node(self, node: str) -> Path:
        """The folder of one agent."""
        return self.path / "nodes" / folder_name(node)

    @property
    def incidents(self) -> Path:
        """The folder of all incidents."""
        return self.path / "incidents"

    def agents(self) -> tuple[AgentFile, ...]:
        """All readable ``agent.json``, by node."""
        found: list[AgentFile] = []
        for path in sorted(self.path.glob("nodes/*/agent.json")):
            try:
                found.append(read_json(path, AgentFile))
            except StoreError:
                continue
        return tuple(found)

    def job(self) -> JobFile | None:
        """``job.json``, ``None`` when it is missing or unreadable."""
        try:
            return read_json(self.job_file, JobFile)
        except StoreError:
            return None


def job_folder(run_id: str, root: Path | None = None) -> JobFolder:
    """The folder of a run id, whether it exists or not."""
    return JobFolder((root or home()) / _JOBS / folder_name(run_id))


def shown_name(folder: JobFolder, job: JobFile | None) -> str:
    """What a job is called: its run id, or its folder's name where that is what finds it (a copy, a rename).

    Args:
        folder: of the job.
        job: its ``job.json``, ``None`` when that cannot be read.
    """
    if job is None or not job.run_id:
        return folder.run_id
    is_found_by_it = folder.path.parent.name != _JOBS or folder_name(job.run_id) == folder.path.name
    return job.run_id if is_found_by_it else folder.run_id


class _Schema(msgspec.Struct, frozen=True):
    """What every version of a file has."""

    schema: int = SCHEMA


def newer_schema(folder: JobFolder) -> str:
    """That a job is of a version of Rankscope newer than this one, ``""`` when it is not, or does not say."""
    try:
        schema = read_json(folder.job_file, _Schema).schema
    except StoreError:
        return ""
    return _newer(schema)


def newer_version(where: str, schema: int) -> str:
    """What is said of a file that is read although a newer version wrote it, ``""`` when none did."""
    newer = _newer(schema)
    return newer and f"{where}: {newer}; fields that it added are not shown"


def _newer(schema: int) -> str:
    return f"written by a newer version (schema {schema}, known is {SCHEMA})" if schema > SCHEMA else ""


def is_job_folder(path: Path) -> bool:
    """Whether a path is the folder of a job: it has a ``job.json``, incidents, or a node's events.

    Raises:
        OSError: the path is too long.
        ValueError: it is no path.
    """
    if (path / "job.json").is_file() or (path / "incidents").is_dir():
        return True
    return any(path.glob("nodes/*/events.jsonl"))


def find_job(name: str, root: Path | None = None) -> JobFolder:
    """The folder of a job given as run id, unambiguous beginning of one, or path.

    Raises:
        UsageError: there is no such job, or several begin like that.
    """
    if not name:
        raise UsageError("an empty name is no job", hint="`diag analyze` alone lists live jobs")
    as_path = Path(name)
    with contextlib.suppress(OSError, ValueError):  # too long for a path, or no path at all
        if is_job_folder(as_path):
            return JobFolder(as_path.absolute())
    exact = job_folder(name, root)
    if exact.path.is_dir():
        return exact
    jobs = exact.path.parent
    similar = sorted(path for path in jobs.glob("*") if path.is_dir() and unquote(path.name).startswith(name))
    if len(similar) == 1:
        return JobFolder(similar[0])
    if similar:
        names = ", ".join(unquote(path.name) for path in similar[:5])
        raise UsageError(f"several jobs begin with {name!r}: {names}")
    raise UsageError(f"no such job: {name!r} (looked in {jobs})", hint="`diag analyze` alone lists live jobs")
