"""The agent's end of the job folder: every write is allowed to fail, and training never notices.

A full disk, a read-only folder or a lost share is said once; the last incidents stay in memory, and events
that could not be written wait there, in order, for the next time there is room.
"""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rankscope.agent.records.event_queue import EventQueue
from rankscope.agent.records.node_lock import NodeLock, take_node
from rankscope.agent.records.writer import FileWriter
from rankscope.diag.errors import StoreError
from rankscope.diag.model import Decision, Diagnosis, JobSnapshot
from rankscope.diag.store.events import TOLD_ELSEWHERE, TYPE_PREFIX, Event, boot_name, clock_text, iso_time
from rankscope.diag.store.files import write_json
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import AgentFile, JobFile, JobFolder

logger = logging.getLogger(__name__)
_KEPT_INCIDENTS: Final = 8
_IN_MEMORY: Final = "the last incidents are kept in memory"
_NEW: Final = "the job counts as begun now"


class Records:
    """Writes one agent's records. Thread-safe; no method raises.

    Args:
        folder: the job's folder.
        say_once: called with one line the first time something cannot be stored.
        shared: whether several agents of the job may meet in the folder (several nodes on one host). Without,
            a second job of the same run id gets a folder of its own.
        beside: whether this is a watch, which leaves the folders of agents alone.

    Attributes:
        folder: the job's folder.
        listeners: called with each event after it was stored, or could not be, by whoever caused it; they
            return soon.
        told_elsewhere: incidents whose notices another node's agent sends; their events here say so.
        earlier: the events that agents before this one have left in its node's folder.
    """

    def __init__(
        self,
        folder: JobFolder,
        say_once: Callable[[str], None],
        *,
        shared: bool = True,
        beside: bool = False,
    ) -> None:
        self.folder = folder
        self._say_once = say_once
        self._shared, self._beside = shared, beside
        self._writer = FileWriter()
        self._lock: NodeLock | None = None
        self._boot = boot_name()
        self.node = socket.gethostname()
        self.listeners: list[Callable[[Event], None]] = []
        self.trouble = ""
        self.usable = self._guard(self._take_node)
        self._events = EventQueue(self.node_path / "events.jsonl")
        self._events.on_removed = self._log_was_removed
        if self.usable:
            self._guard(self._events.open)
        self.earlier: tuple[Event, ...] = self._events.earlier
        self.told_elsewhere: set[str] = set()
        self._stored: set[str] = set()
        self._missing: dict[str, str] = {}
        self.incidents: deque[Diagnosis] = deque(maxlen=_KEPT_INCIDENTS)

    def _take_node(self) -> None:
        """Claim a node folder; several agents on one host get folders of their own."""
        self._lock = take_node(self.folder, self.node, shared=self._shared, beside=self._beside)
        self.folder, self.node = self._lock.folder, self._lock.node

    @property
    def node_path(self) -> Path:
        """This agent's folder."""
        return self.folder.node(self.node)

    def event(self, name: str, data: dict[str, object], *, subject: str | None = None) -> bool:
        """Append one event; ``name`` without the ``rankscope.`` prefix. Returns whether it is on disk."""
        if subject in self.told_elsewhere:
            data = {**data, TOLD_ELSEWHERE: True}
        return self.append(
            Event(
                id=str(uuid.uuid4()),
                source=self.node,
                type=TYPE_PREFIX + name,
                time=iso_time(time.time()),
                subject=subject,
                data=data,
                clock=clock_text(self._boot, time.monotonic()),
            )
        )

    def append(self, event: Event) -> bool:
        """Append an event as it is; whether it is on disk. One that is not is tried again with the next."""
        event = self._events.put(event)
        done = self._store(self._events.write)
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:  # of one who is told, and must not fail what it is told of
                logger.exception("rankscope could not pass an event on")
        return done

    def retry(self) -> None:
        """Write the events that wait, if any do."""
        if self._events.waiting:
            self._store(self._events.write)

    def stored_job(self) -> JobFile | None:
        """``job.json`` as it was left; ``None`` when there is none, or the file system does not answer."""
        found: list[JobFile | None] = [None]
        if self.usable:
            self._guard(lambda: found.append(self.folder.job()), failed="cannot read job.json in", then=_NEW)
        return found[-1]

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
        """Store a diagnosis, in place of an earlier one of the incident; it is kept in memory too.

        Returns:
            Whether it is on disk.
        """
        before = next((one for one in self.incidents if one.incident == incident), None)
        if before is not None:
            self.incidents.remove(before)
        self.incidents.append(value)
        done = self._store(lambda: self.incident(incident).write_diagnosis(value))
        if done and incident not in self._missing:
            self._stored.add(incident)
        else:
            self._stored.discard(incident)
            self._missing.setdefault(incident, self.trouble)
        return done

    def has_whole(self, incident: str, value: Diagnosis) -> bool:
        """Whether an incident lies here with this diagnosis or a longer form of it: agents may share it.

        One that does is known from here on as if it had been stored by this agent.
        """
        found: list[Diagnosis] = []

        def look() -> None:
            folder = self.incident(incident)
            if folder.is_complete:
                with suppress(StoreError):
                    found.append(folder.diagnosis())

        is_there = self.usable and self._guard(look) and [one.time for one in found] == [value.time]
        if is_there and incident not in self._stored:
            self.incidents.append(value)
            self._stored.add(incident)
        return is_there

    def has_snapshot(self, incident: str) -> bool:
        """Whether a look of an incident lies here, of whichever agent."""
        found: list[bool] = []
        path = self.incident(incident).snapshot_path("a")
        return self.usable and self._guard(lambda: found.append(path.is_file())) and found == [True]

    def tells_of(self, incident: str, is_here: bool) -> None:  # noqa: FBT001 - a callback of one caller
        """Whether notices of an incident are sent by this agent from now on."""
        (self.told_elsewhere.discard if is_here else self.told_elsewhere.add)(incident)

    def has_incident(self, incident: str) -> bool:
        """Whether an incident lies here whole, of whichever agent."""
        found: list[bool] = []
        folder = self.incident(incident)
        return self.usable and self._guard(lambda: found.append(folder.is_complete)) and found == [True]

    def is_stored(self, incident: str) -> bool:
        """Whether an incident is on disk, all of what was to be kept of it; looks at no disk."""
        return incident in self._stored

    def unwritten(self) -> tuple[tuple[Event, ...], tuple[Diagnosis, ...]]:
        """What is in memory only, oldest first: events, and diagnoses of the last incidents (any thread)."""
        diagnoses = tuple(self.incidents)
        return self._events.unwritten(), tuple(
            one for one in diagnoses if one.incident is None or one.incident not in self._stored
        )

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
        self.retry()
        if self.usable and self._events.waiting:
            self._say_once(f"{self._events.waiting} events could not be stored ({self.trouble})")
        self._guard(self._release)
        self._writer.close()

    def _log_was_removed(self, path: Path) -> None:
        self._say_once(f"{path} was removed while the job runs: what was in it is gone, a new one is written")

    def _release(self) -> None:
        self._events.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _store(self, write: Callable[[], None]) -> bool:
        if not self.usable or not self._guard(write):
            return False
        self.trouble = ""
        return True

    def _guard(
        self, action: Callable[[], None], *, failed: str = "cannot write records to", then: str = _IN_MEMORY
    ) -> bool:
        try:
            self._writer.run(action)
        except OSError as error:
            where = error.filename or self.folder.path
            self._say_once(f"{failed} {where} ({error.strerror or error}); training goes on, {then}")
            self.trouble = str(error.strerror or error)
            return False
        return True
