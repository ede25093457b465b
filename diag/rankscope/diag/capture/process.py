"""Look at one process: by the plan, each tool with a deadline, under the process's lock, leaving no trace.

The shell around ``plan``: reads ``/proc``, takes the lock, runs one tool after the other until one gives
stacks, and looks after the target when one was ended in the middle. Nothing here raises for a process that
cannot be read: the answer is a reason. It must not know what a rank is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from rankscope.diag import proc
from rankscope.diag.blocked_call import blocked_call
from rankscope.diag.capture.answers import Answering, ask_stacks, find_answering
from rankscope.diag.capture.guard import Guard
from rankscope.diag.capture.locks import process_lock
from rankscope.diag.capture.plan import (
    BACKENDS,
    DENIED,
    OUT_OF_TIME,
    REPLACED,
    Backend,
    Step,
    explain_failure,
    is_final,
    lesser_reason,
    plan_capture,
    steps_after,
)
from rankscope.diag.capture.pyspy import find_pyspy, pyspy_command, read_pyspy
from rankscope.diag.capture.pystack import find_pystack, pystack_command, read_pystack
from rankscope.diag.capture.release import release
from rankscope.diag.capture.slow_tools import SlowTools
from rankscope.diag.capture.tool import run_tool
from rankscope.diag.model import ProcessFacts, ThreadStack

_LOCK_SECONDS: Final = 0.5  # a blocking dump takes 15 ms, 0.5 s with native frames
_SHARE: Final = 0.5
"""Part of what is left of the time that one tool may take while others are still to come."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Which tools there are, and how they are to be run.

    Attributes:
        pyspy: path of py-spy, ``None`` without; pystack that of pystack.
        timeout: seconds one run of a tool may take.
        native: whether to ask for C++ frames (stops the process for 0.02-0.4 s).
        local_variables: whether to ask for local variables.
        blocking: whether the process may be stopped while it is read.
        longest_hold: seconds after which a tool that stops it is ended, counted from the tool's start.
        backends: those that may be used.
        guard: looks after tools should this process be killed, ``None`` for nobody.
        slow: remembers tools that do not answer, ``None`` for nobody.
    """

    pyspy: str | None = None
    pystack: str | None = None
    timeout: float = 3.0
    native: bool = False
    local_variables: bool = False
    blocking: bool = True
    longest_hold: float = math.inf
    backends: Sequence[Backend] = BACKENDS
    guard: Guard | None = None
    slow: SlowTools | None = None

    @property
    def present(self) -> frozenset[Backend]:
        """The tools that can be used."""
        missing = {name for name, path in (("py-spy", self.pyspy), ("pystack", self.pystack)) if not path}
        return frozenset(self.backends) - missing


def find_tools(*, pyspy: str | None = None, pystack: str | None = None) -> tuple[str | None, str | None]:
    """Paths of py-spy and pystack: those given, else those found."""
    return pyspy or find_pyspy(), pystack or find_pystack()


@dataclass(frozen=True, slots=True)
class Captured:
    """What was read of one process.

    Attributes:
        facts: ``/proc`` right before a tool ran, ``None`` when the process was gone.
        threads: its threads, empty without stacks.
        reason: why there are no stacks; with stacks, what they lack and why.
        source: the tool that gave the stacks, ``None`` without.
    """

    facts: ProcessFacts | None
    threads: tuple[ThreadStack, ...] = ()
    reason: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Of one step; ``cannot_stop``: the process did not let itself be stopped."""

    threads: tuple[ThreadStack, ...] = ()
    reason: str = ""
    cannot_stop: bool = False


def capture_process(
    pid: int,
    *,
    tools: Toolbox,
    deadline: float,
    start_ticks: int = 0,
    only_python: bool = False,
    folders: Sequence[str] = (),
    forked_from: int = 0,
) -> Captured:
    """Read the facts and the stacks of one process.

    Args:
        pid: the process.
        tools: what to look with.
        deadline: ``time.monotonic()`` at which the whole capture ends.
        start_ticks: the start time the process must have, 0 for any.
        only_python: look at the executable first, and spare a program that is not Python the tool.
        folders: where its answers may lie (``answers``).
        forked_from: the rank whose child it is, 0 for none.
    """
    lock_deadline = min(time.monotonic() + _LOCK_SECONDS, deadline)
    with process_lock(pid, deadline=lock_deadline) as exclusive:
        facts = _read_facts(pid)
        if facts is not None and start_ticks not in {0, facts.start_ticks}:
            return Captured(None, reason=REPLACED)
        if time.monotonic() >= deadline:
            return Captured(facts, reason=OUT_OF_TIME)
        access = proc.read_access(pid)
        answering = None
        if facts is not None and "faulthandler" in tools.backends:
            answering = find_answering(pid, facts.start_ticks, folders=folders, forked_from=forked_from)
        plan = plan_capture(
            facts,
            traced_by=access.traced_by,
            same_user=access.same_user,
            may_trace=access.may_trace,
            is_python=proc.is_python(pid) if only_python else None,
            blocked_threads=access.blocked_threads,
            exclusive=exclusive and tools.blocking,
            native=tools.native,
            local_variables=tools.local_variables,
            tools=tools.present,
            readiness=answering.readiness if answering is not None else None,
        )
        if facts is None or not plan.steps:
            return Captured(facts, reason=plan.reason)
        look = _Look(facts, access, answering, tools=tools, deadline=deadline)
        steps, why = tools.slow.last(plan.steps) if tools.slow is not None else (plan.steps, None)
        return look.take(steps, plan.reason or why)


