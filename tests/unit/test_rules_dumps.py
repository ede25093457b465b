"""What only dumps show: source texts, local variables, native frames, the errors of tools."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import msgspec
import pytest
from rich.console import Console
from tests.classify_factory import (
    C10D,
    ARank,
    a_job,
    a_rank,
    judge,
    judge_still,
    native,
    stdlib,
    torch_frame,
    user,
)
from tests.records_factory import a_record, call, steps

from rankscope.diag.classify import load_catalogue, messaging_ranks, unclear_ranks
from rankscope.diag.model import (
    ChildSnapshot,
    Diagnosis,
    ExitFacts,
    Frame,
    FrameVariables,
    JobSnapshot,
    RankSnapshot,
    ThreadStack,
)
from rankscope.diag.report.text import render_text

STOPPED = (
    "py-spy: Failed to suspend process: unexpected waitpid result PtraceEvent(Pid(98), SIGSTOP, 128) to 98"
)
NO_PROCESS = (
    "py-spy: Error: Failed to get process executable name. Check that the process is running.\n"
    "Caused by: No such file or directory (os error 2)"
)
DENIED = "py-spy: Error: Failed to get process executable name: Permission denied (os error 13)"
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:64144."


def dump(*ranks: ARank, world_size: int | None = None) -> JobSnapshot:
    return a_job(*ranks, world_size=world_size, facts=False)


def replaced(job: JobSnapshot, rank: int, **changes: object) -> JobSnapshot:
    ranks = tuple(msgspec.structs.replace(one, **changes) if one.rank == rank else one for one in job.ranks)
    return msgspec.structs.replace(job, ranks=ranks)


def said(found: Diagnosis) -> tuple[str, tuple[int, ...], str]:
    return found.verdict, found.culprits, found.rule


# ---- the dump's own source text ---------------------------------------------------------------------------


def line(number: int, text: str) -> Frame:
    return msgspec.structs.replace(user("step", number), source=text)


def test_the_text_in_the_dump_tells_the_wait_that_leaves_no_frame() -> None:
    waits = [a_rank(rank).stuck_in(line(179, "w.wait()")) for rank in (0, 2)]
    found = judge(dump(waits[0], a_rank(1).stuck_in(line(176, "time.sleep(3600)")), waits[1]))
    assert said(found) == ("RankNonCommHang", (1,), "8")
    assert found.location is not None
    assert found.location.source == "time.sleep(3600)"
    assert any(one.source == "source line" for one in found.evidence)


def test_without_text_or_native_frames_the_ranks_of_one_function_name_nobody() -> None:
    found = judge(
        dump(*(a_rank(rank).stuck_in(user("step", 176 if rank == 1 else 179)) for rank in range(3)))
    )
    assert (found.verdict, found.culprits) == ("Unknown", ())


def test_the_text_in_the_dump_goes_before_the_file_that_may_have_changed() -> None:
    ranks = [a_rank(0).stuck_in(line(5, "w.wait()")), a_rank(1).stuck_in(user("load", 8))]
    assert judge(dump(*ranks), lines={5: "x = 1"}).culprits == (1,)


# ---- native frames ----------------------------------------------------------------------------------------

WORK_WAIT = (
    native("pthread_cond_wait", "libc.so.6"),
    native("c10d::Work::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >)"),
)
REDUCER = (
    native("std::condition_variable::wait", "libstdc++.so.6"),
    native("c10d::Reducer::finalize_backward()"),
)


@pytest.mark.parametrize(
    "waiting",
    [
        (*WORK_WAIT, user("step", 5)),
        WORK_WAIT,  # gdb without Python's help
        (
            *REDUCER,
            native("THPEngine_run_backward"),
            torch_frame("_engine_run_backward", "torch/autograd/graph.py"),
            user("step", 5),
        ),
        (native("c10d::TCPStore::doWait(c10::ArrayRef<std::string>)"), user("step", 5)),
    ],
)
def test_native_frames_tell_the_wait(waiting: tuple[Frame, ...]) -> None:
    sleeps = (
        native("clock_nanosleep", "libc.so.6"),
        native("time_sleep", "libpython3.11.so"),
        user("step", 9),
    )
    ranks = [a_rank(0).but(frames=waiting), a_rank(1).but(frames=sleeps), a_rank(2).but(frames=waiting)]
    assert judge(dump(*ranks)).culprits == (1,)


# ---- asleep or at work ---------------------------------------------------------------------------------

KERNEL = native("mkl_blas_def_sgemm_kernel_0_zen")
SLEEP = native("__GI___clock_nanosleep", "libc.so.6")
BUILTIN = native("<built-in method sleep of module object>", "")


@pytest.mark.parametrize(
    ("frames", "gil", "active", "source", "expected"),
    [
        # py-spy tells whether it runs, and who owns the GIL.
        ((user("step", 9),), False, True, "py-spy", None),
        ((user("step", 9),), True, True, "py-spy", "low"),
        ((user("step", 9),), False, False, "py-spy", "medium"),
        ((user("step", 9),), True, False, "py-spy", "medium"),
        # pystack tells the GIL and the line.
        ((line(9, "return (a @ b).sum()"),), False, None, "pystack", None),
        ((line(9, "time.sleep(3600)"),), False, None, "pystack", "low"),
        ((line(9, "with L:"),), False, None, "pystack", "medium"),
        ((line(9, "q.get()"),), False, None, "pystack", "medium"),
        ((line(9, "x = x * 1103515245"),), True, None, "pystack", "low"),
        ((user("step", 9),), False, None, "pystack", "low"),
        # gdb and native frames tell the C call.
        ((KERNEL, user("step", 9)), None, None, "gdb", None),
        ((SLEEP, native("time_sleep"), user("step", 9)), None, None, "gdb", "low"),
        ((BUILTIN, user("step", 9)), None, None, "gdb", "low"),
        ((native("__GI___libc_read", "libc.so.6"), user("step", 9)), None, None, "gdb", "medium"),
        ((native("??", ""), user("step", 9)), None, None, "gdb", "low"),
        # faulthandler tells nothing; its current thread is the one that the signal interrupted.
        ((user("step", 9),), None, True, "faulthandler", "low"),
        ((line(9, "f.read()"),), None, True, "faulthandler", "low"),
        ((stdlib("Queue.get", "queue.py"), user("step", 9)), None, True, "faulthandler", "low"),
        ((stdlib("Condition.wait", "threading.py"), user("step", 9)), None, True, "faulthandler", "medium"),
    ],
)
def test_one_look_at_a_rank_at_work_is_a_suspicion_only(
    frames: tuple[Frame, ...], gil: bool | None, active: bool | None, source: str, expected: str | None
) -> None:
    waiting_ranks = [a_rank(rank).waiting_in() for rank in (0, 2)]
    job = dump(waiting_ranks[0], a_rank(1).but(frames=frames, gil=gil, active=active), waiting_ranks[1])
    found = judge(replaced(job, 1, source=source))
    if expected is None:
        assert (found.verdict, found.culprits, found.ranks[1].state) == ("Unknown", (), "suspected")
        assert found.summary.startswith("suspected, not confirmed: rank 1")
    else:
        assert (found.verdict, found.culprits, found.confidence) == ("RankNonCommHang", (1,), expected)


def test_a_sleeping_thread_of_unknown_id_that_py_spy_calls_active_is_not_at_work() -> None:
    job = dump(a_rank(0).waiting_in(), a_rank(1).stuck_in(user("step", 9)), a_rank(2).waiting_in())
    (main,) = job.ranks[1].threads
    odd = msgspec.structs.replace(main, thread_id=0x7F05C263CB80, active=True)
    assert judge(replaced(job, 1, threads=(odd,))).culprits == (1,)


@pytest.mark.parametrize(("gil", "active", "culprits"), [(False, False, (1,)), (True, True, ())])
def test_a_line_that_gets_a_key_waits_for_the_store_unless_it_runs(
    gil: bool, active: bool, culprits: tuple[int, ...]
) -> None:
    gets = [a_rank(rank).stuck_in(line(22, 'st.get("go")')).but(gil=gil, active=active) for rank in (0, 2)]
    found = judge(dump(gets[0], a_rank(1).stuck_in(line(9, "time.sleep(1)")), gets[1]))
    assert found.culprits == culprits


# ---- peers ------------------------------------------------------------------------------------------------


def in_call(rank: int, name: str, **values: object) -> RankSnapshot:
    """A rank in a send or receive whose local variables were printed."""
    frames = (Frame(name, C10D, 2799), user("exchange", 227))
    variables = FrameVariables(0, tuple((key, str(value)) for key, value in values.items()))
    thread = ThreadStack(rank, None, frames, is_main=True, variables=(variables,))
    return RankSnapshot(rank, source="pystack", threads=(thread,))


def free(rank: int) -> RankSnapshot:
    return a_rank(rank).stuck_in(user("compute", 226)).build(0.0, facts=False)


def of(*ranks: RankSnapshot) -> JobSnapshot:
    return JobSnapshot("run-7", 0.0, len(ranks), ranks)


def test_a_chain_of_receives_ends_at_the_rank_that_does_not_send() -> None:
    ranks = (free(0), *(in_call(rank, "recv", src=rank - 1, group="None", tag=0) for rank in (1, 2, 3)))
    found = judge(of(*ranks))
    assert said(found) == ("RankNonCommHang", (0,), "4")
    assert found.ranks[3].waits_for == (0,)
    assert any("recv of rank 3 waits for rank 2" in one.fact for one in found.evidence)


def test_a_rank_that_nobody_waits_for_is_no_culprit() -> None:
    """Rank 3 computes as well, but the chain ends at rank 0."""
    ranks = (free(0), in_call(1, "recv", src=0), in_call(2, "recv", src=1), free(3))
    found = judge(of(*ranks))
    assert found.culprits == (0,)
    assert found.ranks[3].role == "bystander"


def test_receives_in_a_circle_are_an_order_deadlock() -> None:
    found = judge(of(*(in_call(rank, "recv", src=(rank + 1) % 3) for rank in range(3))))
    assert said(found) == ("RankNonCommHang", (0, 1, 2), "5")
    assert found.kind == "order_deadlock"


def test_two_sends_to_each_other_are_a_circle() -> None:
    found = judge(of(in_call(0, "send", dst=1), in_call(1, "send", dst=0), free(2)))
    assert found.culprits == (0, 1)


def test_a_chain_that_ends_at_a_rank_nobody_could_look_at_names_nobody() -> None:
    hidden = RankSnapshot(0, observed=False, reason="ptrace denied")
    found = judge(of(hidden, in_call(1, "recv", src=0), free(2)))
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "the waits end at rank 0, which could not be observed" in found.summary


def test_a_peer_inside_a_group_of_unknown_members_is_not_taken_for_a_global_rank() -> None:
    ranks = (free(0), in_call(1, "recv", src="None", group="<ProcessGroup at 0x7f>", group_src=2), free(2))
    assert said(judge(of(*ranks))) == ("RankNonCommHang", (0, 2), "8")


def test_a_collective_waiter_may_wait_for_somebody_outside_of_the_chain() -> None:
    ranks = (free(0), in_call(1, "recv", src=0), a_rank(2).waiting_in().build(0.0, facts=False), free(3))
    assert judge(of(*ranks)).culprits == (0, 3)


# ---- what a tool's error proves ---------------------------------------------------------------------------


def failed(rank: int, reason: str) -> RankSnapshot:
    return RankSnapshot(rank, observed=False, reason=reason)


def waiting(rank: int) -> RankSnapshot:
    return a_rank(rank).waiting_in().build(0.0, facts=False)


def test_the_error_that_only_a_stopped_process_gives_is_evidence() -> None:
    found = judge(of(waiting(0), failed(1, STOPPED), waiting(2)))
    assert said(found) == ("RankNonCommHang", (1,), "2")
    assert found.kind == "frozen"
    assert any(one.source == "tool" and one.rank == 1 for one in found.evidence)


@pytest.mark.parametrize("reason", [DENIED, "the dump is empty", "pystack: Operation not permitted"])
def test_any_other_error_leaves_the_rank_unobserved(reason: str) -> None:
    found = judge(of(waiting(0), failed(1, reason), waiting(2)))
    assert (found.verdict, found.culprits) == ("Unknown", ())
    assert "rank 1 could not be observed" in found.summary
    assert [one.reason for one in found.unobserved] == [reason]


def test_a_rank_whose_process_is_gone_while_others_wait_is_dead() -> None:
    found = judge(of(waiting(0), failed(1, NO_PROCESS), waiting(2)))
    assert (found.verdict, found.culprits) == ("Exited", (1,))


def test_a_missing_rank_is_never_counted_as_outside_of_the_collective() -> None:
    found = judge(JobSnapshot("run-7", 0.0, 3, (waiting(0), waiting(2))))
    assert (found.verdict, found.culprits) == ("Unknown", ())


# ---- logs beside dumps ------------------------------------------------------------------------------------


def raised(rank: int, message: str, code: int | None = 1) -> RankSnapshot:
    return RankSnapshot(rank, observed=False, exit=ExitFacts(code, message))


@pytest.mark.parametrize("reason", [NO_PROCESS, DENIED])
def test_the_one_rank_of_which_nothing_is_known_was_lost_first(reason: str) -> None:
    found = judge(of(raised(0, CLOSED), failed(1, reason), raised(2, CLOSED)))
    assert said(found) == ("Exited", (1,), "1")
    assert found.confidence == "low"


def test_of_several_lost_ranks_none_is_picked() -> None:
    found = judge(of(raised(0, CLOSED), failed(1, DENIED), failed(2, DENIED)))
    assert (found.verdict, found.culprits) == ("Exited", ())


def test_a_rank_with_an_error_of_its_own_is_the_cause_whoever_is_missing() -> None:
    found = judge(of(raised(0, CLOSED), failed(1, DENIED), raised(2, "ValueError: bad batch")))
    assert found.culprits == (2,)


def test_a_message_without_a_code_does_not_end_a_rank_whose_stack_was_taken() -> None:
    late = msgspec.structs.replace(waiting(0), exit=ExitFacts(None, CLOSED))
    found = judge(of(late, free(1), waiting(2)))
    assert said(found) == ("RankNonCommHang", (1,), "8")
    assert found.ranks[0].state == "waiting"


# ---- a vfork child lends its parent's stack ---------------------------------------------------------------


def with_child(thread_id: int, child: int = 558, pid: int = 463) -> RankSnapshot:
    stack = ThreadStack(thread_id, None, (user("spawn", 137), user("<module>", 90)))
    return RankSnapshot(
        1, pid=pid, observed=False, reason="empty", children=(ChildSnapshot(child, None, (stack,)),)
    )


@pytest.mark.parametrize("pid", [463, 0])
def test_a_rank_that_no_tool_can_read_is_seen_through_its_vfork_child(pid: int) -> None:
    found = judge(of(waiting(0), with_child(463, pid=pid), waiting(2)))
    assert said(found) == ("RankNonCommHang", (1,), "8")
    assert found.location is not None
    assert found.location.line == 137


@pytest.mark.parametrize("pid", [463, 0])
def test_a_forked_child_says_nothing_of_its_parent(pid: int) -> None:
    assert judge(of(waiting(0), with_child(558, pid=pid), waiting(2))).verdict == "Unknown"


# ---- a server that stays silent ---------------------------------------------------------------------------


def silent(rank: ARank, *answers: bool | None) -> list[JobSnapshot]:
    ranks = [a_rank(0).waiting_in().but(step=5), rank.but(step=5), a_rank(2).waiting_in().but(step=5)]
    return [
        replaced(a_job(*ranks, seconds=seconds), 1, server_answers=answer)
        for seconds, answer in zip((0.0, 4.0), answers, strict=True)
    ]


def test_a_server_that_accepts_and_twice_stays_silent_is_a_process_that_cannot_run() -> None:
    before, after = silent(a_rank(1).waiting_in(), False, False)
    found = judge(before, after)
    assert said(found) == ("RankNonCommHang", (1,), "2")
    assert any(one.source == "server" for one in found.evidence)


@pytest.mark.parametrize("answers", [(False, True), (None, False), (True, True)])
def test_one_silence_proves_nothing(answers: Sequence[bool | None]) -> None:
    before, after = silent(a_rank(1).waiting_in(), *answers)
    assert judge(before, after).rule != "2"


def test_a_process_that_uses_the_cpu_runs_whatever_its_server_says() -> None:
    before, after = silent(a_rank(1).stuck_in(user("work", 9)).but(cpu=0.9), False, False)
    assert judge(before, after).rule != "2"


# ---- mixed tools ------------------------------------------------------------------------------------------


def test_two_tools_spell_one_place_differently() -> None:
    """py-spy's text has short files, pystack whole paths: both ranks are in the same call."""
    short = (
        Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252),
        Frame("step", "train.py", 11),
    )
    ranks = [a_rank(0).waiting_in(), a_rank(1).but(frames=(*short, Frame("<module>", "train.py", 90)))]
    whole = a_rank(0).but(frames=(Frame("all_reduce", C10D, 3252), user("step", 11), user("<module>", 90)))
    assert judge(dump(whole, ranks[1])).rule == "none"


