"""The rows of all jobs of a root, from their folders. A folder that tells little is a row with a note."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from rankscope.diag.errors import StoreError
from rankscope.diag.history.here import Here
from rankscope.diag.history.state import NodeState, state_of
from rankscope.diag.jobs_list.model import JobRow
from rankscope.diag.jobs_list.node import read_node
from rankscope.diag.jobs_list.notes import notes_of
from rankscope.diag.store.events import iso_time, unix_time
from rankscope.diag.store.files import read_json
from rankscope.diag.store.job import JobFile, JobFolder, home, newer_schema, shown_name


class _Told(msgspec.Struct, frozen=True):
    """What a row shows of a diagnosis; the rest of the file is skipped."""

    verdict: str
    kind: str = "none"
    culprits: tuple[int, ...] = ()


def job_paths(root: Path | None = None) -> tuple[Path, ...]:
    """The folders of all jobs, by name; links, files and hidden folders are none.

    Raises:
        StoreError: the folder of jobs is there and cannot be read.
    """
    jobs = (root or home()) / "jobs"
    try:
        with os.scandir(jobs) as entries:
            names = [
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StoreError(f"{jobs}: {error.strerror or error}") from error
    return tuple(jobs / name for name in sorted(names))


def read_row(path: Path, here: Here, *, now: float) -> JobRow:
    """The row of one job.

    Args:
        path: its folder.
        here: this host.
        now: unix time that ages are counted to.
    """
    notes: list[str] = []
    job = _job_file(path, notes)
    nodes = tuple(_nodes(path / "nodes", here, notes))
    state, result, ended = state_of(job, nodes, now=now)
    created = (
        job.created if job is not None else min(filter(None, (one.began for one in nodes)), default=None)
    )
    heard = max(filter(None, (*(one.heard for one in nodes), _unix(ended))), default=None)
    incident, told, count = _last_verdict(path / "incidents", notes)
    if state == "damaged" and not notes:
        notes.append("no events of any node")
    return JobRow(
        job=shown_name(JobFolder(path), job),
        state=state,
        result=result,
        created=created,
        ended=ended,
        heard=iso_time(heard) if heard is not None else None,
        age=_age(created, now),
        restarts=max((one.restarts for one in nodes), default=0),
        world_size=job.world_size if job is not None else 0,
        nodes=tuple(one.node for one in nodes),
        verdict=told.verdict if told is not None else None,
        kind=told.kind if told is not None else None,
        culprits=told.culprits if told is not None else (),
        incident=incident,
        incidents=count,
        notes=(*notes_of(state, nodes), *notes),
        path=str(path),
    )


def _job_file(path: Path, notes: list[str]) -> JobFile | None:
    if newer := newer_schema(JobFolder(path)):
        notes.append(f"job.json: {newer}")
    try:
        return read_json(JobFolder(path).job_file, JobFile)
    except StoreError as error:
        notes.append(str(error).removeprefix(f"{path}/"))
        return None


def _nodes(path: Path, here: Here, notes: list[str]) -> Iterator[NodeState]:
    for folder in _folders(path, notes):
        state, note = read_node(folder, here)
        if note:
            notes.append(note)
        else:
            yield state


def _last_verdict(path: Path, notes: list[str]) -> tuple[str | None, _Told | None, int]:
    """The newest incident whose diagnosis can be read, what it says, and how many there are."""
    found = [folder for folder in _folders(path, notes) if (folder / "diagnosis.json").exists()]
    for folder in reversed(found):
        with contextlib.suppress(StoreError):
            return folder.name, read_json(folder / "diagnosis.json", _Told), len(found)
        notes.append(f"the diagnosis of incident {folder.name} cannot be read")
    return None, None, len(found)


def _folders(path: Path, notes: list[str]) -> Iterable[Path]:
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        notes.append(f"{path.name}: {error.strerror or error}")
        return ()
    return [path / name for name in sorted(names)]


def _age(created: str | None, now: float) -> float | None:
    began = _unix(created)
    return None if began is None else max(0.0, round(now - began, 3))


def _unix(text: str | None) -> float | None:
    return None if text is None else unix_time(text)