def _read_facts(pid: int) -> ProcessFacts | None:
    """The facts, with the file that the main thread's system call waits for."""
    facts = proc.read_facts(pid, now=time.monotonic())
    if facts is None:
        return None
    return msgspec.structs.replace(facts, blocked_in=blocked_call(pid, facts.state))


class _Look:
    """One pass through the steps of a plan."""

    def __init__(
        self,
        facts: ProcessFacts,
        access: proc.Access,
        answering: Answering | None,
        *,
        tools: Toolbox,
        deadline: float,
    ) -> None:
        self._facts = facts
        self._was_stopped = access.stopped
        self._answering = answering
        self._tools = tools
        self._deadline = deadline

    def take(self, steps: tuple[Step, ...], why: str | None) -> Captured:
        """Try the steps in order; told are the first reason of a failure, and the worker's own silence."""
        while steps:
            step = steps[0]
            outcome = self._try(step, is_last=len(steps) == 1)
            if outcome.threads:
                reason = lesser_reason(step, why, native=self._tools.native)
                return Captured(self._facts, outcome.threads, reason, step.source)
            if is_final(outcome.reason, self._facts):
                return Captured(self._facts, reason=outcome.reason)
            if time.monotonic() >= self._deadline or (self._tools.guard and self._tools.guard.cancelled):
                return Captured(self._facts, reason=OUT_OF_TIME)
            why = f"{why}; {outcome.reason}" if why and step.tool == "faulthandler" else why or outcome.reason
            steps = steps_after(steps, cannot_stop=outcome.cannot_stop)
        return Captured(self._facts, reason=why)

    def _try(self, step: Step, *, is_last: bool) -> _Outcome:
        if step.tool == "faulthandler":
            return self._ask(step, self._limit(step, is_last=is_last))
        return self._run(step, is_last=is_last)

    def _limit(self, step: Step, *, is_last: bool) -> float:
        now = time.monotonic()
        left = max(0.0, self._deadline - now)
        held = self._tools.longest_hold if step.blocking else math.inf
        return now + min(self._tools.timeout, held, left if is_last else left * _SHARE)

    def _run(self, step: Step, *, is_last: bool) -> _Outcome:
        now, limit = time.monotonic(), self._limit(step, is_last=is_last)
        guard, held = self._tools.guard, step.blocking and not self._was_stopped
        over = (
            partial(guard.over, held=self._facts.pid if held else 0, held_since=self._facts.start_ticks)
            if guard is not None
            else None
        )
        run = run_tool(self._command(step), deadline=limit, guarded=over)
        given_up = guard is not None and guard.cancelled
        if self._tools.slow is not None and not given_up:
            self._tools.slow.ran(step.tool, seconds=limit - now, answered=run.code is not None)
        was_ended = run.code is None or run.code < -1 or given_up  # at its deadline, by a signal, by us
        if was_ended and step.blocking and not self._was_stopped:
            release(self._facts.pid, self._facts.start_ticks, tool=step.tool)
        if run.code is None or given_up:
            return _Outcome(reason=self._silence(step, limit - now), cannot_stop=True)
        if run.code != 0:
            return self._explain(step.tool, run.stderr)
        if proc.start_ticks(self._facts.pid) not in {self._facts.start_ticks, None}:
            return _Outcome(reason=REPLACED)
        # A process that ended right after it was read keeps its stacks: they are its last evidence.
        read = read_pyspy if step.tool == "py-spy" else read_pystack
        return _Outcome(*read(run.stdout, pid=self._facts.pid))

    def _silence(self, step: Step, seconds: float) -> str:
        text = f"{step.tool} did not answer in {seconds:.3g} s"
        held = step.blocking and seconds >= self._tools.longest_hold
        return f"{text} and was ended, so that the process runs on" if held else text

    def _command(self, step: Step) -> list[str]:
        if step.tool == "py-spy":
            return pyspy_command(str(self._tools.pyspy), step.flags, self._facts.pid)
        return pystack_command(str(self._tools.pystack), step.flags, self._facts.pid)

    def _ask(self, step: Step, limit: float) -> _Outcome:
        if self._answering is None:
            return _Outcome(reason="the worker does not answer")
        # What it writes for us is none of its own work: the next look must not take it for that.
        before = proc.io_bytes(self._facts.pid)
        threads, reason, size_bytes = ask_stacks(
            self._answering, to_thread="thread" in step.flags, deadline=limit
        )
        written = min(size_bytes, max(0, proc.io_bytes(self._facts.pid) - before))
        self._facts = msgspec.structs.replace(self._facts, look_bytes=self._facts.look_bytes + written)
        return _Outcome(threads, reason)

    def _explain(self, tool: Backend, text: str) -> _Outcome:
        access = proc.read_access(self._facts.pid)
        reason = explain_failure(
            text,
            tool=tool,
            before=self._facts,
            after=proc.read_facts(self._facts.pid, now=time.monotonic()),
            same_user=access.same_user,
            may_trace=access.may_trace,
            traced_by=access.traced_by,
        )
        # Somebody began to trace or stopped it in between, or it went to sleep in the kernel.
        stuck = reason.startswith(DENIED) or access.traced_by > 0 or access.blocked_threads > 0
        return _Outcome(reason=reason, cannot_stop=stuck)
