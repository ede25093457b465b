"""A diagnosis with what it was made from: what a report needs beside the diagnosis itself."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.diag.model import Diagnosis, JobSnapshot
from rankscope.diag.store.incidents import IncidentFolder
from rankscope.diag.store.job import JobFolder


@dataclass(frozen=True, slots=True)
class Judged:
    """One diagnosis.

    Attributes:
        diagnosis: the answer.
        look: the last look it was made from, ``None`` when that is only stored.
        incident: where it is stored, ``None`` when it was made just now.
        folder: the records of its job, ``None`` without.
    """

    diagnosis: Diagnosis
    look: JobSnapshot | None = None
    incident: IncidentFolder | None = None
    folder: JobFolder | None = None
