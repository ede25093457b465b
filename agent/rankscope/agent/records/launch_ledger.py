"""What the agent writes down of launches: their stages, who failed, and the restarts that follow.

A part of the ``Ledger``. Each event is written before anything is done about it; a restart is complete when
workers run again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from rankscope.agent.failures.model import Failure
from rankscope.agent.records.cycles import Cycles
from rankscope.agent.records.folder import Records
from rankscope.diag.model import Decision, ExitFacts
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.store.events import iso_time
from rankscope.diag.store.launches import Cycle, RestartRecord, Stage


@dataclass(frozen=True, slots=True)
class _Restarting:
    """A restart that is under way: since when (monotonic seconds), and its record so far."""

    since: float
    record: RestartRecord
    silent_since: float


class LaunchLedger:
    """The stages, failures and restarts of one agent's launches.

    Args:
        records: where they go.
        cycles: the stages of the present launch.
    """

    def __init__(self, records: Records, cycles: Cycles) -> None:
        self._records = records
        self.cycles = cycles
        self._restarts: dict[int | None, _Restarting] = {}
        self._faults: set[int] = set()

    def enter(self, stage: Stage) -> None:
        """A stage of the cycle begins now (any thread); ``rendezvous`` ends the cycle before it."""
        self._cycle_ended(self.cycles.enter(stage, time.monotonic(), now=time.time()))

    def cycle_over(self, result: str) -> None:
        """The workers are done, or have been given up: the cycle ends and no other begins."""
        now = time.monotonic()
        self._cycle_ended(self.cycles.end(now, result=result, now=time.time()))

    def _cycle_ended(self, cycle: Cycle | None) -> None:
        if cycle is not None:
            fields: dict[str, object] = msgspec.to_builtins(cycle)
            self._records.event("cycle.ended", fields, subject=cycle.incident)

    def workers_failed(
        self,
        incident: str | None,
        exits: Mapping[int, ExitFacts],
        *,
        root: Failure | None = None,
        others: Sequence[Failure] = (),
    ) -> None:
        """Workers ended by themselves.

        Args:
            incident: where the evidence is.
            exits: which have ended, and how; those that ended with 0 are no failure.
            root: the first of them in time, or one of another node.
            others: those that failed of their own beside it; their errors are counted as well.
        """
        own = {one.rank: one for one in others}
        for rank, facts in sorted(exits.items()):
            if facts.code == 0:
                continue  # done, beside one that failed
            data: dict[str, object] = {"rank": rank, "exit_code": facts.code, "message": facts.message}
            if root is not None and root.rank == rank:
                data |= _root(root)
            elif rank in own:
                data |= _of_its_own(own[rank])
            self._failed(rank, data, incident)
        if root is not None and root.rank not in exits:
            message = {"rank": root.rank, "exit_code": root.exit_code, "message": root.message}
            self._failed(root.rank, {**message, **_root(root)}, incident)

    def _failed(self, rank: int, data: dict[str, object], incident: str | None) -> None:
        self._faults.add(rank)
        self._records.event("worker.failed", data, subject=incident)

    def restarts_told(self, count: int) -> None:
        """The job has been restarted ``count`` times, as other nodes know."""
        self._records.event("restarts.told", {"restarts": count})

    def restart_begins(
        self,
        decision: Decision | None,
        *,
        restarts: int,
        verdict: str = "",
        summary: str = "",
        failure: Failure | None = None,
    ) -> None:
        """All workers are about to be stopped and started again; the record is complete when they run.

        Args:
            decision: what led to it, ``None`` for a change of the membership, which is not counted.
            restarts: how many there have been, this one included.
            verdict: the last diagnosis' verdict.
            summary: its sentence.
            failure: what failed first, ``None`` when nothing did.
        """
        now = iso_time(time.time())
        why = decision or Decision(action="restart", reason="a change of the membership", time=now)
        ranks = (failure.rank,) if failure is not None else why.culprits
        record = RestartRecord(
            restarts=restarts,
            restart_time=why.time,
            node_name=failure.node if failure is not None else self._records.node,
            instance_name=_instance(ranks),
            error_code=verdict,
            error_message=summary,
            error_source=f"incident {why.incident}" if why.incident else "",
            reason=why.reason,
            incident=why.incident,
            is_counted=decision is not None,
            faults=tuple(sorted(self._faults)),
        )
        self._restart_begun(None, _with_failure(record, failure))

    def worker_restart_begins(
        self,
        rank: int,
        *,
        restarts: int,
        reason: str,
        failure: Failure | None = None,
        incident: str | None = None,
    ) -> None:
        """One worker is about to be started again, the others go on.

        Args:
            rank: its global rank.
            restarts: how many restarts it has had, this one included.
            reason: why, a sentence.
            failure: how it failed.
            incident: where the evidence is.
        """
        record = RestartRecord(
            restarts=restarts,
            restart_time=iso_time(time.time()),
            node_name=self._records.node,
            instance_name=_instance((rank,)),
            error_code="",
            error_message="",
            error_source=f"incident {incident}" if incident else "",
            reason=reason,
            incident=incident,
            faults=(rank,),
            worker=rank,
        )
        self._restart_begun(rank, _with_failure(record, failure))

    def worker_restarted(self, rank: int) -> None:
        """A worker that was started again runs."""
        self._restart_done(rank, time.monotonic())

    def _restart_begun(self, worker: int | None, record: RestartRecord) -> None:
        at = time.monotonic()
        silent_since = self.cycles.silent_since(at) if worker is None else at
        self._restarts[worker] = _Restarting(at, record, silent_since)
        self._cycle_because(record.reason, record.incident)
        fields: dict[str, object] = msgspec.to_builtins(record)
        self._records.event("restart.begun", fields, subject=record.incident)

    def _restart_done(self, worker: int | None, at: float) -> None:
        begun = self._restarts.pop(worker, None)
        if begun is None:
            return
        done = msgspec.structs.replace(
            begun.record,
            result="running",
            duration=round(at - begun.since, 3),
            lost=round(at - begun.silent_since, 3),
        )
        fields: dict[str, object] = msgspec.to_builtins(done)
        self._records.event("restart", fields, subject=done.incident)

    def _cycle_because(self, reason: str, incident: str | None) -> None:
        if reason:
            self.cycles.because(reason, incident)

    def _launched(self, at: float) -> None:
        """Workers run: a restart of all that was under way is complete."""
        self._faults.clear()
        self._restart_done(None, at)


def _instance(ranks: Sequence[int]) -> str:
    """What failed, in words: ``rank 2``, ``ranks 0-1,3``."""
    if not ranks:
        return ""
    return f"rank{'s' * (len(ranks) > 1)} {fold_ranks(ranks)}"


def _with_failure(record: RestartRecord, failure: Failure | None) -> RestartRecord:
    if failure is None:
        return record
    return msgspec.structs.replace(
        record,
        error_code="" if failure.exit_code is None else str(failure.exit_code),
        error_message=failure.message,
        error_source=failure.source,
        identity=failure.identity,
    )


def _root(failure: Failure) -> dict[str, object]:
    """What is recorded of the failure that is the root, beside what is of each."""
    return {
        **_of_its_own(failure),
        "root": True,
        "role": failure.role,
        "retryable": failure.retryable,
        "because": failure.because,
        "tied_with": list(failure.tied_with),
        "why_first": failure.why_first,
        "at": iso_time(failure.at),
    }


def _of_its_own(failure: Failure) -> dict[str, object]:
    """What is recorded of a failure that no other explains: what its error is counted by."""
    return {
        "message": failure.message,
        "node": failure.node,
        "identity": failure.identity,
        "source": failure.source,
    }
