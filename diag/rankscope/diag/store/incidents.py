"""One folder an incident: the snapshots, the diagnosis, the decision."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone
from pathlib import Path

from rankscope.diag.errors import StoreError, UsageError
from rankscope.diag.model import Decision, Diagnosis, JobSnapshot
from rankscope.diag.store.files import read_json, write_json


def new_incident_id(unix_seconds: float) -> str:
    """An id that sorts by time and is the same for nobody else: ``20261129T164000Z-0fb3f9c``.

    The first three hexadecimal digits behind the second are its milliseconds: a job may fail twice in one.
    """
    moment = datetime.fromtimestamp(unix_seconds, tz=timezone.utc)
    return f"{moment:%Y%m%dT%H%M%SZ}-{moment.microsecond // 1000:03x}{secrets.token_hex(2)}"


class IncidentFolder:
    """The files of one incident; each is written once, beside and renamed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def id(self) -> str:
        """The incident's id."""
        return self.path.name or self.path.resolve().name

    @property
    def is_complete(self) -> bool:
        """Whether it holds a diagnosis with the snapshot that it was made from."""
        return (self.path / "diagnosis.json").is_file() and self.snapshot_path("a").is_file()

    def snapshot_path(self, which: str) -> Path:
        """Where snapshot ``a`` or ``b`` lies."""
        return self.path / f"snapshot-{which}.json.zst"

    def write_snapshot(self, which: str, snapshot: JobSnapshot) -> None:
        """Store snapshot ``a`` or ``b``.

        Raises:
            OSError: the folder cannot be written.
        """
        write_json(self.snapshot_path(which), snapshot)

    def write_diagnosis(self, diagnosis: Diagnosis) -> None:
        """Store the diagnosis.

        Raises:
            OSError: the folder cannot be written.
        """
        write_json(self.path / "diagnosis.json", diagnosis)

    def write_decision(self, decision: Decision) -> None:
        """Store the decision; this happens before anything is stopped.

        Raises:
            OSError: the folder cannot be written.
        """
        write_json(self.path / "decision.json", decision)

    def snapshot(self, which: str) -> JobSnapshot | None:
        """Snapshot ``a`` or ``b``, ``None`` when it was not taken.

        Raises:
            StoreError: the file is there but unreadable.
        """
        path = self.snapshot_path(which)
        return read_json(path, JobSnapshot) if path.exists() else None

    def diagnosis(self) -> Diagnosis:
        """The stored diagnosis.

        Raises:
            StoreError: missing or unreadable.
        """
        return read_json(self.path / "diagnosis.json", Diagnosis)

    def decision(self) -> Decision | None:
        """The stored decision, ``None`` when none was made.

        Raises:
            StoreError: the file is there but unreadable.
        """
        try:
            return read_json(self.path / "decision.json", Decision)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise


def incident_folders(incidents: Path) -> tuple[IncidentFolder, ...]:
    """All incidents with a diagnosis, oldest first."""
    return tuple(IncidentFolder(path.parent) for path in sorted(incidents.glob("*/diagnosis.json")))


def find_incident(incidents: Path, incident_id: str | None) -> IncidentFolder | None:
    """The named incident, or the last one; ``None`` when the job has none.

    Raises:
        UsageError: there is no incident of that id.
    """
    folders = incident_folders(incidents)
    if incident_id is None:
        return folders[-1] if folders else None
    for folder in folders:
        if folder.id == incident_id:
            return folder
    known = ", ".join(folder.id for folder in folders) or "none"
    raise UsageError(f"no incident {incident_id!r} (stored: {known})")
