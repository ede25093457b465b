"""Which tool for which process, and what its failure means: pure, so by hand-made facts."""

from __future__ import annotations

import pytest

from rankscope.diag.capture.plan import (
    ENDED_MEANWHILE,
    GONE,
    OTHER_USER,
    PTRACE_DENIED,
    REPLACED,
    ZOMBIE,
    Plan,
    explain_failure,
    nonblocking,
    plan_capture,
)
from rankscope.diag.model import ProcessFacts

BLOCKING = Plan("py-spy", ("dump", "--json"), blocking=True)
NONBLOCKING = Plan("py-spy", ("dump", "--json", "--nonblocking"), blocking=False)


def a_process(state: str = "S", *, start_ticks: int = 700, comm: str = "python") -> ProcessFacts:
    return ProcessFacts(pid=41, start_ticks=start_ticks, parent=1, time=0.0, state=state, comm=comm)


@pytest.mark.parametrize("state", ["R", "S", "I"])
def test_a_process_that_can_answer_is_stopped_for_exact_stacks(state: str) -> None:
    assert plan_capture(a_process(state)) == BLOCKING


@pytest.mark.parametrize("state", ["D", "T", "t"])
def test_a_process_that_cannot_answer_a_tracer_is_read_without_stopping_it(state: str) -> None:
    assert plan_capture(a_process(state)) == NONBLOCKING


def test_a_thread_that_cannot_answer_counts_as_much_as_the_main_thread() -> None:
    assert plan_capture(a_process("S"), blocked_threads=1) == NONBLOCKING


def test_a_traced_process_and_one_whose_lock_is_taken_are_read_without_stopping_them() -> None:
    assert plan_capture(a_process(), traced_by=99) == NONBLOCKING
    assert plan_capture(a_process(), exclusive=False) == NONBLOCKING


@pytest.mark.parametrize("state", ["Z", "X"])
def test_an_ended_process_gets_no_tool(state: str) -> None:
    assert plan_capture(a_process(state)) == Plan(None, reason=ZOMBIE)
    assert plan_capture(None) == Plan(None, reason=GONE)


def test_no_tool_is_started_where_tracing_is_forbidden() -> None:
    assert plan_capture(a_process(), may_trace=False) == Plan(None, reason=PTRACE_DENIED)
    assert plan_capture(a_process(), may_trace=False, same_user=False) == Plan(None, reason=OTHER_USER)
    assert plan_capture(a_process(), may_trace=None, same_user=False) == BLOCKING


def test_no_tool_is_started_on_a_program_that_is_not_python() -> None:
    plan = plan_capture(a_process(comm="nvcc"), is_python=False)
    assert plan == Plan(None, reason="not a Python process (nvcc)")


def test_native_frames_are_asked_for_only_where_the_process_may_be_stopped() -> None:
    asked = plan_capture(a_process(), native=True, local_variables=True)
    assert asked.flags == ("dump", "--json", "--locals", "--native")
    assert plan_capture(a_process("D"), native=True).flags == NONBLOCKING.flags
    assert nonblocking(asked).flags == ("dump", "--json", "--locals", "--nonblocking")
    assert nonblocking(nonblocking(asked)) == nonblocking(asked)


def test_facts_speak_before_the_tools_text() -> None:
    misleading = "Error: Failed to get process executable name. Check that the process is running.\n"
    before = a_process()
    assert explain_failure(misleading, before=before, after=None) == ENDED_MEANWHILE
    assert explain_failure(misleading, before=before, after=a_process("Z")) == ZOMBIE
    assert explain_failure(misleading, before=before, after=a_process(start_ticks=701)) == REPLACED
    assert explain_failure(misleading, before=before, after=before, may_trace=False) == PTRACE_DENIED


@pytest.mark.parametrize(
    "text",
    [
        "Permission Denied: Try running again with elevated permissions by going 'sudo env'",
        "Error: Failed to get process executable name\nReason: Permission denied (os error 13)",
        "Error: Failed to suspend process\nReason: EPERM: Operation not permitted",
    ],
)
def test_a_denied_tracer_is_told_what_to_do(text: str) -> None:
    before = a_process()
    assert explain_failure(text, before=before, after=before) == PTRACE_DENIED
    assert explain_failure(text, before=before, after=before, same_user=False) == OTHER_USER
    traced = explain_failure(text, before=before, after=before, traced_by=88)
    assert traced == "already traced by process 88 (a debugger, strace?)"


def test_a_program_without_an_interpreter_is_named() -> None:
    before = a_process(comm="bash")
    text = "Error: Failed to find python version from target process"
    assert explain_failure(text, before=before, after=before) == "not a Python process (bash)"


def test_any_other_failure_is_quoted_in_one_line() -> None:
    before = a_process()
    assert explain_failure("x\nError: odd thing\n\n", before=before, after=before) == "py-spy: odd thing"
    assert explain_failure(" \n", before=before, after=before) == "py-spy failed without a message"
