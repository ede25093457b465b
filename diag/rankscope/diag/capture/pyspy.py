"""Run py-spy on one process: with a deadline, under the process's lock, and leaving no trace.

The shell around ``plan``: reads ``/proc``, takes the lock, starts the tool, ends it when its time is up and
looks after the target: a tool killed in the middle of an attach can leave its target stopped, and then
(only then) it gets SIGCONT. Nothing here raises for a target that cannot be read: the answer is a reason.
It must not know what a rank is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from dataclasses import dataclass
from typing import Final

from rankscope.diag import proc
from rankscope.diag.capture.locks import process_lock
from rankscope.diag.capture.plan import (
    ENDED_MEANWHILE,
    NO_TOOL,
    OUT_OF_TIME,
    REPLACED,
    ZOMBIE,
    Plan,
    explain_failure,
    nonblocking,
    not_python,
    plan_capture,
)
from rankscope.diag.capture.tool import ToolRun, find_tool, run_tool
from rankscope.diag.model import ProcessFacts, ThreadStack
from rankscope.diag.read.pyspy import parse_pyspy_json

_LOCK_SECONDS: Final = 0.5  # a blocking dump takes 15 ms, 0.5 s with native frames
_SETTLE_SECONDS: Final = 0.005
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tool:
    """How the tool is to be run.

    Attributes:
        path: of py-spy, ``None`` when there is none.
        timeout: seconds one run may take.
        native: whether to ask for C++ frames (stops the process for 0.02-0.4 s).
        local_variables: whether to ask for local variables.
        blocking: whether the process may be stopped while it is read.
    """

    path: str | None
    timeout: float = 3.0
    native: bool = False
    local_variables: bool = False
    blocking: bool = True


@dataclass(frozen=True, slots=True)
class Captured:
    """What was read of one process.

    Attributes:
        facts: ``/proc`` right before the tool ran, ``None`` when the process was gone.
        threads: its threads, empty without stacks.
        reason: why there are no stacks, ``None`` with stacks.
    """

    facts: ProcessFacts | None
    threads: tuple[ThreadStack, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Outcome of one run; ``again`` says that a run which does not stop the process may do better."""

    threads: tuple[ThreadStack, ...] = ()
    reason: str | None = None
    again: bool = False


def find_pyspy() -> str | None:
    """Path of py-spy: beside this Python, else on ``PATH``."""
    return find_tool("py-spy")


def capture_process(
    pid: int, *, tool: Tool, deadline: float, start_ticks: int = 0, only_python: bool = False
) -> Captured:
    """Read the facts and the stacks of one process.

    Args:
        pid: the process.
        tool: how to run py-spy.
        deadline: ``time.monotonic()`` at which the whole capture ends.
        start_ticks: the start time the process must have, 0 for any.
        only_python: look at the executable first, and spare a program that is not Python the tool.
    """
    lock_deadline = min(time.monotonic() + _LOCK_SECONDS, deadline)
    with process_lock(pid, deadline=lock_deadline) as exclusive:
        facts = proc.read_facts(pid, now=time.monotonic())
        if facts is not None and start_ticks not in {0, facts.start_ticks}:
            return Captured(None, reason=REPLACED)
        if time.monotonic() >= deadline:
            return Captured(facts, reason=OUT_OF_TIME)
        access = proc.read_access(pid)
        plan = plan_capture(
            facts,
            traced_by=access.traced_by,
            same_user=access.same_user,
            may_trace=access.may_trace,
            is_python=proc.is_python(pid) if only_python else None,
            blocked_threads=access.blocked_threads,
            exclusive=exclusive and tool.blocking,
            native=tool.native,
            local_variables=tool.local_variables,
        )
        if facts is None or plan.tool is None:
            return Captured(facts, reason=plan.reason)
        return _run_plan(plan, facts, access, tool=tool, deadline=deadline)


def _run_plan(
    plan: Plan, facts: ProcessFacts, access: proc.Access, *, tool: Tool, deadline: float
) -> Captured:
    if tool.path is None:
        return Captured(facts, reason=NO_TOOL)
    attempt = _attempt(plan, facts, access, tool=tool, deadline=deadline)
    if attempt.again and time.monotonic() < deadline:
        # Somebody began to trace or stopped it in between, it went to sleep in the kernel, or a read
        # that did not stop it met a moving stack.
        attempt = _attempt(nonblocking(plan), facts, access, tool=tool, deadline=deadline)
    return Captured(facts, attempt.threads, attempt.reason)


def _attempt(
    plan: Plan, facts: ProcessFacts, access: proc.Access, *, tool: Tool, deadline: float
) -> _Attempt:
    limit = min(time.monotonic() + tool.timeout, deadline)
    run = run_tool([str(tool.path), *plan.flags, "--pid", str(facts.pid)], deadline=limit)
    if run.code == 0:
        return _parse(run, facts)
    if run.code is not None:
        return _explain(run, facts)
    if plan.blocking and not access.stopped:
        _release(facts)
    if limit >= deadline:
        return _Attempt(reason=OUT_OF_TIME)
    return _Attempt(reason=f"py-spy did not answer in {tool.timeout:g} s", again=True)


def _explain(run: ToolRun, facts: ProcessFacts) -> _Attempt:
    access = proc.read_access(facts.pid)
    reason = explain_failure(
        run.stderr,
        before=facts,
        after=proc.read_facts(facts.pid, now=time.monotonic()),
        same_user=access.same_user,
        may_trace=access.may_trace,
        traced_by=access.traced_by,
    )
    final = {ENDED_MEANWHILE, REPLACED, ZOMBIE, not_python(facts.comm)}
    return _Attempt(reason=reason, again=reason not in final)


def _parse(run: ToolRun, facts: ProcessFacts) -> _Attempt:
    if proc.start_ticks(facts.pid) not in {facts.start_ticks, None}:
        return _Attempt(reason=REPLACED)
    # A process that ended right after it was read keeps its stacks: they are its last evidence.
    read = parse_pyspy_json(run.stdout, pid=facts.pid)
    if read.threads:
        return _Attempt(read.threads)
    return _Attempt(reason="; ".join(read.problems) or "py-spy saw no Python thread", again=True)


def _release(facts: ProcessFacts) -> None:
    """Revive a target that the killed tool left stopped, or about to stop when it wakes."""
    for pause in (0.0, _SETTLE_SECONDS):
        time.sleep(pause)
        if proc.start_ticks(facts.pid) == facts.start_ticks and proc.read_access(facts.pid).stopped:
            _log.warning("process %d was left stopped by py-spy: SIGCONT sent", facts.pid)
            with contextlib.suppress(OSError):
                os.kill(facts.pid, signal.SIGCONT)
            return
