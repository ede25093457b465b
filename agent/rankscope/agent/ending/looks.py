"""Looks at the workers before they are stopped, for the main thread: evidence of a failure, the last look.

What is seen is judged and stored. It must not know why workers are stopped beyond a phrase, nor stop any.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from rankscope.agent.ending.last_look import LastLook, take_last_look, time_to_look
from rankscope.agent.ending.signals import StopSignals
from rankscope.agent.evidence.taker import EvidenceTaker, Incident
from rankscope.agent.failures import Failure
from rankscope.agent.failures.in_diagnosis import in_order, is_told_otherwise, with_tie
from rankscope.agent.failures.struck import Ends, split_ends
from rankscope.agent.observing.current import CurrentWorkers
from rankscope.agent.watching.watch import Watch
from rankscope.agent.workers.model import WorkerRef
from rankscope.diag.model import Diagnosis, ExitFacts, JobSnapshot
from rankscope.diag.store.incidents import new_incident_id


class WorkerLooks:
    """Looks at the workers of the present launch.

    Args:
        current: who they are.
        evidence: takes and judges snapshots.
        watch: knows for how long nothing has moved, and who has ended.
        signals: those that end the agent.
    """

    def __init__(
        self, current: CurrentWorkers, *, evidence: EvidenceTaker, watch: Watch, signals: StopSignals
    ) -> None:
        self._current = current
        self._evidence = evidence
        self._watch = watch
        self._signals = signals

    @property
    def has_workers(self) -> bool:
        """Whether there are any to look at."""
        return self._current.both() is not None

    def snapshot(
        self,
        exits: Mapping[int, ExitFacts],
        *,
        deadline: float,
        workers: Sequence[WorkerRef] | None = None,
    ) -> JobSnapshot | None:
        """A snapshot of what is still alive; ``None`` without workers.

        Args:
            exits: ranks that have ended, and how.
            deadline: when all must be judged and stored, monotonic seconds.
            workers: those that are looked at, all if not given; the others are not touched.
        """
        both = self._current.both()
        if both is None:
            return None
        launch, observer = both
        if self._current.are_nested:
            # torch knows of their launcher's end only.
            exits = {**self._watch.ended(), **exits}
        if workers is not None:
            launch = dataclasses.replace(launch, workers=tuple(workers))
        return self._evidence.snapshot(launch, observer, timeout=time_to_look(deadline), exits=exits)

    def judge(self, snapshot: JobSnapshot) -> Diagnosis:
        """Diagnose a single snapshot, and store both as an incident of its own."""
        return self._evidence.judge(Incident(_new_incident(), snapshot, kept=True))

    def unseen(self, reason: str, exits: Mapping[int, ExitFacts]) -> JobSnapshot | None:
        """A snapshot of ranks that nobody could look at: how they ended; ``None`` without workers.

        Args:
            reason: why not.
            exits: ranks that have ended, and how.
        """
        both = self._current.both()
        if both is None:
            return None
        return with_exits(self._evidence.unseen(both[0], reason), exits)

    def judge_failure(
        self,
        seen: JobSnapshot,
        exits: Mapping[int, ExitFacts],
        root: Failure | None,
        *,
        judged: Diagnosis | None = None,
    ) -> Diagnosis:
        """Diagnose a failure so that the root failure is the one that is named, and store it.

        Args:
            seen: the look at the workers.
            exits: ranks that have ended by now, and how.
            root: the first that failed, ``None`` when none could be told.
            judged: what was stored of that look before the root was known; it stays where it is right.
        """
        judged = judged or self.judge(seen)
        if root is None or not is_told_otherwise(judged, root, exits):
            return judged
        incident = Incident(judged.incident or _new_incident(), in_order(seen, exits, root), kept=True)
        return self._evidence.judge(incident, called=lambda found: with_tie(found, root))

    def ends(self, exits: Mapping[int, ExitFacts]) -> Ends:
        """Tell the ends of what stops the agent from those that came before it."""
        first = self._signals.first
        ago = time.monotonic() - first[0] if first is not None else None
        return split_ends(exits, signalled_ago=ago)

    def last(
        self,
        why: str,
        deadline: float,
        *,
        exits: Callable[[], Mapping[int, ExitFacts]],
        enough: Callable[[], None],
    ) -> LastLook | None:
        """Look at workers that are stopped for no fault of their own, and store what is found.

        Args:
            why: what stops them.
            deadline: when it must be done, monotonic seconds.
            exits: tells which ranks have ended, and how.
            enough: called when the workers are not needed any more.

        Returns:
            What was found; ``None`` when the open incident has its evidence on disk.
        """
        both = self._current.both()
        if both is None:
            return None
        launch, observer = both
        return take_last_look(
            launch,
            observer,
            watch=self._watch,
            evidence=self._evidence,
            why=why,
            deadline=deadline,
            new_incident=_new_incident,
            ends=lambda: self.ends({**self._watch.ended(), **exits()}),
            enough=enough,
        )


def with_exits(snapshot: JobSnapshot, exits: Mapping[int, ExitFacts]) -> JobSnapshot:
    """A snapshot with what has become known since of how ranks ended."""
    ranks = tuple(
        replace(rank, exit=exits[rank.rank]) if rank.rank in exits else rank for rank in snapshot.ranks
    )
    return replace(snapshot, ranks=ranks)


def _new_incident() -> str:
    return new_incident_id(time.time())
