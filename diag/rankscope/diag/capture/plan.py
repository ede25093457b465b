"""Which tool with which flags may look at a process, and what its failure means.

Pure: told what ``/proc`` says, answers with a plan or a reason; it knows no clock, file or process. The
table (DIAGNOSIS.md "Collecting", CATALOGUE.md 5): a process that has ended gets no tool; one that cannot
answer a tracer (D, T, already traced) is read without stopping it, because a blocking tool would wait for
it for ever, fail, or leave it stopped; every other one is stopped for the milliseconds it takes, which
gives stacks that are exact. The tools' error texts mislead (a zombie reads as a missing capability), so
the facts speak first and the text last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from rankscope.diag.model import ProcessFacts

GONE: Final = "the process has ended"
ZOMBIE: Final = "the process has ended, its parent has not collected it yet (zombie)"
REPLACED: Final = "the process was replaced by another one with its pid"
ENDED_MEANWHILE: Final = "the process ended while it was captured"
OUT_OF_TIME: Final = "could not observe, because the capture ran out of time"
PTRACE_DENIED: Final = "ptrace denied: run with --cap-add=SYS_PTRACE, or let the worker's probe allow it"
OTHER_USER: Final = "ptrace denied: the process belongs to another user, run as that user or as root"
NO_TOOL: Final = "py-spy is not installed beside this Python, nor on PATH"
_CANNOT_ANSWER: Final = frozenset("DTt")
_ENDED: Final = frozenset("ZX")
_DENIED_TEXTS: Final = ("EPERM", "Permission denied", "Permission Denied", "Operation not permitted")
_NOT_PYTHON_TEXTS: Final = ("Failed to find python version", "Failed to find a python interpreter")


@dataclass(frozen=True, slots=True)
class Plan:
    """How to look at one process.

    Attributes:
        tool: the tool to run, ``None`` when no tool may look.
        flags: its flags, without the pid.
        blocking: whether it stops the process while it reads.
        reason: why no tool may look, ``None`` with a tool.
    """

    tool: Literal["py-spy"] | None
    flags: tuple[str, ...] = ()
    blocking: bool = False
    reason: str | None = None


def plan_capture(
    facts: ProcessFacts | None,
    *,
    traced_by: int = 0,
    same_user: bool = True,
    may_trace: bool | None = None,
    is_python: bool | None = None,
    blocked_threads: int = 0,
    exclusive: bool = True,
    native: bool = False,
    local_variables: bool = False,
) -> Plan:
    """Choose the tool and its flags.

    Args:
        facts: what ``/proc`` says, ``None`` when the process is gone.
        traced_by: pid of another tracer, 0 for none.
        same_user: whether the process runs under our user.
        may_trace: whether the kernel allows tracing, ``None`` when unknown: the tool will tell.
        is_python: whether it runs Python, ``None`` when unknown: the tool will tell.
        blocked_threads: threads in D, T or t, for which a tracer would wait in vain.
        exclusive: whether nobody else of us traces the process; two blocking tools get EPERM.
        native: ask for C++ frames; dropped where the process may not be stopped (py-spy refuses both).
        local_variables: ask for local variables.
    """
    reason = _reason_without_tool(facts, same_user=same_user, may_trace=may_trace, is_python=is_python)
    if facts is None or reason is not None:
        return Plan(None, reason=reason or GONE)
    blocking = exclusive and not traced_by and not blocked_threads and facts.state not in _CANNOT_ANSWER
    flags = ["dump", "--json"]
    if local_variables:
        flags.append("--locals")
    if native and blocking:
        flags.append("--native")
    plan = Plan("py-spy", tuple(flags), blocking=True)
    return plan if blocking else nonblocking(plan)


def nonblocking(plan: Plan) -> Plan:
    """The same plan without stopping the process."""
    flags = tuple(flag for flag in plan.flags if flag not in {"--native", "--nonblocking"})
    return replace(plan, flags=(*flags, "--nonblocking"), blocking=False)


def explain_failure(
    text: str,
    *,
    before: ProcessFacts,
    after: ProcessFacts | None,
    same_user: bool = True,
    may_trace: bool | None = None,
    traced_by: int = 0,
) -> str:
    """Say why the tool gave no stacks: by the facts first, by its error text last.

    Args:
        text: what the tool wrote on stderr.
        before: the facts read before it ran.
        after: the facts read after it failed, ``None`` when the process is gone.
        same_user: whether the process runs under our user.
        may_trace: whether the kernel allows tracing, ``None`` when unknown.
        traced_by: pid of another tracer, 0 for none.
    """
    identity = identity_reason(before=before, after=after)
    if identity is not None:
        return identity
    if any(known in text for known in _NOT_PYTHON_TEXTS):
        return not_python(before.comm)
    denied = any(known in text for known in _DENIED_TEXTS)
    if denied and traced_by:
        return f"already traced by process {traced_by} (a debugger, strace?)"
    if denied or may_trace is False:
        return _denied(same_user=same_user)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"py-spy: {lines[-1].removeprefix('Error: ')}" if lines else "py-spy failed without a message"


def identity_reason(*, before: ProcessFacts, after: ProcessFacts | None) -> str | None:
    """Why what was read belongs to no living process any more, ``None`` when it does."""
    if after is None:
        return ENDED_MEANWHILE
    if after.start_ticks != before.start_ticks:
        return REPLACED
    return ZOMBIE if after.state in _ENDED else None


def not_python(comm: str) -> str:
    """The reason for a process without a Python interpreter."""
    return f"not a Python process ({comm})"


def _reason_without_tool(
    facts: ProcessFacts | None, *, same_user: bool, may_trace: bool | None, is_python: bool | None
) -> str | None:
    if facts is None:
        return GONE
    if facts.state in _ENDED:
        return ZOMBIE
    if may_trace is False:
        return _denied(same_user=same_user)
    return not_python(facts.comm) if is_python is False else None


def _denied(*, same_user: bool) -> str:
    return PTRACE_DENIED if same_user else OTHER_USER
