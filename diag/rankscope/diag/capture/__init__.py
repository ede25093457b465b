"""Take a snapshot of the ranks of this host: facts, stacks, record and children of each, in parallel.

The ranks come first, as many at a time as there are cores (a tool that waits for a core holds its target
stopped); their child processes get what time is left. Every rank that was asked for is in the answer, in the
order asked: one that could not be read says why, and no stack is ever invented. This room does not know how
ranks are found nor what their stacks mean.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import msgspec

from rankscope.diag import proc
from rankscope.diag.capture.answers import Folders
from rankscope.diag.capture.connections import ConnectionTables
from rankscope.diag.capture.guard import Guard
from rankscope.diag.capture.locks import remove_stale
from rankscope.diag.capture.plan import BACKENDS, GONE, Backend
from rankscope.diag.capture.process import Captured, Toolbox, capture_process, find_tools
from rankscope.diag.capture.record import KEPT_ENTRIES, Recorded, read_recorded
from rankscope.diag.capture.slow_tools import SlowTools
from rankscope.diag.model import ChildSnapshot, ExitFacts, Progress, RankSnapshot

CAPTURE_TOOLS: Final = frozenset({"py-spy", "pystack"})
"""The kernel's names of the tools that hold a process while they read it."""
MAX_CHILDREN: Final = 16
NOT_SAMPLED: Final = f"not sampled: more than {MAX_CHILDREN} child processes"
LONGEST_HOLD: Final = 2.0
"""Seconds that a rank may stand still for a look that nobody asked for: C++ frames take 0.02-0.4 s, and on a
busy machine many times that (measured: 6.8 s)."""
_MAX_LISTED: Final = 64
_MAX_PARALLEL: Final = 16
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")

__all__ = ["CAPTURE_TOOLS", "LONGEST_HOLD", "MAX_CHILDREN", "Target", "capture_ranks"]


@dataclass(frozen=True, slots=True)
class Target:
    """A rank to look at.

    Attributes:
        rank: global rank.
        pid: its process, 0 when it is known to have none any more.
        start_ticks: start time of that process, 0 when unknown: any process with that pid will do.
        node: host it runs on.
        progress: what its page said, passed on.
        exit: how it ended, passed on.
        answers: private folder through which it answers, ``""`` when only its environment may tell.
    """

    rank: int
    pid: int
    start_ticks: int = 0
    node: str = ""
    progress: Progress | None = None
    exit: ExitFacts | None = None
    answers: str = ""


def capture_ranks(
    targets: Sequence[Target],
    *,
    timeout: float,
    rank_timeout: float = 3.0,
    children: bool = True,
    native: bool = False,
    local_variables: bool = False,
    blocking: bool = True,
    longest_hold: float = math.inf,
    record: bool = True,
    kept_entries: int = KEPT_ENTRIES,
    pyspy: str | None = None,
    pystack: str | None = None,
    backends: Sequence[Backend] = BACKENDS,
    slow: SlowTools | None = None,
) -> tuple[RankSnapshot, ...]:
    """Capture ranks of this host. Never raises for a rank that cannot be read.

    Args:
        targets: the ranks.
        timeout: seconds for everything; what is not done by then says so.
        rank_timeout: seconds that one run of a tool on one process may take; at most half of what is left
            when other tools could still be tried.
        children: whether to sample the ranks' child processes (loader workers, checkpoint writers) too,
            ``MAX_CHILDREN`` a rank.
        native: ask for C++ frames (each rank is stopped for 0.02-0.4 s instead of 1-12 ms).
        local_variables: ask for local variables.
        blocking: whether a rank may be stopped while it is read; a stack read without may be torn.
        longest_hold: seconds after which a tool that stops a rank is ended, whatever else it may take.
        record: ask torch's server in each rank for its flight record and wait counters (1-30 ms a rank).
        kept_entries: newest operations of the record that are kept.
        pyspy: path of py-spy; found beside this Python or on ``PATH`` by default.
        pystack: path of pystack, found likewise.
        backends: the ways to stacks that may be used, tried in the order of ``BACKENDS``.
        slow: remembers from look to look which tools did not answer; those are tried last.

    Returns:
        One snapshot a target, in their order. Ends at the latest some 2 s after ``timeout``, when a killed
        tool does not end.
    """
    deadline = time.monotonic() + timeout
    found_pyspy, found_pystack = find_tools(pyspy=pyspy, pystack=pystack)
    folders = Folders()
    with contextlib.closing(Guard()) as guard:
        tools = Toolbox(
            pyspy=found_pyspy,
            pystack=found_pystack,
            timeout=rank_timeout,
            native=native,
            local_variables=local_variables,
            blocking=blocking,
            longest_hold=longest_hold,
            backends=backends,
            guard=guard,
            slow=slow,
        )
        # Before and after all tools, not between two of them: a core would have nothing to do meanwhile.
        looks = list(_looks(targets, folders))
        seen = _in_parallel(
            lambda look: _capture_rank(
                look, tools=tools, deadline=deadline, kept_entries=kept_entries if record else None
            ),
            looks,
            guard,
        )
        others = frozenset(target.pid for target in targets) | {os.getpid()} if children else None
        tables = ConnectionTables()
        finished = [_finished(one, others, tables) for one in seen]
        if blocking:
            remove_stale()  # after the looks: nobody stands still for it
        return _with_children(finished, tools=tools, deadline=deadline)


