"""A job's records as tables are made of them. No file is known here: what reads them is handed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from rankscope.diag.errors import StoreError
from rankscope.diag.history.model import JobHistory
from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.store.events import Event
from rankscope.diag.store.job import newer_version
from rankscope.diag.tables.looks import LookOf, RankT
from rankscope.diag.tables.told import Told

Say = Callable[[str], None]


class ReadLook(Protocol):
    """Reads a snapshot of an incident."""

    def __call__(self, name: str, kind: type[LookOf[RankT]], /) -> LookOf[RankT]:
        """The snapshot of that name, as far as a type has it.

        Raises:
            StoreError: it cannot be read.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredIncident:
    """One incident of a job, its files unread.

    Attributes:
        id: its id.
        job: run id of the job.
        diagnosis: reads what was found, ``None`` for a suspicion that came to nothing.
        looks: names of its snapshots, oldest first.
        read: reads a snapshot, as far as a type has it.
    """

    id: str
    job: str
    diagnosis: Callable[[], Diagnosis | None]
    looks: tuple[str, ...]
    read: ReadLook

    def look(self, name: str, kind: type[LookOf[RankT]], say: Say) -> dict[int, RankT]:
        """The ranks in one of its snapshots, none when it cannot be read."""
        try:
            found = self.read(name, kind)
        except (StoreError, msgspec.DecodeError) as error:
            say(f"{error}; nothing of that look is shown")
            return {}
        if newer := newer_version(f"incident {self.id}, look {name}", found.schema):
            say(newer)
        return {rank.rank: rank for rank in found.ranks}


@dataclass(frozen=True, slots=True)
class StoredJob:
    """The records of one job.

    Attributes:
        name: run id, or the name of its folder where that is another.
        state: how it stands, ``None`` for dumps; result is what came of it, ended when.
        history: what ``diag history`` shows.
        events: those that it is made of, by node.
        diagnoses: by incident; decisions likewise.
        told: what the events of all of the run id's jobs tell of incidents.
        folder: where it lies.
        warnings: what is missing.
    """

    name: str
    state: str | None
    result: str
    ended: str | None
    history: JobHistory
    events: dict[str, list[Event]]
    diagnoses: dict[str, Diagnosis]
    decisions: dict[str, Decision]
    told: dict[str, Told]
    folder: str
    warnings: tuple[str, ...]
