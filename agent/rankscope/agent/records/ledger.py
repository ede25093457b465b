"""What the agent writes down: who runs where (``job.json``, ``agent.json``) and what happened (events).

It turns the agent's state into records; it neither watches nor decides. Writing never raises (``folder``).
It also keeps the cycles (``cycles``) and the counters (``past``): both are made of what it writes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from rankscope.agent.health.tallies import Durations, Tallies
from rankscope.agent.records.cycles import Cycles
from rankscope.agent.records.folder import Records
from rankscope.agent.records.incident_ledger import IncidentLedger, found
from rankscope.agent.records.past import Past
from rankscope.agent.records.replay import Asked
from rankscope.agent.records.tallies import EventTallies
from rankscope.agent.workers.model import Launch
from rankscope.diag import proc
from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.store.events import Event, iso_time
from rankscope.diag.store.job import AgentFile, JobFile, WorkerFile

_ENDING: Final = frozenset({"restart", "isolate", "fail"})
_RETRY: Final = 5.0
"""Seconds between two tries to write events for which there was no room."""


class Ledger(IncidentLedger):
    """The records of one agent's life. Thread-safe, as far as several threads tell of what happens.

    Args:
        records: where they go.
        run_id: the job's run id.
        command: what is trained.
        nodes: ``MIN:MAX`` as asked for.

    Attributes:
        past: what the job has been through, earlier agents of this node included.
        cycles: the stages of the present launch.
    """

    def __init__(self, records: Records, *, run_id: str, command: Sequence[str], nodes: str) -> None:
        self._run_id = printable(run_id)
        self._command = tuple(printable(word) for word in command)
        self._nodes = nodes
        self._created = iso_time(time.time())
        self._world_size = 0
        self._messages_left_out = 0
        self._retry_at = 0.0
        self._lock = threading.Lock()
        self.past = Past.of(records.earlier)
        self._tallies = EventTallies.of(records.earlier)
        super().__init__(records, Cycles(records.node, past=self.past.cycles))
        # First, so that whoever is told of an event finds it counted.
        records.listeners.insert(0, self._count)

    def _count(self, event: Event) -> None:
        with self._lock:
            self.past.take(event)
            self._tallies.take(event)

    def counted(self, *, captures: Durations, timer_requests: int) -> Tallies:
        """What ``/metrics`` tells, with what no event tells (any thread).

        Args:
            captures: how long looks at the ranks took.
            timer_requests: timers set and released.
        """
        with self._lock:
            return self._tallies.now(captures=captures, timer_requests=timer_requests)

    def job_started(self, settings: Mapping[str, object] | None = None) -> None:
        """The agent is there; nothing runs yet.

        Args:
            settings: what is in force and where each value came from, without secrets.
        """
        data: dict[str, object] = {"command": list(self._command), "nodes": self._nodes, "pid": os.getpid()}
        if settings is not None:
            data["settings"] = dict(settings)
        self._records.event("job.started", data)
        self._created = self._first_created()
        self._write_job()

    def _first_created(self) -> str:
        """When the job began: with the first of the agents that this one goes on for, of any node."""
        there = self._records.stored_job()
        goes_on = there is not None and (self.past.continues or there.ended is None)
        return there.created if there is not None and goes_on else self._created

    def job_ended(self, result: str, exit_code: int | None) -> None:
        """The agent ends; the exit code of a job that others launched is not known."""
        self.cycle_over(result)
        data: dict[str, object] = {"result": result, "exit_code": exit_code}
        if self._messages_left_out:
            data["messages_left_out"] = self._messages_left_out
        self._records.event("job.ended", data)
        self._write_job(ended=iso_time(time.time()), result=result)

    def cycle_started(self, launch: Launch) -> None:
        """Workers run; a restart that was under way is complete."""
        self._world_size = launch.world_size
        data: dict[str, object] = {
            "restart_count": launch.restart_count,
            "world_size": launch.world_size,
            "ranks": [worker.rank for worker in launch.workers],
        }
        at, now = time.monotonic(), time.time()
        ended = self.cycles.launched(
            at,
            restart_count=launch.restart_count,
            world_size=launch.world_size,
            ranks=tuple(worker.rank for worker in launch.workers),
            now=now,
        )
        self._cycle_ended(ended)
        data |= {"number": self.cycles.number, **self.cycles.start(at)}
        self._records.event("cycle.started", data)
        self._write_job()
        self._launched(at)

    def ranks_found(self, launch: Launch) -> None:
        """The ranks of this cycle are processes below its workers (any thread)."""
        self._world_size = launch.world_size
        ranks = tuple(worker.rank for worker in launch.workers)
        self.cycles.ranks_are(world_size=launch.world_size, ranks=ranks)
        self._write_job()

    def progressed(self, *, steps: int = 0, step: int | None = None) -> None:
        """Something has progressed; may be called at every look.

        Args:
            steps: optimizer steps of the rank that made most in this cycle, 0 for progress of another kind.
            step: number that the script gave its last step, ``None`` when it gives none.
        """
        now = time.monotonic()
        is_first = self.cycles.progressed(now, steps=steps, step=step)
        if is_first or self.past.is_new(steps, step):
            self._records.event(
                "cycle.training", {"number": self.cycles.number, "steps": steps, "step": step}
            )

    def tick(self) -> None:
        """Once a second or so: events that wait for room on the disk are tried again now and then."""
        now = time.monotonic()
        if now >= self._retry_at:
            self._retry_at = now + _RETRY
            self._records.retry()

    def notice_failed(self, data: Mapping[str, object]) -> None:
        """A notice could not be delivered."""
        self._records.event("notice.failed", dict(data))

    def worker_left(self, rank: int, pid: int, state: str, wchan: str) -> None:
        """A worker could not be ended and is left behind; where it sleeps, as the kernel tells it."""
        data: dict[str, object] = {"rank": rank, "pid": pid, "state": state, "wchan": wchan}
        self._records.event("worker.left", data)

    def message(self, rank: int, content: str, *, left_out: int = 0) -> None:
        """A rank sent a text (``Monitor.send_custom_message``).

        Args:
            rank: global rank.
            content: what it says.
            left_out: messages of any rank before this one that were too many to record.
        """
        data: dict[str, object] = {"rank": rank, "content": content}
        if left_out:
            data["left_out"] = left_out
        self._records.event("message", data)

    def message_left_out(self) -> None:
        """A message was one too many; the number of them is told at the job's end."""
        self._messages_left_out += 1

    def settings_changed(self, rank: int, values: Mapping[str, object], *, left_out: int = 0) -> None:
        """A rank set parameters from inside (``Monitor.reset_config``).

        Args:
            rank: global rank.
            values: by name.
            left_out: changes that were too many to record; what they said last is in ``values``.
        """
        data: dict[str, object] = {"rank": rank, "values": dict(values)}
        if left_out:
            data["left_out"] = left_out
        self._records.event("settings.changed", data)

    def settings_changed_by(self, by: str, values: Mapping[str, tuple[object, object]]) -> None:
        """Somebody changed settings while the job runs.

        Args:
            by: who.
            values: by name: the value before, and the one that holds from now on.
        """
        told = {name: {"old": old, "new": new} for name, (old, new) in values.items()}
        data: dict[str, object] = {"changed": told, "by": by}
        self._records.event("settings.changed", data)

    def analyzed(self, diagnosis: Diagnosis, by: str) -> None:
        """Somebody had the ranks looked at; its incident, if it is one, is the event's subject."""
        self._records.event("analyzed", {**found(diagnosis), "by": by}, subject=diagnosis.incident)

    def decided(self, decision: Decision, asked: Asked | None = None) -> None:
        """A decision, stored before it is carried out.

        Args:
            decision: what is to be done.
            asked: what the policy was asked, so that it can be asked again from the log.
        """
        if decision.incident is not None:
            self._records.decision(decision.incident, decision)
        if decision.action in _ENDING:
            self._cycle_because(decision.reason, decision.incident)
        data: dict[str, object] = {
            "action": decision.action,
            "reason": decision.reason,
            "culprits": list(decision.culprits),
            "exit_code": decision.exit_code,
        }
        if asked is not None:
            data["asked"] = msgspec.to_builtins(asked)
        self._records.event("decision", data, subject=decision.incident)

    def agent_is(
        self,
        phase: str,
        launch: Launch | None,
        *,
        address: tuple[str, int] | None,
        page: str,
        api: str = "",
        token_file: str = "",
    ) -> None:
        """Write ``agent.json``: what the agent does, who its workers are, where it can be asked."""
        host, port = address or ("", 0)
        pid = os.getpid()
        workers = launch.workers if launch else ()
        self._records.agent_file(
            AgentFile(
                node=self._records.node,
                pid=pid,
                start_ticks=proc.start_ticks(pid) or 0,
                phase=phase,
                restart_count=launch.restart_count if launch else 0,
                host=host,
                port=port,
                page=page,
                workers=tuple(
                    WorkerFile(one.rank, one.local_rank, one.pid, one.start_ticks) for one in workers
                ),
                world_size=self._world_size,
                api=api,
                token_file=token_file,
            )
        )

    def _write_job(self, *, ended: str | None = None, result: str = "") -> None:
        self._records.job_file(
            JobFile(
                run_id=self._run_id,
                created=self._created,
                command=self._command,
                nodes=self._nodes,
                world_size=self._world_size,
                ended=ended,
                result=result,
            )
        )


def printable(text: str) -> str:
    """``text`` with the bytes that are no UTF-8 written out: a record is UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