# ---- looks at a job that is only slow ---------------------------------------------------------------------


def look(*inside: bool, seconds: float = 0.0) -> JobSnapshot:
    ranks = [
        a_rank(rank).waiting_in() if waits else a_rank(rank).stuck_in(user("compute", 17))
        for rank, waits in enumerate(inside)
    ]
    return a_job(*ranks, seconds=seconds, facts=False)


def test_a_rank_that_comes_to_communication_rarely_is_slow() -> None:
    rank = (False, True, False, False, True, False, False, False)
    looks = [look(True, here, True, seconds=0.7 * at) for at, here in enumerate(rank)]
    found = judge(looks[0], looks[-1], samples=tuple(looks[1:-1]))
    assert said(found) == ("RankNonCommSlow", (1,), "S1")
    assert found.location is not None
    assert found.location.function == "compute"


def test_a_rank_that_never_comes_is_stuck_not_slow() -> None:
    looks = [look(True, False, True, seconds=0.7 * at) for at in range(8)]
    found = judge(looks[0], looks[-1], samples=tuple(looks[1:-1]))
    assert said(found) == ("RankNonCommHang", (1,), "8")


# ---- whom to look at again --------------------------------------------------------------------------------


def unclear(*ranks: RankSnapshot) -> frozenset[int]:
    return unclear_ranks(of(*ranks), load_catalogue())


