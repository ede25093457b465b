"""Which tool for which process, and what its failure means: pure, so by hand-made facts."""

from __future__ import annotations

import pytest

from rankscope.diag.capture.plan import (
    ENDED_MEANWHILE,
    GONE,
    NO_PYSPY,
    NO_TOOL,
    OTHER_USER,
    PTRACE_DENIED,
    REPLACED,
    ZOMBIE,
    Plan,
    Readiness,
    Step,
    explain_failure,
    lesser_reason,
    plan_capture,
    steps_after,
)
from rankscope.diag.model import ProcessFacts

PYSPY = Step("py-spy", ("dump", "--json"), blocking=True)
GENTLE_PYSPY = Step("py-spy", ("dump", "--json", "--nonblocking"))
PYSTACK = Step("pystack", ("remote", "--no-color"), blocking=True)
GENTLE_PYSTACK = Step("pystack", ("remote", "--no-color", "--no-block"))
BLOCKING = Plan((PYSPY, GENTLE_PYSPY, PYSTACK, GENTLE_PYSTACK))
NONBLOCKING = Plan((GENTLE_PYSPY, GENTLE_PYSTACK))
READY = Readiness(by_process=True, by_thread=True)
TO_PROCESS = Step("faulthandler", ("process",))
TO_THREAD = Step("faulthandler", ("thread",))


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
    assert plan_capture(a_process(state), readiness=READY) == Plan(reason=ZOMBIE)
    assert plan_capture(None, readiness=READY) == Plan(reason=GONE)


def test_no_tool_is_started_where_tracing_is_forbidden() -> None:
    assert plan_capture(a_process(), may_trace=False) == Plan(reason=PTRACE_DENIED)
    assert plan_capture(a_process(), may_trace=False, same_user=False) == Plan(reason=OTHER_USER)
    assert plan_capture(a_process(), may_trace=None, same_user=False) == BLOCKING


def test_where_tracing_is_forbidden_the_worker_itself_is_asked() -> None:
    plan = plan_capture(a_process(), may_trace=False, readiness=READY)
    assert plan == Plan((TO_PROCESS,), PTRACE_DENIED)


def test_the_signal_comes_last() -> None:
    assert plan_capture(a_process(), readiness=READY).steps == (*BLOCKING.steps, TO_PROCESS)


def test_a_worker_blocked_in_the_kernel_is_asked_through_its_other_thread() -> None:
    assert plan_capture(a_process("D"), readiness=READY).steps[-1] == TO_THREAD
    only_main = Readiness(by_process=True)
    assert plan_capture(a_process("D"), may_trace=False, readiness=only_main) == Plan(reason=PTRACE_DENIED)


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_or_traced_process_gets_no_signal(state: str) -> None:
    assert plan_capture(a_process(state), readiness=READY) == NONBLOCKING
    assert plan_capture(a_process(), traced_by=99, readiness=READY) == NONBLOCKING


def test_a_worker_in_which_nobody_takes_the_signal_gets_none() -> None:
    assert plan_capture(a_process(), readiness=Readiness()) == BLOCKING


def test_only_tools_that_are_there_are_planned() -> None:
    assert plan_capture(a_process(), tools=["pystack"]) == Plan((PYSTACK, GENTLE_PYSTACK), NO_PYSPY)
    assert plan_capture(a_process(), tools=["faulthandler"]) == Plan(reason=NO_TOOL)
    alone = plan_capture(a_process(), tools=["faulthandler"], readiness=READY)
    assert alone == Plan((TO_PROCESS,), NO_TOOL)


def test_no_tool_is_started_on_a_program_that_is_not_python() -> None:
    plan = plan_capture(a_process(comm="nvcc"), is_python=False, readiness=READY)
    assert plan == Plan(reason="not a Python process (nvcc)")


def test_native_frames_are_asked_for_only_where_the_process_may_be_stopped() -> None:
    exact, gentle, exact_pystack, gentle_pystack = plan_capture(
        a_process(), native=True, local_variables=True
    ).steps
    assert exact.flags == ("dump", "--json", "--locals", "--native")
    assert gentle.flags == ("dump", "--json", "--locals", "--nonblocking")
    assert exact_pystack.flags == ("remote", "--no-color", "--locals", "--native")
    assert gentle_pystack.flags == ("remote", "--no-color", "--locals", "--no-block")
    assert (exact.source, gentle.source) == ("py-spy --native", "py-spy")
    assert plan_capture(a_process("D"), native=True) == NONBLOCKING


def test_a_process_that_could_not_be_stopped_is_not_stopped_by_the_next_tool() -> None:
    assert steps_after(BLOCKING.steps, cannot_stop=True) == (GENTLE_PYSPY, GENTLE_PYSTACK)
    assert steps_after(BLOCKING.steps, cannot_stop=False) == BLOCKING.steps[1:]
    assert steps_after((TO_PROCESS,), cannot_stop=True) == ()


def test_stacks_of_a_lesser_tool_say_what_they_lack_and_why() -> None:
    assert lesser_reason(PYSPY, None, native=False) is None
    assert lesser_reason(GENTLE_PYSPY, "py-spy did not answer in 3 s", native=False) is None
    assert lesser_reason(TO_PROCESS, PTRACE_DENIED, native=False) == (
        "ptrace denied; stacks by faulthandler: no thread names, no native frames, at most 100 frames"
    )
    assert lesser_reason(GENTLE_PYSTACK, NO_TOOL, native=True) == (
        f"{NO_TOOL}; stacks by pystack: no Python thread names, no native frames"
    )
    assert lesser_reason(GENTLE_PYSPY, None, native=True) == (
        "the process may not be stopped; stacks by py-spy: no native frames"
    )


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
