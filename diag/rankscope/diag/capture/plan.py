"""Which tools, in which order and with which flags, may look at a process, and what their failure means.

Pure: told what ``/proc`` says, answers with steps or a reason; it knows no clock, file or process. The table
(DIAGNOSIS.md "Collecting", CATALOGUE.md 5): a process that has ended gets no tool; one that cannot answer a
tracer (D, T, already traced) is read without stopping it, because a blocking tool would wait for it for
ever, fail, or leave it stopped; every other one is stopped for the milliseconds it takes, which gives
stacks that are exact. py-spy comes first, pystack second; the signal that the worker answers with its
stacks comes last, because it can interrupt a C call, and goes to no process that is stopped or traced. The
tools' error texts mislead (a zombie reads as a missing capability), so the facts speak first and the text
last.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from rankscope.diag.model import ProcessFacts

Backend = Literal["py-spy", "pystack", "faulthandler"]
BACKENDS: Final[tuple[Backend, ...]] = ("py-spy", "pystack", "faulthandler")

GONE: Final = "the process has ended"
ZOMBIE: Final = "the process has ended, its parent has not collected it yet (zombie)"
REPLACED: Final = "the process was replaced by another one with its pid"
ENDED_MEANWHILE: Final = "the process ended while it was captured"
OUT_OF_TIME: Final = "could not observe, because the capture ran out of time"
DENIED: Final = "ptrace denied"
PTRACE_DENIED: Final = f"{DENIED}: run as root or with --cap-add=SYS_PTRACE (`diag doctor` says more)"
OTHER_USER: Final = f"{DENIED}: the process belongs to another user, run as that user or as root"
NO_PYSPY: Final = "py-spy is not installed beside this Python, nor on PATH"
NO_TOOL: Final = "neither py-spy nor pystack is installed beside this Python, nor on PATH"
LACKS: Final[dict[Backend, str]] = {
    "py-spy": "",
    "pystack": "no Python thread names",
    "faulthandler": "no thread names, no native frames, at most 100 frames",
}
"""What the stacks of each tool do not have, beside those of py-spy."""
_CANNOT_ANSWER: Final = frozenset("DTt")
_STOPPED: Final = frozenset("Tt")
_ENDED: Final = frozenset("ZX")
_DENIED_TEXTS: Final = ("EPERM", "Permission denied", "Permission Denied", "Operation not permitted")
_NOT_PYTHON_TEXTS: Final = (
    "Failed to find python version",
    "Failed to find a python interpreter",
    "Could not determine python version",
)
_NATIVE: Final = "--native"


@dataclass(frozen=True, slots=True)
class Step:
    """One run of one tool.

    Attributes:
        tool: which one.
        flags: its arguments without the pid; for faulthandler who gets the signal: ``process``, or
            ``thread`` for the probe's thread, where the main one cannot take it.
        blocking: whether it stops the process while it reads.
    """

    tool: Backend
    flags: tuple[str, ...] = ()
    blocking: bool = False

    @property
    def source(self) -> str:
        """What a snapshot names as the source of its stacks."""
        return f"{self.tool} {_NATIVE}" if _NATIVE in self.flags else self.tool


@dataclass(frozen=True, slots=True)
class Plan:
    """How to look at one process.

    Attributes:
        steps: to be tried in order until one gives stacks; empty when no tool may look.
        reason: why no tool may look; with steps, why better ones were left out, ``None`` when none were.
    """

    steps: tuple[Step, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a worker says of its answer to the signal.

    Attributes:
        by_process: whether some thread of it takes a signal that is sent to the process.
        by_thread: whether the probe's thread can be sent it alone.
    """

    by_process: bool = False
    by_thread: bool = False


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
    tools: Collection[Backend] = BACKENDS,
    readiness: Readiness | None = None,
) -> Plan:
    """Choose the tools and their flags.

    Args:
        facts: what ``/proc`` says, ``None`` when the process is gone.
        traced_by: pid of another tracer, 0 for none.
        same_user: whether the process runs under our user.
        may_trace: whether the kernel allows tracing, ``None`` when unknown: the tool will tell.
        is_python: whether it runs Python, ``None`` when unknown: the tool will tell.
        blocked_threads: threads in D, T or t, for which a tracer would wait in vain.
        exclusive: whether nobody else of us traces the process; two blocking tools get EPERM.
        native: ask for C++ frames; dropped where the process may not be stopped (both tools refuse it).
        local_variables: ask for local variables.
        tools: those that are there and wanted.
        readiness: what the worker says of its answer to the signal, ``None`` when it says nothing.
    """
    if facts is None:
        return Plan(reason=GONE)
    if facts.state in _ENDED:
        return Plan(reason=ZOMBIE)
    if is_python is False:
        return Plan(reason=not_python(facts.comm))
    last = _signal_steps(facts, traced_by=traced_by, tools=tools, readiness=readiness)
    if may_trace is False:
        return Plan(last, denied(same_user=same_user))
    blocking = exclusive and not traced_by and not blocked_threads and facts.state not in _CANNOT_ANSWER
    steps = [
        *_pyspy_steps(tools, blocking=blocking, native=native, local_variables=local_variables),
        *_pystack_steps(tools, blocking=blocking, native=native, local_variables=local_variables),
        *last,
    ]
    if "py-spy" in tools:
        return Plan(tuple(steps))
    return Plan(tuple(steps), NO_PYSPY if "pystack" in tools else NO_TOOL)


