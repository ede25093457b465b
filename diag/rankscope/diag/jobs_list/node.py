"""One node of a job, from its folder: the last sign of life, the last words, whether its agent lives.

Of an event log only the lines that a row needs are decoded: a log may have thousands.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from rankscope.diag.errors import StoreError
from rankscope.diag.history.here import Here, is_here, lives
from rankscope.diag.history.runs import AgentLife, agent_lives, jobs_of
from rankscope.diag.history.state import NodeState, with_last_words
from rankscope.diag.store.events import Event, parse_log, unix_time
from rankscope.diag.store.files import read_json, read_regular
from rankscope.diag.store.job import AgentFile

_WANTED: Final = (b'"rankscope.job.', b'"rankscope.restart')
_LAST_LINES: Final = 2
"""The last may be torn; then the one before it was the last sign of life."""
_MOST_LOGS: Final = 256
"""Log files whose times are looked at."""


def read_node(path: Path, here: Here) -> tuple[NodeState, str]:
    """What a node's folder says, and a note when it says nothing."""
    node = unquote(path.name)
    try:
        data = read_regular(path / "events.jsonl")
    except OSError as error:
        return NodeState(node), f"events of node {node}: {error.strerror or error}"
    events = parse_log(wanted_lines(data)).events
    if not events:
        return NodeState(node), f"node {node} has no readable event"
    return _from_events(node, path, events, here), ""


def wanted_lines(data: bytes) -> bytes:
    """The lines of an event log that tell of starts, restarts and ends, and its last ones."""
    lines = data.split(b"\n")
    last = [line for line in lines[-_LAST_LINES - 1 :] if line]
    kept = [line for line in lines[: -_LAST_LINES - 1] if any(word in line for word in _WANTED)]
    return b"\n".join((*kept, *last))


def _from_events(node: str, path: Path, events: Sequence[Event], here: Here) -> NodeState:
    job = jobs_of(agent_lives(events))[-1]
    last = job[-1]
    of_this_host = is_here(node, events[-1], here)
    heard = unix_time(events[-1].time)
    agent = _agent(path)
    is_alive = agent is not None and lives(agent)
    if last.ended is None and not is_alive and not of_this_host:
        heard = max(filter(None, (heard, _newest(path))), default=None)
    state = NodeState(
        node=node,
        heard=heard,
        lives=is_alive,
        here=of_this_host,
        began=job[0].events[0].time,
        restarts=_restarts(job),
        is_watch=all(event.name != "job.started" for event in events) and not (path / "agent.json").exists(),
    )
    return with_last_words(state, last)


def _restarts(job: Sequence[AgentLife]) -> int:
    counts = [
        event.data.get("restarts")
        for life in job
        for event in life.events
        if event.name in ("restart", "restart.begun") and event.data.get("is_counted", True)
    ]
    return max((count for count in counts if isinstance(count, int)), default=0)


def _agent(path: Path) -> AgentFile | None:
    try:
        return read_json(path / "agent.json", AgentFile)
    except StoreError:
        return None


def _newest(path: Path) -> float | None:
    """When anything was written for this node last: its workers' logs tell more often than its events."""
    times: list[float] = []
    for attempt in sorted((path / "logs").glob("attempt_*"))[-1:]:
        for log in list(attempt.glob("*/*.log"))[:_MOST_LOGS]:
            with contextlib.suppress(OSError):
                times.append(os.lstat(log).st_mtime)
    return max(times, default=None)