def _in_parallel(
    task: Callable[[_Asked], _Answer], asked: Sequence[_Asked], guard: Guard | None
) -> list[_Answer]:
    """Answers in the order asked; the threads have ended when this returns, as each task has a deadline.

    When the user gives up meanwhile (Ctrl-C), the tools that run are ended.
    """
    if not asked:
        return []
    workers = min(len(asked), len(os.sched_getaffinity(0)), _MAX_PARALLEL)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="rankscope-capture")
    try:
        running = [pool.submit(task, one) for one in asked]
        wait(running)  # woken once: this thread would want the interpreter from those that start tools
        return [one.result() for one in running]
    except BaseException:  # Ctrl-C above all: whatever it was, it is raised again
        if guard is not None:
            guard.cancel()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Look:
    """A rank to look at, with what its environment says."""

    target: Target
    environ: Mapping[str, str] | None = None
    folders: tuple[str, ...] = ()


def _looks(targets: Iterable[Target], places: Folders) -> Iterator[_Look]:
    for target in targets:
        if target.pid > 0:
            environ = proc.environ(target.pid)
            yield _Look(target, environ, places.of(target.pid, target.answers, environ))
        else:
            yield _Look(target)


def _capture_rank(
    look: _Look, *, tools: Toolbox, deadline: float, kept_entries: int | None
) -> tuple[_Look, RankSnapshot]:
    """One rank; ``kept_entries`` is ``None`` when its record is not wanted."""
    captured, recorded, target = Captured(None, reason=GONE), Recorded(), look.target
    if target.pid > 0:
        captured = capture_process(
            target.pid, tools=tools, deadline=deadline, start_ticks=target.start_ticks, folders=look.folders
        )
        if kept_entries is not None and captured.facts is not None:
            recorded = read_recorded(
                captured.facts,
                rank=target.rank,
                folders=look.folders,
                environ=look.environ,
                deadline=deadline,
                kept_entries=kept_entries,
            )
    return look, RankSnapshot(
        rank=target.rank,
        node=target.node,
        pid=target.pid,
        start_ticks=target.start_ticks or (captured.facts.start_ticks if captured.facts else 0),
        time=time.time(),
        observed=bool(captured.threads),
        reason=captured.reason,
        source=captured.source,
        threads=captured.threads,
        facts=captured.facts,
        progress=target.progress,
        exit=target.exit,
        record=recorded.record,
        server_answers=recorded.server_answers,
        wait_counters=recorded.wait_counters,
    )


def _finished(
    seen: tuple[_Look, RankSnapshot], others: frozenset[int] | None, tables: ConnectionTables
) -> tuple[RankSnapshot, list[_Child]]:
    """The rank with its connections, and its children but ``others``; ``None``: children are not wanted."""
    look, snapshot = seen
    if snapshot.facts is None:
        return snapshot, []
    snapshot = msgspec.structs.replace(snapshot, connections=tables.of(snapshot.pid))
    return snapshot, _children_of(snapshot, look.folders, others) if others is not None else []


def _with_children(
    seen: Sequence[tuple[RankSnapshot, list[_Child]]], *, tools: Toolbox, deadline: float
) -> tuple[RankSnapshot, ...]:
    asked = [child for _, found in seen for child in found]
    task = partial(_capture_child, tools=tools, deadline=deadline)
    done = iter(_in_parallel(task, asked, tools.guard))
    return tuple(
        msgspec.structs.replace(snapshot, children=tuple(next(done) for _ in found)) if found else snapshot
        for snapshot, found in seen
    )


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    start_ticks: int
    rank_pid: int
    answers: tuple[str, ...]
    sampled: bool


def _children_of(snapshot: RankSnapshot, folders: tuple[str, ...], others: frozenset[int]) -> list[_Child]:
    if proc.start_ticks(snapshot.pid) != snapshot.start_ticks:
        return []
    found = proc.descendants(snapshot.pid, without=others)[:_MAX_LISTED]
    return [
        _Child(pid, started, snapshot.pid, folders, sampled=place < MAX_CHILDREN)
        for place, pid in enumerate(found)
        if (started := proc.start_ticks(pid)) is not None
    ]


def _capture_child(child: _Child, *, tools: Toolbox, deadline: float) -> ChildSnapshot:
    if not child.sampled:
        facts = proc.read_facts(child.pid, now=time.monotonic())
        return ChildSnapshot(child.pid, facts, reason=NOT_SAMPLED)
    captured = capture_process(
        child.pid,
        tools=tools,
        deadline=deadline,
        start_ticks=child.start_ticks,
        only_python=True,
        folders=child.answers,
        forked_from=child.rank_pid,
    )
    return ChildSnapshot(child.pid, captured.facts, captured.threads, captured.reason)