def test_a_rank_in_a_visible_collective_is_clear() -> None:
    assert unclear(waiting(0), free(1)) == frozenset()


def test_a_rank_whose_record_leaves_a_collective_open_is_unclear() -> None:
    opened = a_record(*steps(3), call(seq=4, ended=False))
    assert unclear(msgspec.structs.replace(free(0), record=opened), free(1)) == {0}


def test_a_rank_in_backward_is_unclear() -> None:
    backward = a_rank(0).stuck_in(
        torch_frame("_engine_run_backward", "torch/autograd/graph.py"), user("f", 3)
    )
    assert unclear(backward.build(0.0), free(1)) == {0}


def test_a_receive_is_unclear_until_its_peer_is_known() -> None:
    assert unclear(in_call(0, "recv", tag=0), in_call(1, "recv", src=0)) == {0}


@pytest.mark.parametrize(("wchan", "expected"), [("futex_do_wait", {0}), ("hrtimer_nanosleep", set[int]())])
def test_a_rank_asleep_at_a_line_of_its_own_is_unclear(wchan: str, expected: set[int]) -> None:
    assert unclear(a_rank(0).stuck_in(user("f", 3), wchan=wchan).build(0.0), free(1)) == expected


def test_of_a_rank_in_a_send_or_receive_only_the_peer_is_asked() -> None:
    """One that waits for a message that it asked for before has no peer on its stack."""
    later = a_rank(1).waiting_in("batch_isend_irecv").build(0.0)
    looks = of(a_rank(0).waiting_in("recv").build(0.0), later, in_call(2, "recv", src=1))
    assert messaging_ranks(looks, load_catalogue()) == {0}


