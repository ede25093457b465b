"""Workers that an agent has left behind which was killed: looked at and ended before their successors start.

They hold the devices and write the checkpoints of those that are about to start. Which they are is told by
the ``agent.json`` of the agent before this one on the same node under the same run id: a process counts when
pid and start time are those of a worker there, it has the run id in its environment, and that agent is gone.
An agent may have been killed before it could write down whom it started: these are known by that agent's
process id, which they too have in their environment, and by their command, which what a worker has started
for itself and left behind has not.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from rankscope.agent.ending.last_look import time_to_look
from rankscope.agent.ending.order import Ending
from rankscope.agent.ending.signals import StopSignals
from rankscope.agent.ending.stopped import left_behind
from rankscope.agent.evidence.taker import EvidenceTaker, Incident
from rankscope.agent.observing.observer import Observer
from rankscope.agent.policy import EXIT_RUN_AGAIN
from rankscope.agent.records.folder import Records
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag import proc
from rankscope.diag.errors import RankscopeError, StoreError
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.store.files import read_json
from rankscope.diag.store.incidents import new_incident_id
from rankscope.diag.store.job import AgentFile
from rankscope.watchdog import environment

TERM_TIMEOUT: Final = 10.0
"""Seconds between SIGTERM and SIGKILL: nobody has waited for what they do since their agent was killed."""
_WHY: Final = "the agent that had started them was killed"
_OVER: Final = "ended"
_RUN_ID: Final = "TORCHELASTIC_RUN_ID"
_RANKS: Final = ("RANK", "LOCAL_RANK")


class LeftBehindError(RankscopeError):
    """Workers of a killed agent cannot be ended: new ones would meet the same device."""

    exit_code = EXIT_RUN_AGAIN


def read_predecessor(records: Records) -> AgentFile | None:
    """What the agent before this one has written of itself, ``None`` when there was none, or it has ended."""
    try:
        before = read_json(records.node_path / "agent.json", AgentFile)
    except (StoreError, OSError):
        return None
    is_over = before.phase == _OVER or before.beside
    return None if is_over or proc.start_ticks(before.pid) == before.start_ticks else before


def left_workers(before: AgentFile, run_id: str, command: Sequence[str]) -> tuple[WorkerRef, ...]:
    """The workers of an agent that is gone which still run.

    Args:
        before: that agent.
        run_id: of its job.
        command: what is trained, with its arguments.
    """
    written = tuple(
        WorkerRef(one.rank, one.local_rank, one.pid, one.start_ticks)
        for one in before.workers
        if one.start_ticks
        and proc.start_ticks(one.pid) == one.start_ticks
        and (proc.environ(one.pid) or {}).get(_RUN_ID) == run_id
    )
    known = {one.pid for one in written}
    return (*written, *(one for one in _not_written(before.pid, run_id, command) if one.pid not in known))


def _not_written(agent: int, run_id: str, command: Sequence[str]) -> list[WorkerRef]:
    """What else runs that an agent has started itself: not what its workers have, which is theirs to end."""
    trained = [one for one in command if one]
    if not trained:
        return []
    table = proc.process_table()
    marked: dict[int, dict[str, str]] = {}
    for pid in table:
        environ = proc.environ(pid) or {}
        if environ.get(_RUN_ID) == run_id and environ.get(environment.AGENT_PID) == str(agent):
            marked[pid] = environ
    return [
        WorkerRef(int(environ["RANK"]), int(environ["LOCAL_RANK"]), pid, table[pid].start_ticks)
        for pid, environ in marked.items()
        if table[pid].parent not in marked
        and all(_is_number(environ.get(name)) for name in _RANKS)
        and list(proc.command_line(pid)[-len(trained) :]) == trained
    ]


def _is_number(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdecimal()


def end_left_behind(
    before: AgentFile,
    run_id: str,
    command: Sequence[str],
    *,
    evidence: EvidenceTaker,
    ledger: Ledger,
    signals: StopSignals,
    budget: float,
    say: Callable[[str], None],
) -> None:
    """End the workers that a killed agent has left; what they did is stored first (main thread).

    Args:
        before: that agent.
        run_id: of both.
        command: what is trained, with its arguments.
        evidence: looks at them.
        ledger: records what is done.
        signals: those that end the agent.
        budget: seconds that the look may take, 0 for none.
        say: shows a line.

    Raises:
        LeftBehindError: some could not be ended.
        SignalException: a signal came meanwhile.
    """
    workers = left_workers(before, run_id, command)
    if not workers:
        return
    who = f"ranks {fold_ranks(worker.rank for worker in workers)} (processes {_pids(workers)})"
    say(f"{who} still run, and {_WHY}: they are ended before new ones start")
    launch = Launch(workers, before.restart_count, before.world_size or len(workers))
    groups = all(_leads_a_group(worker.pid) for worker in workers)
    ending = Ending(workers, as_groups=groups, signals=signals, stopping=lambda: None)
    take = partial(_look, launch, evidence, ledger) if budget > 0 else None
    with signals.hold():
        ending.stop(take, budget=budget, death_sig=signal.SIGTERM, timeout=TERM_TIMEOUT)
    if ending.left:
        raise LeftBehindError(
            f"processes {_pids(ending.left)} of an agent that was killed could not be ended, not even by "
            "SIGKILL; no workers are started beside them on this node, run the job again"
        )


def _look(launch: Launch, evidence: EvidenceTaker, ledger: Ledger, deadline: float) -> None:
    # Their page went with the agent's run-time folder.
    observer = Observer(launch, None, timer_calls=dict, log_sizes=dict)
    try:
        seen = evidence.snapshot(launch, observer, timeout=time_to_look(deadline), exits={})
    finally:
        observer.close()
    found = evidence.judge(
        Incident(new_incident_id(time.time()), seen, kept=True), called=partial(left_behind, why=_WHY)
    )
    ledger.stopping(_WHY, found.incident, found)


def _leads_a_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return True


def _pids(workers: tuple[WorkerRef, ...]) -> str:
    return ", ".join(str(worker.pid) for worker in workers)