def _pyspy_steps(
    tools: Collection[Backend], *, blocking: bool, native: bool, local_variables: bool
) -> tuple[Step, ...]:
    if "py-spy" not in tools:
        return ()
    flags = ("dump", "--json", *(("--locals",) if local_variables else ()))
    gentle = Step("py-spy", (*flags, "--nonblocking"))
    exact = Step("py-spy", (*flags, *((_NATIVE,) if native else ())), blocking=True)
    return (exact, gentle) if blocking else (gentle,)


def _pystack_steps(
    tools: Collection[Backend], *, blocking: bool, native: bool, local_variables: bool
) -> tuple[Step, ...]:
    if "pystack" not in tools:
        return ()
    flags = ("remote", "--no-color", *(("--locals",) if local_variables else ()))
    gentle = Step("pystack", (*flags, "--no-block"))
    exact = Step("pystack", (*flags, *((_NATIVE,) if native else ())), blocking=True)
    return (exact, gentle) if blocking else (gentle,)


def _signal_steps(
    facts: ProcessFacts, *, traced_by: int, tools: Collection[Backend], readiness: Readiness | None
) -> tuple[Step, ...]:
    """A stopped process would take the signal only when it goes on, a traced one hands it to its tracer."""
    if "faulthandler" not in tools or readiness is None or traced_by or facts.state in _STOPPED:
        return ()
    if facts.state not in _CANNOT_ANSWER:
        return (Step("faulthandler", ("process",)),) if readiness.by_process else ()
    return (Step("faulthandler", ("thread",)),) if readiness.by_thread else ()


def steps_after(steps: tuple[Step, ...], *, cannot_stop: bool) -> tuple[Step, ...]:
    """What is left to try after the first step failed.

    Args:
        steps: with the one that failed.
        cannot_stop: whether it failed because the process did not let itself be stopped.
    """
    return tuple(step for step in steps[1:] if not (cannot_stop and step.blocking))


def lesser_reason(step: Step, why: str | None, *, native: bool) -> str | None:
    """What stacks lack that were obtained by ``step``, and why no better tool gave them.

    Args:
        step: the step that gave them.
        why: why the steps before it gave none.
        native: whether C++ frames were asked for.
    """
    lacks = [LACKS[step.tool]] if LACKS[step.tool] else []
    if native and _NATIVE not in step.flags and step.tool != "faulthandler":
        lacks.append("no native frames")
    if not lacks:
        return None
    because = why or "the process may not be stopped"
    return f"{because.partition(': run ')[0]}; stacks by {step.tool}: {', '.join(lacks)}"


def explain_failure(
    text: str,
    *,
    tool: Backend = "py-spy",
    before: ProcessFacts,
    after: ProcessFacts | None,
    same_user: bool = True,
    may_trace: bool | None = None,
    traced_by: int = 0,
) -> str:
    """Say why the tool gave no stacks: by the facts first, by its error text last.

    Args:
        text: what the tool wrote on stderr.
        tool: which one.
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
    refused = any(known in text for known in _DENIED_TEXTS)
    if refused and traced_by:
        return f"already traced by process {traced_by} (a debugger, strace?)"
    if refused or may_trace is False:
        return denied(same_user=same_user)
    lines = [line.strip(" \t💀") for line in text.splitlines() if line.strip(" \t💀")]
    return f"{tool}: {lines[-1].removeprefix('Error: ')}" if lines else f"{tool} failed without a message"


def is_final(reason: str, facts: ProcessFacts) -> bool:
    """Whether no other tool could do better after ``reason``."""
    return reason in {GONE, ENDED_MEANWHILE, REPLACED, ZOMBIE, not_python(facts.comm)}


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


def denied(*, same_user: bool) -> str:
    """The reason for a process that may not be traced."""
    return PTRACE_DENIED if same_user else OTHER_USER