def test_native_frames_leave_nothing_to_ask() -> None:
    opened = a_record(*steps(3), call(seq=4, ended=False))
    seen = a_rank(0).stuck_in(native("clock_nanosleep"), user("f", 3)).build(0.0)
    assert unclear(msgspec.structs.replace(seen, record=opened)) == frozenset()


# ---- what the report says ---------------------------------------------------------------------------------


def test_the_report_names_what_is_missing_from_stacks_that_were_seen() -> None:
    job = dump(a_rank(0).waiting_in(), a_rank(1).waiting_in(), a_rank(2).stuck_in(user("load_batch", 8)))
    for rank in (0, 1):
        job = replaced(job, rank, reason="no native frames: ptrace denied")
    found = judge(job)
    assert found.ranks[0].observed
    assert found.ranks[0].reason == "no native frames: ptrace denied"
    assert found.unobserved == ()
    out = StringIO()
    render_text(found, console=Console(file=out, width=100))
    assert "seen with limits\n  ranks 0-1: no native frames: ptrace denied\n" in out.getvalue()


def test_a_lock_that_sleeps_in_python_is_not_communication() -> None:
    acquire = (native("PyThread_acquire_lock_timed"), stdlib("Thread.join", "threading.py"), user("main", 5))
    found = judge_still(a_rank(0).waiting_in(), a_rank(1).but(frames=acquire), a_rank(2).waiting_in())
    assert found.culprits == (1,)
