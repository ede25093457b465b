"""What the health endpoints answer: pure functions of the page, the time and the limit.

They know no clock, no HTTP library and no process. Bodies follow "Health Check Response Format for HTTP
APIs" (draft-inadarei-api-health-check-06). They are open to anybody: no stacks and no paths in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rankscope.agent.health.model import CheckStatus, HealthStatus, PageView, WorkerHealth
from rankscope.diag.ranks import fold_ranks

OK: Final = 200
UNAVAILABLE: Final = 503
TIMEOUT: Final = 60.0
"""Seconds without a turn of either loop after which the agent counts as dead (torch: 60)."""
WATCH_LATE: Final = 10.0
"""Seconds without a turn of the watch loop, one a second, after which it is said that nobody watches."""
_NS: Final = 1_000_000_000
_TEXT_LIMIT: Final = 200
_PATH: Final = re.compile(r"(?<![\w.<])~?/[^\s'\",;:()]+")
_WORST_FIRST: Final[tuple[CheckStatus, ...]] = ("fail", "warn", "pass")
_GONE_STATES: Final = frozenset({"exited"})

Body = dict[str, object]


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP status and JSON body."""

    code: int
    body: Body


def agent_gone(pid: int) -> Answer:
    """The answer of every endpoint once the agent's process has ended."""
    return Answer(UNAVAILABLE, {"status": "fail", "output": f"the agent (pid {pid}) has ended"})


def livez(view: PageView, now_ns: int, timeout: float) -> Answer:
    """Whether the agent lives. A hung worker does not fail it: its evidence would be destroyed."""
    reason = _why_dead(view, now_ns, timeout)
    return _plain(view, reason)


def readyz(view: PageView, now_ns: int, timeout: float) -> Answer:
    """Whether workers run and none is suspected."""
    return _plain(view, _why_dead(view, now_ns, timeout) or _why_not_ready(view))


def health(view: PageView, now_ns: int, timeout: float) -> Answer:
    """The whole picture: ``pass`` and ``warn`` are 200, ``fail`` is 503."""
    dead = _why_dead(view, now_ns, timeout)
    checks = dict(_checks(view, now_ns, dead))
    seen = {str(check["status"]) for check in checks.values()}
    status = next((status for status in _WORST_FIRST if status in seen), "pass")
    body: Body = {"status": status, "version": "1"}
    said = view.status
    if said is not None:
        body |= {"releaseId": said.version, "serviceId": said.job, "node": said.node, "pid": said.pid}
        body["restartCount"] = said.restart_count
    notes = [note for note in (dead, _suspicion(said)) if note]
    if notes:
        body["notes"] = notes
    # The format wants a list a check, for components that have several instances.
    body |= {"phase": view.phase.name, "checks": {name: [check] for name, check in checks.items()}}
    return Answer(UNAVAILABLE if status == "fail" else OK, body)


def is_alive(view: PageView, now_ns: int, timeout: float) -> bool:
    """What ``livez`` says, as a word."""
    return _why_dead(view, now_ns, timeout) is None


def _plain(view: PageView, reason: str | None) -> Answer:
    body: Body = {"status": "fail" if reason else "pass", "phase": view.phase.name}
    if reason:
        body["output"] = reason
    return Answer(UNAVAILABLE if reason else OK, body)


def _why_dead(view: PageView, now_ns: int, timeout: float) -> str | None:
    """Why the agent does not live, ``None`` when it does."""
    stamps = view.stamps
    turned = [stamp for stamp in (stamps.main_ns, stamps.watch_ns) if stamp]
    age = (now_ns - max(turned, default=stamps.created_ns)) / _NS
    if age <= timeout:
        return None
    deadline = view.phase.deadline
    if deadline is not None and now_ns / _NS <= deadline + timeout:
        return None
    reason = f"neither the monitor loop nor the watch loop has turned for {age:.0f} s (limit {timeout:g} s)"
    if deadline is None:
        return f"{reason}; phase {view.phase.name}"
    return f"{reason}, and {view.phase.name} is {now_ns / _NS - deadline:.0f} s past its deadline"


def _why_not_ready(view: PageView) -> str | None:
    if view.phase.name != "running":
        return f"workers do not run: phase {view.phase.name}"
    if view.status is None:
        return "the agent has not reported yet"
    suspicion = _suspicion(view.status)
    if suspicion:
        return suspicion
    for state in ("hung", "suspected"):
        ranks = [worker.rank for worker in view.status.workers if worker.state == state]
        if ranks:
            return f"ranks {fold_ranks(ranks)} are {state}"
    workers = view.status.workers
    if workers and all(worker.state in _GONE_STATES for worker in workers):
        return "all workers have exited"
    return None


def _suspicion(status: HealthStatus | None) -> str | None:
    if status is None or status.suspected is None:
        return None
    ranks = fold_ranks(status.suspected.ranks)
    return f"suspected{f' ranks {ranks}' if ranks else ''}: {_public(status.suspected.reason)}"


def _checks(view: PageView, now_ns: int, dead: str | None) -> Iterator[tuple[str, Body]]:
    agent: Body = {"componentType": "component", "status": "fail" if dead else "pass"}
    agent["observedValue"] = view.phase.name
    if dead:
        agent["output"] = dead
    elif view.phase.name == "restarting":
        agent |= {"status": "warn", "output": "the workers are being restarted"}
    yield "agent", agent
    if view.stamps.watch_ns:
        yield "watchdog:loop", _watch_check(view, now_ns)
    if view.status is None:
        return
    for worker in view.status.workers:
        yield f"worker:{worker.rank}", _worker_check(worker, view, now_ns)
    if view.status.suspected is not None:
        yield "watchdog:suspicion", {"status": "warn", "output": _suspicion(view.status)}
    for name, check in view.status.checks.items():
        entry: Body = {"componentType": "system", "status": check.status}
        if check.output:
            entry["output"] = _public(check.output)
        yield _public(name), entry


def _watch_check(view: PageView, now_ns: int) -> Body:
    age = max(0, now_ns - view.stamps.watch_ns) / _NS
    body: Body = {"componentType": "component", "status": "warn" if age > WATCH_LATE else "pass"}
    body |= {"observedValue": round(age, 3), "observedUnit": "s"}
    if age > WATCH_LATE:
        body["output"] = f"the watch loop has not turned for {age:.0f} s: hangs are not noticed meanwhile"
    return body


def _worker_check(worker: WorkerHealth, view: PageView, now_ns: int) -> Body:
    body: Body = {"componentId": str(worker.rank), "componentType": "component"}
    body |= {"status": _worker_status(worker, view), "state": worker.state}
    body |= {"localRank": worker.local_rank, "pid": worker.pid}
    if worker.step is not None:
        body["step"] = worker.step
    if worker.seconds_since_progress is not None:
        # It goes on growing while the agent is too busy to publish.
        age = worker.seconds_since_progress + max(0, now_ns - view.published_ns) / _NS
        body |= {"observedValue": round(age, 3), "observedUnit": "s"}
    if body["status"] != "pass":
        body["output"] = f"{worker.state}, phase {view.phase.name}"
    return body


def _worker_status(worker: WorkerHealth, view: PageView) -> CheckStatus:
    if worker.state == "hung":
        return "fail"
    if worker.state in _GONE_STATES:
        return "warn" if view.phase.name == "running" else "pass"
    return "pass" if worker.state in ("running", "waiting") else "warn"


def _public(text: str) -> str:
    """One short line without absolute paths: the open endpoints show no more."""
    first = text.strip().split("\n", 1)[0]
    return _PATH.sub("<path>", first)[:_TEXT_LIMIT]
