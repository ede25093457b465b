"""What the agent writes down: who runs where (``job.json``, ``agent.json``) and what happened (events).

It turns the agent's state into records; it neither watches nor decides. Writing never raises (``records``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

import msgspec

from rankscope.agent.records import Records
from rankscope.agent.workers import Launch
from rankscope.diag import proc
from rankscope.diag.classify import Slowdown
from rankscope.diag.model import Decision, Diagnosis, ExitFacts, RestartRecord
from rankscope.diag.store.events import iso_time
from rankscope.diag.store.job import AgentFile, JobFile, WorkerFile
from rankscope.watchdog.observations import Confirmed, Suspected


class Ledger:
    """The records of one agent's life.

    Args:
        records: where they go.
        run_id: the job's run id.
        command: what is trained.
        nodes: ``MIN:MAX`` as asked for.
    """

    def __init__(self, records: Records, *, run_id: str, command: Sequence[str], nodes: str) -> None:
        self._records = records
        self._run_id = printable(run_id)
        self._command = tuple(printable(word) for word in command)
        self._nodes = nodes
        self._created = iso_time(time.time())
        self._world_size = 0
        self._restart: tuple[float, RestartRecord] | None = None
        self._messages_left_out = 0

    def job_started(self) -> None:
        """The agent is there; nothing runs yet."""
        self._write_job()
        self._records.event("job.started", {"command": list(self._command), "nodes": self._nodes})

    def job_ended(self, result: str, exit_code: int | None) -> None:
        """The agent ends; the exit code of a job that others launched is not known."""
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
        self._records.event("cycle.started", data)
        self._write_job()
        if self._restart is not None:
            began, record = self._restart
            self._restart = None
            duration = round(time.monotonic() - began, 3)
            done = msgspec.structs.replace(record, result="running", duration=duration)
            fields: dict[str, object] = msgspec.to_builtins(done)
            self._records.event("restart", fields)

    def restart_begins(
        self, decision: Decision | None, *, restarts: int, verdict: str = "", summary: str = ""
    ) -> None:
        """A restart is under way; its record is written when the workers run again.

        Args:
            decision: what led to it, ``None`` for a change of the membership.
            restarts: how many there have been, this one included.
            verdict: the last diagnosis' verdict.
            summary: its sentence.
        """
        now = iso_time(time.time())
        why = decision or Decision(action="restart", reason="the membership changed", time=now)
        record = RestartRecord(
            restarts=restarts,
            restart_time=why.time,
            node_name=self._records.node,
            instance_name=", ".join(f"rank {rank}" for rank in why.culprits),
            error_code=verdict,
            error_message=summary,
            error_source=f"incident {why.incident}" if why.incident else "",
            reason=why.reason,
            incident=why.incident,
        )
        self._restart = (time.monotonic(), record)

    def suspected(self, incident: str, suspected: Suspected) -> None:
        """A suspicion opened an incident, or goes over one again: whose limit was passed, in figures."""
        data: dict[str, object] = {
            "reason": suspected.reason,
            "clock": suspected.clock,
            "seconds": round(suspected.seconds, 3),
            "limit": round(suspected.limit, 3),
            "ranks": list(suspected.suspects),
            "waiting": list(suspected.waiting),
            "behaviour": suspected.sink_class,
        }
        self._records.event("suspected", data, subject=incident)

    def stopped(self, seconds: float, *, continued: bool) -> None:
        """All workers were stopped by a signal, or continued: information, not a suspicion."""
        what = "continued" if continued else "stopped by a signal"
        data: dict[str, object] = {"content": f"all workers {what}", "seconds": round(seconds, 3)}
        self._records.event("message", data)

    def cleared(self, incident: str | None, reason: str, seconds: float) -> None:
        """A suspicion was dropped after ``seconds`` without progress."""
        data: dict[str, object] = {"reason": reason, "seconds": round(seconds, 3)}
        self._records.event("cleared", data, subject=incident)

    def confirmed(self, diagnosis: Diagnosis, confirmed: Confirmed, seconds: float) -> None:
        """A diagnosis was published after ``seconds`` without progress."""
        data: dict[str, object] = {
            "verdict": diagnosis.verdict,
            "culprits": list(diagnosis.culprits),
            "severity": diagnosis.severity,
            "confidence": diagnosis.confidence,
            "summary": diagnosis.summary,
            "reason": confirmed.reason,
            "seconds": round(seconds, 3),
        }
        self._records.event("incident.confirmed", data, subject=diagnosis.incident)

    def recovered(self, incident: str | None, seconds: float) -> None:
        """A published hang went away by itself after ``seconds``."""
        self._records.event("incident.recovered", {"seconds": round(seconds, 3)}, subject=incident)

    def slow(self, diagnosis: Diagnosis, slowdown: Slowdown | None, seconds: float) -> None:
        """Something is slow; or steps take longer, and the verdict is that nobody holds the job up.

        Args:
            diagnosis: what was found.
            slowdown: how much longer steps take than usual, ``None`` when they do not.
            seconds: since steps take longer, 0 when they do not.
        """
        data: dict[str, object] = {
            "verdict": diagnosis.verdict,
            "kind": diagnosis.kind,
            "culprits": list(diagnosis.culprits),
            "severity": diagnosis.severity,
            "confidence": diagnosis.confidence,
            "summary": diagnosis.summary,
            "seconds": round(seconds, 3),
        }
        if slowdown is not None:
            data |= {
                "since_step": slowdown.since_step,
                "step_seconds": round(slowdown.now, 6),
                "usual_step_seconds": round(slowdown.before, 6),
            }
        subject = diagnosis.incident if diagnosis.verdict not in ("Healthy", "Unknown") else None
        self._records.event("slow", data, subject=subject)

    def pace_recovered(self, incident: str | None) -> None:
        """Steps take as long as before."""
        self._records.event(
            "incident.recovered", {"reason": "steps take as long as before"}, subject=incident
        )

    def workers_failed(self, incident: str | None, exits: Mapping[int, ExitFacts]) -> None:
        """Workers ended by themselves."""
        for rank, facts in sorted(exits.items()):
            data: dict[str, object] = {"rank": rank, "exit_code": facts.code, "message": facts.message}
            self._records.event("worker.failed", data, subject=incident)

    def stopping(
        self, why: str, incident: str | None, diagnosis: Diagnosis | None = None, *, silent: float = 0.0
    ) -> None:
        """Workers are about to be stopped for no fault of their own.

        Args:
            why: what stops them.
            incident: where the evidence is.
            diagnosis: how they were doing, ``None`` when the incident was there before.
            silent: seconds without progress.
        """
        data: dict[str, object] = {"reason": why}
        if diagnosis is not None:
            data |= {"verdict": diagnosis.verdict, "summary": diagnosis.summary, "seconds": round(silent, 3)}
        self._records.event("stopping", data, subject=incident)

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

    def decided(self, decision: Decision) -> None:
        """A decision, stored before it is carried out."""
        if decision.incident is not None:
            self._records.decision(decision.incident, decision)
        data: dict[str, object] = {"action": decision.action, "reason": decision.reason}
        self._records.event("decision", data, subject=decision.incident)

    def agent_is(
        self, phase: str, launch: Launch | None, *, address: tuple[str, int] | None, page: str
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
