"""Looks at the local ranks, alone or in quick succession; every look has a deadline.

It must not know what a look means for the job (``taker``).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rankscope.agent.health.tallies import CAPTURE_BOUNDS, Durations
from rankscope.agent.observing.observer import Observer
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag.capture import Target, capture_ranks
from rankscope.diag.capture.plan import BACKENDS, Backend
from rankscope.diag.capture.pystack import collects_garbage
from rankscope.diag.capture.samples import sample_ranks
from rankscope.diag.capture.slow_tools import SlowTools
from rankscope.diag.classify import (
    Catalogue,
    Reader,
    gil_keepers,
    looping_ranks,
    messaging_ranks,
    unclear_ranks,
)
from rankscope.diag.closer_look import look_closer
from rankscope.diag.live import source_line
from rankscope.diag.model import ExitFacts, JobSnapshot, Progress, RankSnapshot
from rankscope.diag.slow_looks import KEPT_ENTRIES, as_job, take_looks

_CLOSER_SECONDS: Final = 3.0
_MOST_CLOSER: Final = 8
"""Seconds for C++ frames, and ranks that are asked for them: each costs 0.3-0.8 s of CPU."""
_GARBAGE_SECONDS: Final = 4.0
"""Seconds for asking whether a rank that seems to loop is collecting garbage."""


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


class Looker:
    """Looks at the ranks of one agent. Thread-safe: one snapshot at a time.

    Args:
        job: run id.
        node: tells this agent's node name.
        catalogue: what frames mean.
        backends: the ways to stacks that may be used.
        local_variables: whether local variables are kept with stacks (``--allow-locals``).

    Attributes:
        captures: how long looks at all ranks took.
    """

    def __init__(
        self,
        job: str,
        node: Callable[[], str],
        *,
        catalogue: Catalogue,
        backends: Sequence[Backend] = BACKENDS,
        local_variables: bool = False,
    ) -> None:
        self._job = job
        self._node = node
        self._catalogue = catalogue
        self._backends = backends
        self._local_variables = local_variables
        self.captures = Durations.none(CAPTURE_BOUNDS)
        self._slow = SlowTools()
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
            began = time.monotonic()
            left = max(0.0, deadline - began)
            ranks = capture_ranks(
                targets,
                timeout=left,
                children=children,
                backends=self._backends,
                slow=self._slow,
                local_variables=self._local_variables,
            )
            for rank in ranks:
                observer.looked_at(rank.pid, rank.facts.look_bytes if rank.facts else 0)
            self.captures = self.captures.plus(time.monotonic() - began)
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
        found = looping_ranks(looks, reader=Reader(self._catalogue, source_line))
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
        self,
        launch: Launch,
        observer: Observer,
        *,
        pause: Callable[[float], bool],
        kept_entries: int = KEPT_ENTRIES,
    ) -> tuple[JobSnapshot, ...]:
        """Look at the ranks here for some seconds, without stopping any; empty when it was stopped.

        What they show is of the ranks here alone: those of other nodes are theirs to look at.

        Args:
            launch: the workers.
            observer: reads their page.
            pause: waits so many seconds; answers whether to stop here.
            kept_entries: newest operations of each flight record that are kept.
        """
        looks = take_looks(
            lambda: [self._target(worker, observer, None) for worker in launch.workers],
            pause=pause,
            kept_entries=kept_entries,
        )
        return as_job(looks, job=self._job, world_size=launch.world_size)

    def with_ranks_elsewhere(self, launch: Launch, looks: Sequence[JobSnapshot]) -> tuple[JobSnapshot, ...]:
        """The looks with the ranks that run on other nodes, which were not observed."""
        here = {worker.rank for worker in launch.workers}
        absent = tuple(
            RankSnapshot(rank=rank, observed=False, reason="on another node")
            for rank in range(launch.world_size)
            if rank not in here
        )
        return tuple(msgspec.structs.replace(look, ranks=(*look.ranks, *absent)) for look in looks)

    def _target(self, worker: WorkerRef, observer: Observer, end: ExitFacts | None) -> Target:
        progress = observer.progress(worker)
        pid, ticks = observer.process(worker)
        return Target(
            rank=worker.rank,
            pid=pid,
            start_ticks=ticks,
            node=self._node(),
            progress=progress,
            exit=end,
        )

    def unseen(self, launch: Launch, reason: str) -> JobSnapshot:
        """A snapshot that says of every rank why it was not observed."""
        ranks = tuple(
            RankSnapshot(rank=worker.rank, node=self._node(), pid=worker.pid, observed=False, reason=reason)
            for worker in launch.workers
        )
        return JobSnapshot(job=self._job, time=time.time(), world_size=launch.world_size, ranks=ranks)
