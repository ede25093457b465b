"""The agent's end of the job folder: every write is allowed to fail, and training never notices.

A full disk, a read-only folder or a lost share is said once; the last incidents stay in memory.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path

from rankscope.agent.writer import FileWriter
from rankscope.diag.model import Decision, Diagnosis, JobSnapshot
from rankscope.diag.store.events import TYPE_PREFIX, Event, EventLog, iso_time
from rankscope.diag.store.files import make_folders, write_json
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import AgentFile, JobFile, JobFolder

_KEPT_INCIDENTS = 8
_MAX_AGENTS_A_HOST = 1000


class Records:
    """Writes one agent's records. Thread-safe; no method raises.

    Args:
        folder: the job's folder.
        say_once: called with one line the first time something cannot be stored.
        shared: whether several agents of the job may meet in the folder (several nodes on one host). Without,
            a second job of the same run id gets a folder of its own.

    Attributes:
        folder: the job's folder.
    """

    def __init__(self, folder: JobFolder, say_once: Callable[[str], None], *, shared: bool = True) -> None:
        self.folder = folder
        self._say_once = say_once
        self._shared = shared
        self._writer = FileWriter()
        self._node_lock: int | None = None
        self.node = socket.gethostname()
        self.trouble = ""
        self.usable = self._guard(self._take_node)
        self._events: EventLog | None = None
        if self.usable:
            self._guard(self._open_events)
        self._stored: set[str] = set()
        self._missing: dict[str, str] = {}
        self.incidents: deque[Diagnosis] = deque(maxlen=_KEPT_INCIDENTS)

    def _take_node(self) -> None:
        """Claim a node folder; several agents on one host get folders of their own."""
        host, base = self.node, self.folder.path
        for number in range(1, _MAX_AGENTS_A_HOST):
            suffix = "" if number == 1 else f"~{number}"
            name = host + suffix if self._shared else host
            folder = self.folder if self._shared else JobFolder(base.with_name(base.name + suffix))
            path = folder.node(name)
            make_folders(path)
            fd = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            self._node_lock, self.node, self.folder = fd, name, folder
            return
        raise OSError(f"{_MAX_AGENTS_A_HOST} agents of {host} in {self.folder.path}")

    def _open_events(self) -> None:
        self._events = EventLog(self.node_path / "events.jsonl")

    @property
    def node_path(self) -> Path:
        """This agent's folder."""
        return self.folder.node(self.node)

    def event(self, name: str, data: dict[str, object], *, subject: str | None = None) -> None:
        """Append one event; ``name`` without the ``rankscope.`` prefix."""
        self.append(
            Event(
                id=str(uuid.uuid4()),
                source=self.node,
                type=TYPE_PREFIX + name,
                time=iso_time(time.time()),
                subject=subject,
                data=data,
            )
        )

    def append(self, event: Event) -> None:
        """Append an event as it is."""

        def append() -> None:
            if self._events is not None:
                self._events.append(event)

        self._store(append)

    def job_file(self, value: JobFile) -> None:
        """Write ``job.json``."""
        self._store(lambda: write_json(self.folder.job_file, value))

    def agent_file(self, value: AgentFile) -> None:
        """Write this agent's ``agent.json``."""
        self._store(lambda: write_json(self.node_path / "agent.json", value))

    def snapshot(self, incident: str, which: str, value: JobSnapshot) -> bool:
        """Store a snapshot of an incident; whether it is on disk."""
        done = self._store(lambda: self.incident(incident).write_snapshot(which, value))
        if not done:
            self._missing[incident] = self.trouble
        return done

    def diagnosis(self, incident: str, value: Diagnosis) -> bool:
        """Store a diagnosis; it is kept in memory too. Whether it is on disk."""
        self.incidents.append(value)
        done = self._store(lambda: self.incident(incident).write_diagnosis(value))
        if done and incident not in self._missing:
            self._stored.add(incident)
        else:
            self._stored.discard(incident)
            self._missing.setdefault(incident, self.trouble)
        return done

    def is_stored(self, incident: str) -> bool:
        """Whether an incident is on disk, all of what was to be kept of it; looks at no disk."""
        return incident in self._stored

    def why_not_stored(self, incident: str) -> str:
        """What was in the way of an incident that is not on disk."""
        return self._missing.get(incident, "") or self.trouble or "the folder for records cannot be used"

    def decision(self, incident: str, value: Decision) -> None:
        """Store a decision; returns when it is on disk or could not be written."""
        self._store(lambda: self.incident(incident).write_decision(value))

    def incident(self, incident: str) -> IncidentFolder:
        """The folder of an incident."""
        return IncidentFolder(self.folder.incidents / incident)

    def close(self) -> None:
        """Give the node folder back."""
        self._guard(self._release)
        self._writer.close()

    def _release(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None
        if self._node_lock is not None:
            os.close(self._node_lock)
            self._node_lock = None

    def _store(self, write: Callable[[], None]) -> bool:
        if not self.usable or not self._guard(write):
            return False
        self.trouble = ""
        return True

    def _guard(self, write: Callable[[], None]) -> bool:
        try:
            self._writer.run(write)
        except OSError as error:
            where = error.filename or self.folder.path
            self._say_once(
                f"cannot write records to {where} ({error.strerror or error}); training goes on, "
                "the last incidents are kept in memory"
            )
            self.trouble = str(error.strerror or error)
            return False
        return True
