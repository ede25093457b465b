"""``/proc`` facts against real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

from tests.capture_factory import (
    HIDDEN,
    WITH_CHILDREN,
    end_group,
    first_line,
    running,
    seen_without_capabilities,
    state_of,
    wait_until,
    waiting_process,
)

from rankscope.diag import proc
from rankscope.diag.model import ProcessFacts


def facts_of(pid: int) -> ProcessFacts:
    facts = proc.read_facts(pid, now=time.monotonic())
    assert facts is not None
    return facts


def ended_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_waiting_process_shows_where_it_sleeps_and_who_started_it() -> None:
    with waiting_process() as process:
        wait_until(lambda: facts_of(process.pid).wchan == "hrtimer_nanosleep")
        facts = proc.read_facts(process.pid, now=12.5)
        assert facts is not None
        assert (facts.pid, facts.parent, facts.state, facts.time) == (process.pid, os.getpid(), "S", 12.5)
        assert facts.thread_count == 2
        assert facts.comm.startswith("python")
        assert facts.main_cpu_seconds > 0
        assert facts.voluntary_switches > 0
        assert facts.io_bytes > 0
        assert facts.minor_faults > 0
        assert abs(facts.started - time.time()) < 60


def test_work_of_the_main_thread_and_of_others_is_told_apart() -> None:
    before = facts_of(os.getpid())
    busy_main = time.thread_time() + 0.2
    while time.thread_time() < busy_main:
        pass
    between = facts_of(os.getpid())
    other = threading.Thread(target=lambda: sum(range(20_000_000)), name="busy")
    other.start()
    other.join()
    after = facts_of(os.getpid())
    assert between.main_cpu_seconds - before.main_cpu_seconds >= 0.18
    assert after.other_cpu_seconds - between.other_cpu_seconds >= 0.05
    assert after.main_cpu_seconds - between.main_cpu_seconds < 0.05


def test_a_stopped_process_has_state_t_and_a_zombie_state_z() -> None:
    with waiting_process() as process:
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(process.pid) == "T")
        assert facts_of(process.pid).state == "T"
        assert proc.read_access(process.pid).stopped
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: state_of(process.pid) == "Z")
        zombie = facts_of(process.pid)
        assert (zombie.state, zombie.wchan) == ("Z", "")


def test_a_process_that_is_gone_has_no_facts() -> None:
    pid = ended_pid()
    assert proc.read_facts(pid, now=0.0) is None
    assert proc.start_ticks(pid) is None
    assert proc.environ(pid) is None
    assert proc.children(pid) == ()
    assert proc.descendants(pid) == ()
    assert proc.is_python(pid) is None
    assert not proc.maps_library(pid, "libc")
    access = proc.read_access(pid)
    assert (access.may_trace, access.traced_by, access.blocked_threads, access.stopped) == (None, 0, 0, False)


def test_a_name_with_spaces_and_parentheses_does_not_shift_the_fields() -> None:
    code = 'open("/proc/self/comm", "w").write(") S 1 (x y"); print("ready", flush=True); input()'
    with running(code) as process:
        first_line(process)
        facts = facts_of(process.pid)
        assert (facts.comm, facts.parent) == (") S 1 (x y", os.getpid())
        assert proc.process_table()[process.pid].comm == ") S 1 (x y"


def test_the_environment_is_the_one_it_was_started_with() -> None:
    with waiting_process(env={"RANK": "3", "EMPTY": "", "EQUALS": "a=b"}) as process:
        environ = proc.environ(process.pid)
        assert environ is not None
        assert (environ["RANK"], environ["EMPTY"], environ["EQUALS"]) == ("3", "", "a=b")


def test_children_and_grandchildren_are_found_by_lists_and_by_table() -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WITH_CHILDREN!r}]).wait()"
    with running(code) as process:
        _ready, forked, other = first_line(process)
        (middle,) = proc.children(process.pid)
        leaves = tuple(sorted((int(forked), int(other))))
        table = proc.process_table()
        assert proc.children(process.pid, table=table) == (middle,)
        assert proc.descendants(process.pid) == (middle, *leaves)
        assert proc.descendants(process.pid, table=table) == (middle, *leaves)
        assert proc.descendants(process.pid, without=frozenset({middle})) == ()
        assert table[middle].parent == process.pid
        assert table[middle].start_ticks == proc.start_ticks(middle)


def test_python_is_recognised_and_other_programs_are_not() -> None:
    with waiting_process() as process:
        assert proc.is_python(process.pid) is True
        assert proc.maps_library(process.pid, "libc")
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        wait_until(lambda: proc.is_python(other.pid) is False)
    finally:
        end_group(other)


def test_threads_that_a_tracer_would_wait_for_are_counted() -> None:
    with waiting_process() as process:
        access = proc.read_access(process.pid)
        assert (access.may_trace, access.same_user, access.traced_by) == (True, True, 0)
        assert (access.blocked_threads, access.stopped) == (0, False)
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: proc.read_access(process.pid).blocked_threads == 2)


def test_what_another_process_may_not_know_is_zero_or_none() -> None:
    with running(HIDDEN) as process:
        first_line(process)
        seen = seen_without_capabilities(
            "from rankscope.diag import proc",
            "pid = int(sys.argv[1]); facts = proc.read_facts(pid, now=0.0)\n"
            "access = proc.read_access(pid)\n"
            "print(facts.io_bytes, facts.wchan, facts.state, access.may_trace, proc.environ(pid))",
            str(process.pid),
        )
    assert seen == "0 None S False None"
