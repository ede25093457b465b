"""Takes evidence of the local ranks and turns it into a stored diagnosis.

Called by the collector's thread on suspicion and by the main thread before anything is stopped. Decides
nothing; every look has a deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from rankscope.agent.evidence.c4d_severity import SeverityTimes, with_severity
from rankscope.agent.evidence.looker import Looker
from rankscope.agent.records.folder import Records
from rankscope.diag.capture.plan import BACKENDS, Backend
from rankscope.diag.classify import (
    Catalogue,
    SlowLook,
    communicating_ranks,
    diagnose,
)
from rankscope.diag.live import source_line
from rankscope.diag.model import SLOW, Diagnosis, JobSnapshot
from rankscope.diag.store.events import iso_time


@dataclass(frozen=True, slots=True)
class Incident:
    """A suspicion or failure under investigation.

    Attributes:
        a: the first look; b the second, ``None`` when there was no time for it.
        silent_seconds: how long no progress was seen, ``None`` when that was not the reason.
        samples: looks at working ranks in quick succession.
        overdue: whether the silence is ten times what working ranks are given.
        kept: whether it is stored even when all turns out to be well.
    """

    id: str
    a: JobSnapshot
    b: JobSnapshot | None = None
    silent_seconds: float | None = None
    samples: tuple[JobSnapshot, ...] = ()
    overdue: bool = False
    kept: bool = False


class EvidenceTaker(Looker):
    """Looks at the ranks of one agent, judges what is seen and has it stored.

    Args:
        job: run id.
        records: where snapshots and diagnoses are kept.
        catalogue: what frames mean; as packaged when not given.
        backends: the ways to stacks that may be used.
        local_variables: whether local variables are kept with stacks (``--allow-locals``).
        severities: after how long a hang has which severity, ``None`` for that of its rule.
    """

    def __init__(
        self,
        job: str,
        records: Records,
        *,
        catalogue: Catalogue | None = None,
        backends: Sequence[Backend] = BACKENDS,
        local_variables: bool = False,
        severities: SeverityTimes | None = None,
    ) -> None:
        super().__init__(
            job,
            lambda: records.node,
            catalogue=catalogue or Catalogue.load(),
            backends=backends,
            local_variables=local_variables,
        )
        self._records = records
        self._severities = severities
        self._judged_elsewhere: set[str] = set()

    def judge_slow(
        self,
        incident: str,
        looks: Sequence[JobSnapshot],
        slow: SlowLook,
        *,
        called: Callable[[Diagnosis], Diagnosis] | None = None,
    ) -> Diagnosis:
        """Find out what is slow; stored is only what is.

        Args:
            incident: id of the incident that it becomes then.
            looks: oldest first.
            slow: what is known of the job's pace.
            called: gives the diagnosis its last form.
        """
        first, *between, last = looks
        diagnosis = diagnose(
            (first, last),
            catalogue=self._catalogue,
            source_line=source_line,
            time=iso_time(time.time()),
            incident=incident,
            samples=tuple(between),
            slow=slow,
        )
        if called is not None:
            diagnosis = called(diagnosis)
        if diagnosis.verdict in SLOW:
            self.store(Incident(incident, first, last))
            self._records.diagnosis(incident, diagnosis)
        return diagnosis

    def communicating(self, snapshot: JobSnapshot) -> frozenset[int]:
        """Ranks whose deciding thread stands in a communication call, by its frames or the line's text.

        Where the text says so of all, they may wait for somebody outside of the job, who is given more time.
        """
        spoken = communicating_ranks(snapshot, self._catalogue, source_line=source_line)
        if len(spoken) < len(snapshot.ranks):
            return spoken
        return communicating_ranks(snapshot, self._catalogue)

    def judge(
        self, incident: Incident, *, called: Callable[[Diagnosis], Diagnosis] | None = None
    ) -> Diagnosis:
        """Diagnose an incident and store it all; one that turns out to be well only if it is to be kept.

        Args:
            incident: the looks; on disk before they are judged if they are to be kept.
            called: gives the diagnosis its last form.
        """
        # Whoever judges tells of it, until somebody decides.
        self._records.tells_of(incident.id, is_here=True)
        self._judged_elsewhere.discard(incident.id)
        if incident.kept:
            self.store(incident)
        diagnosis = self._diagnose(incident)
        if called is not None:
            diagnosis = called(diagnosis)
        if not incident.kept:
            if diagnosis.verdict == "Healthy":
                return diagnosis
            self.store(incident)
        self._records.diagnosis(incident.id, diagnosis)
        return diagnosis

    def adopt(self, diagnosis: Diagnosis, a: JobSnapshot | None, b: JobSnapshot | None) -> None:
        """Store what another agent has found of the whole job, unless it lies in this folder already.

        Args:
            diagnosis: what was found; its incident names the folder.
            a: what was seen of the ranks here.
            b: the second look.
        """
        incident = diagnosis.incident or ""
        self._records.tells_of(incident, is_here=False)
        self._judged_elsewhere.add(incident)
        if self._records.has_whole(incident, diagnosis):
            return
        if a is not None and not self._records.has_snapshot(incident):
            self.store(Incident(incident, a, b))
        self._records.diagnosis(incident, diagnosis)

    def adopt_asked(self, diagnosis: Diagnosis, a: JobSnapshot | None, b: JobSnapshot | None) -> None:
        """Store what was asked for here, unless it is well, or its incident lies here already."""
        if diagnosis.incident is not None and not self._records.has_incident(diagnosis.incident):
            self.adopt(diagnosis, a, b)

    def tells_of(self, diagnosis: Diagnosis, *, is_here: bool) -> None:
        """Whether this agent sends the notices of it."""
        if diagnosis.incident is not None:
            self._records.tells_of(diagnosis.incident, is_here)

    def judge_asked(
        self,
        incident: Incident,
        *,
        known: Diagnosis | None,
        called: Callable[[Diagnosis], Diagnosis] | None = None,
    ) -> Diagnosis:
        """Diagnose looks that a person asked for; stored is what is neither well nor told already.

        Args:
            incident: the looks.
            known: what is published of the present silence: whoever asks ten times makes no ten incidents.
            called: gives the diagnosis its last form.
        """
        diagnosis = self._diagnose(incident)
        if called is not None:
            diagnosis = called(diagnosis)
        if diagnosis.verdict == "Healthy":
            return msgspec.structs.replace(diagnosis, incident=None)
        if known is not None and _what(known) == _what(diagnosis):
            return msgspec.structs.replace(diagnosis, incident=known.incident)
        self.store(incident)
        self._records.diagnosis(incident.id, diagnosis)
        return diagnosis

    def _diagnose(self, incident: Incident) -> Diagnosis:
        diagnosis = diagnose(
            (incident.a, incident.b),
            catalogue=self._catalogue,
            source_line=source_line,
            time=iso_time(time.time()),
            incident=incident.id,
            samples=incident.samples,
            silent_seconds=incident.silent_seconds,
            overdue=incident.overdue,
        )
        return with_severity(diagnosis, incident.silent_seconds, self._severities)

    def lasting(self, diagnosis: Diagnosis, silent: float) -> Diagnosis:
        """The diagnosis once the hang has lasted ``silent`` seconds; stored anew where that changes it."""
        now = with_severity(diagnosis, silent, self._severities)
        if now.severity == diagnosis.severity or now.incident is None:
            return now
        if now.incident not in self._judged_elsewhere:  # of the whole job who judged has it all
            self._records.diagnosis(now.incident, now)
        return now

    def not_judged(self, incident: Incident, reason: str) -> Diagnosis:
        """An honest Unknown; the snapshots are stored, so that a person can look at them."""
        self.store(incident)
        diagnosis = Diagnosis(
            job=self._job,
            time=iso_time(time.time()),
            world_size=incident.a.world_size,
            observed="",
            verdict="Unknown",
            kind="none",
            severity="info",
            confidence="low",
            culprits=(),
            nodes=(),
            summary=reason,
            location=None,
            rule="none",
            incident=incident.id,
        )
        self._records.diagnosis(incident.id, diagnosis)
        return diagnosis

    def store(self, incident: Incident) -> None:
        """Write the snapshots to disk."""
        self._records.snapshot(incident.id, "a", incident.a)
        if incident.b is not None:
            self._records.snapshot(incident.id, "b", incident.b)


def _what(diagnosis: Diagnosis) -> tuple[object, ...]:
    return diagnosis.verdict, diagnosis.kind, diagnosis.culprits
