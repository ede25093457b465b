"""Takes evidence of the local ranks and turns it into a stored diagnosis.

Called by the collector's thread on suspicion and by the main thread before anything is stopped. Decides
nothing; every look has a deadline.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rankscope.agent.observe import Observer
from rankscope.agent.records import Records
from rankscope.agent.workers import Launch, WorkerRef
from rankscope.diag.capture import Target, capture_ranks
from rankscope.diag.capture.plan import BACKENDS, Backend
from rankscope.diag.capture.pystack import collects_garbage
from rankscope.diag.capture.samples import sample_ranks
from rankscope.diag.capture.slow_tools import SlowTools
from rankscope.diag.classify import (
    Catalogue,
    SlowLook,
    communicating_ranks,
    diagnose,
    gil_keepers,
    looping_ranks,
    messaging_ranks,
    unclear_ranks,
)
from rankscope.diag.closer_look import look_closer
from rankscope.diag.live import source_line
from rankscope.diag.model import Diagnosis, ExitFacts, JobSnapshot, Progress, RankSnapshot
from rankscope.diag.slow_looks import as_job, take_looks
from rankscope.diag.store.events import iso_time

_CLOSER_SECONDS: Final = 3.0
_MOST_CLOSER: Final = 8
"""Seconds for C++ frames, and ranks that are asked for them: each costs 0.3-0.8 s of CPU."""
_GARBAGE_SECONDS: Final = 4.0
"""Seconds for asking whether a rank that seems to loop is collecting garbage."""


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


def _collecting(targets: Iterable[Target], *, pause: Callable[[float], bool]) -> frozenset[int]:
    """The ranks that are collecting garbage; asks no further when something urgent waits."""
    deadline = time.monotonic() + _GARBAGE_SECONDS
    return frozenset(
        one.rank for one in targets if not pause(0.0) and collects_garbage(one.pid, deadline=deadline)
    )


def _without(look: JobSnapshot, ranks: frozenset[int]) -> JobSnapshot:
    return msgspec.structs.replace(look, ranks=tuple(one for one in look.ranks if one.rank not in ranks))


def _counts_a_wait(progress: Progress) -> bool:
    return any(group.enqueued > group.completed for group in progress.groups)


@dataclass(frozen=True, slots=True)
class Samples:
    """Looks at working ranks in quick succession, and what they look like.

    Attributes:
        looks: oldest first.
        loops: ranks in a loop of the user's own Python; library_loops those with library code at the leaf.
    """

    looks: tuple[JobSnapshot, ...] = ()
    loops: frozenset[int] = frozenset()
    library_loops: frozenset[int] = frozenset()


class EvidenceTaker:
    """Looks at the ranks of one agent. Thread-safe: one snapshot at a time.

    Args:
        job: run id.
        records: where snapshots and diagnoses are kept.
        catalogue: what frames mean; as packaged when not given.
        backends: the ways to stacks that may be used.
    """

    def __init__(
        self,
        job: str,
        records: Records,
        *,
        catalogue: Catalogue | None = None,
        backends: Sequence[Backend] = BACKENDS,
    ) -> None:
        self._job = job
        self._backends = backends
        self._slow = SlowTools()
        self._records = records
        self._catalogue = catalogue or Catalogue.load()
        self._lock = threading.Lock()

    def snapshot(
        self,
        launch: Launch,
        observer: Observer,
        *,
        timeout: float,
        exits: Mapping[int, ExitFacts],
        children: bool = True,
    ) -> JobSnapshot:
        """Look at all ranks of ``launch``; what cannot be seen in ``timeout`` seconds has a reason instead.

        Args:
            launch: the workers.
            observer: reads their page.
            timeout: seconds for everything.
            exits: ranks that have ended, and how.
            children: whether to look at their child processes too.
        """
        deadline = time.monotonic() + timeout
        if not self._lock.acquire(timeout=timeout):
            return self.unseen(launch, "an earlier look at the ranks did not come back in time")
        try:
            targets = [self._target(worker, observer, exits.get(worker.rank)) for worker in launch.workers]
            left = max(0.0, deadline - time.monotonic())
            ranks = capture_ranks(
                targets, timeout=left, children=children, backends=self._backends, slow=self._slow
            )
            for rank in ranks:
                observer.looked_at(rank.pid, rank.facts.look_bytes if rank.facts else 0)
        finally:
            self._lock.release()
        return JobSnapshot(job=self._job, time=time.time(), world_size=launch.world_size, ranks=ranks)

    def closer(self, seen: JobSnapshot, *, deadline: float = math.inf) -> JobSnapshot:
        """The snapshot with C++ frames of ranks whose Python stack does not tell what they wait for.

        Args:
            seen: a look just taken.
            deadline: when it must be over, monotonic seconds; a moment whatever it is.
        """
        counted = {rank.rank for rank in seen.ranks if rank.progress and _counts_a_wait(rank.progress)}
        messaging = messaging_ranks(seen, self._catalogue)
        unclear = sorted(unclear_ranks(seen, self._catalogue) - counted - messaging)[:_MOST_CLOSER]
        timeout = min(_CLOSER_SECONDS, deadline - time.monotonic())
        if not (unclear or messaging) or timeout <= 0 or not self._lock.acquire(timeout=timeout):
            return seen
        try:
            return look_closer(seen, unclear, messaging=messaging, timeout=timeout)
        finally:
            self._lock.release()

    def samples(
        self,
        launch: Launch,
        observer: Observer,
        ranks: Sequence[int],
        *,
        pause: Callable[[float], bool],
    ) -> Samples:
        """Look at working ranks for some seconds, without stopping them.

        Args:
            launch: the workers.
            observer: reads their page.
            ranks: those to look at.
            pause: waits so many seconds; answers whether to stop here.
        """
        workers = [worker for worker in launch.workers if worker.rank in ranks]
        targets = [self._target(worker, observer, None) for worker in workers]
        looks = tuple(
            JobSnapshot(job=self._job, time=look[0].time, world_size=launch.world_size, ranks=look)
            for look in sample_ranks(targets, pause=pause)
            if look
        )
        found = looping_ranks(looks, catalogue=self._catalogue, source_line=source_line)
        asked = found.keys() | gil_keepers(looks)
        collecting = _collecting((target for target in targets if target.rank in asked), pause=pause)
        if collecting:
            # A collection owns the GIL at whatever line began it: those looks tell nothing of these ranks.
            looks = tuple(_without(look, collecting) for look in looks)
            found = {rank: loop for rank, loop in found.items() if rank not in collecting}
        return Samples(
            looks,
            loops=frozenset(rank for rank, loop in found.items() if loop == "user"),
            library_loops=frozenset(rank for rank, loop in found.items() if loop == "library"),
        )

    def slow_looks(
        self, launch: Launch, observer: Observer, *, pause: Callable[[float], bool]
    ) -> tuple[JobSnapshot, ...]:
        """Look at all ranks for some seconds, without stopping any; empty when it was stopped.

        Args:
            launch: the workers.
            observer: reads their page.
            pause: waits so many seconds; answers whether to stop here.
        """
        looks = take_looks(
            lambda: [self._target(worker, observer, None) for worker in launch.workers], pause=pause
        )
        absent = tuple(
            RankSnapshot(rank=rank, observed=False, reason="on another node")
            for rank in sorted(set(range(launch.world_size)) - {worker.rank for worker in launch.workers})
        )
        return as_job(looks, job=self._job, world_size=launch.world_size, absent=absent)

    def judge_slow(self, incident: str, looks: Sequence[JobSnapshot], slow: SlowLook) -> Diagnosis:
        """Find out what is slow; stored is only what is.

        Args:
            incident: id of the incident that it becomes then.
            looks: oldest first.
            slow: what is known of the job's pace.
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
        if diagnosis.verdict in ("RankCommSlow", "RankNonCommSlow"):
            self.store(Incident(incident, first, last))
            self._records.diagnosis(incident, diagnosis)
        return diagnosis

    def _target(self, worker: WorkerRef, observer: Observer, end: ExitFacts | None) -> Target:
        progress = observer.progress(worker)
        pid, ticks = observer.process(worker)
        return Target(
            rank=worker.rank,
            pid=pid,
            start_ticks=ticks,
            node=self._records.node,
            progress=progress,
            exit=end,
        )

    def unseen(self, launch: Launch, reason: str) -> JobSnapshot:
        """A snapshot that says of every rank why it was not observed."""
        ranks = tuple(
            RankSnapshot(
                rank=worker.rank, node=self._records.node, pid=worker.pid, observed=False, reason=reason
            )
            for worker in launch.workers
        )
        return JobSnapshot(job=self._job, time=time.time(), world_size=launch.world_size, ranks=ranks)

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
        if incident.kept:
            self.store(incident)
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
        if called is not None:
            diagnosis = called(diagnosis)
        if not incident.kept:
            if diagnosis.verdict == "Healthy":
                return diagnosis
            self.store(incident)
        self._records.diagnosis(incident.id, diagnosis)
        return diagnosis

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
