"""What is recorded and said when workers are stopped, when they cannot be, and when a node leaves.

It must not stop anybody, nor decide anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rankscope.agent.ending.looks import WorkerLooks
from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.telling.bulletin import Bulletin
from rankscope.agent.watching.watch import Watch
from rankscope.agent.workers.model import WorkerRef
from rankscope.diag import proc
from rankscope.diag.model import Decision, Diagnosis, ExitFacts


class Parting:
    """Tells of the end of workers.

    Args:
        records: where incidents are stored.
        ledger: where events are.
        bulletin: keeps the last diagnosis.
        looks: takes the last look.
        watch: knows of an open incident.
        say: shows lines.
    """

    def __init__(
        self,
        *,
        records: Records,
        ledger: Ledger,
        bulletin: Bulletin,
        looks: WorkerLooks,
        watch: Watch,
        say: Callable[[str], None],
    ) -> None:
        self._records = records
        self._ledger = ledger
        self._bulletin = bulletin
        self._looks = looks
        self._watch = watch
        self._say = say

    def last_look(
        self,
        why: str,
        deadline: float,
        *,
        exits: Callable[[], Mapping[int, ExitFacts]],
        enough: Callable[[], None],
    ) -> None:
        """Look at workers that are stopped for no fault of their own, store and say how they were doing.

        Args:
            why: what stops them.
            deadline: when it must be done, monotonic seconds.
            exits: tells which ranks have ended, and how.
            enough: called when the workers are not needed any more.
        """
        if not self._looks.has_workers:
            return
        found = self._looks.last(why, deadline, exits=exits, enough=enough)
        if found is None:
            self._ledger.stopping(why, self._watch.stored_incident or None)
            return
        self._ledger.stopping(why, found.diagnosis.incident, found.diagnosis, silent=found.silent)
        self.found(found.diagnosis)

    def found(self, diagnosis: Diagnosis) -> None:
        """Say what was found, and where it lies."""
        self._bulletin.last = diagnosis
        if self._records.is_stored(diagnosis.incident or ""):
            place = self._records.incident(diagnosis.incident or "").path
            self._say(f"{diagnosis.summary}\nstored in {place}")
        else:
            # The process ends next, and its memory with it: this is the only place left.
            why = self._records.why_not_stored(diagnosis.incident or "")
            self._say(f"{self._bulletin.in_full(diagnosis)}\nnot stored ({why})")

    def workers_left(self, left: Sequence[WorkerRef]) -> None:
        """Record and say that workers could not be ended."""
        for worker in left:
            facts = proc.read_facts(worker.pid, now=time.monotonic())
            state = facts.state if facts is not None else "?"
            where = (facts.wchan if facts is not None else "") or ""
            self._ledger.worker_left(worker.rank, worker.pid, state, where)
            asleep = f" (state {state}{f', in {where}' if where else ''})"
            self._say(
                f"rank {worker.rank}, process {worker.pid}{asleep}, did not end, not even by SIGKILL; "
                "it is left behind, and this node may have to be restarted"
            )

    def node_left(self, decision: Decision, *, trouble: str, stays: bool) -> None:
        """Record and say that this node has left the job.

        Args:
            decision: why.
            trouble: why the other nodes could not be told, ``""`` when they were.
            stays: whether this process waits for the job's end because it holds the rendezvous' store.
        """
        node = self._records.node
        data: dict[str, object] = {"node": node, "reason": decision.reason, "trouble": trouble}
        self._records.event("isolated", data, subject=decision.incident)
        self._ledger.cycle_over("isolated")
        parts = [f"node {node} has left the job"]
        if trouble:
            parts.append(f"the other nodes could not be told ({trouble}) and will notice by themselves")
        if stays:
            parts.append("this process stays until the job is over: it holds the store where the others meet")
        self._say("; ".join(parts))
