"""Capture of real processes in every state that a rank can be found in."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.capture_factory import (
    DEADLINE,
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
from rankscope.diag.capture import MAX_CHILDREN, NOT_SAMPLED, Target, capture_ranks
from rankscope.diag.capture.locks import lock_folder, process_lock, remove_stale
from rankscope.diag.capture.plan import (
    BACKENDS,
    GONE,
    NO_TOOL,
    OTHER_USER,
    OUT_OF_TIME,
    PTRACE_DENIED,
    REPLACED,
    ZOMBIE,
)
from rankscope.diag.capture.process import Toolbox, capture_process
from rankscope.diag.capture.slow_tools import SlowTools
from rankscope.diag.model import ExitFacts, Progress, RankSnapshot, ThreadStack

NOBODY = 1 << 22  # one more than the highest process number that Linux gives
BLOCKED_IN_KERNEL = """
import os, sys, threading, time
read, write = os.pipe()
threading.Thread(target=os.read, args=(read, 1), name="helper", daemon=True).start()
print("ready", flush=True)
def start_tool(fifo):
    # posix_spawn waits in the kernel (state D, killable) until the child has run exec; the child first
    # opens a FIFO that nobody writes to.
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 9, fifo, os.O_RDONLY, 0)])
start_tool(sys.argv[1])
print("woke", flush=True)
time.sleep(1000)
"""
TRACER = """
import ctypes, sys, time
PTRACE_SEIZE = 0x4206
print(ctypes.CDLL(None).ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None), flush=True)
time.sleep(1000)
"""
SPINNING = """
print("ready", flush=True)
def spin():
    while True:
        pass
spin()
"""
MANY_CHILDREN = """
import os, time
for _ in range(18):
    if os.fork() == 0:
        time.sleep(1000)
print("ready", flush=True)
time.sleep(1000)
"""


def capture(
    pid: int,
    *,
    timeout: float = DEADLINE,
    rank_timeout: float = DEADLINE,
    children: bool = True,
    pyspy: str | None = None,
) -> RankSnapshot:
    """Capture one rank; a stand-in for py-spy is the only tool."""
    (snapshot,) = capture_ranks(
        (Target(0, pid),),
        timeout=timeout,
        rank_timeout=rank_timeout,
        children=children,
        pyspy=pyspy,
        backends=("py-spy",) if pyspy else BACKENDS,
    )
    return snapshot


def functions(threads: tuple[ThreadStack, ...]) -> set[str]:
    return {frame.function for thread in threads for frame in thread.frames}


def a_tool(folder: Path, script: str) -> str:
    """A stand-in tool: a shell script that gets py-spy's arguments, the last one as ``$pid`` too."""
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\nfor pid; do :; done\n{script}\n")
    path.chmod(0o755)
    return str(path)


def our_children() -> set[int]:
    return set(proc.children(os.getpid()))


@contextlib.contextmanager
def blocked_process(folder: Path) -> Generator[subprocess.Popen[bytes]]:
    """A process in state D, woken and ended afterwards."""
    fifo = folder / "never-written"
    os.mkfifo(fifo)
    with running(BLOCKED_IN_KERNEL, argv=(str(fifo),)) as process:
        first_line(process)
        wait_until(lambda: state_of(process.pid) == "D")
        yield process


def test_ranks_are_captured_in_the_order_asked_with_facts_and_stacks() -> None:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(waiting_process()) for _ in range(3)]
        targets = [
            Target(rank, process.pid, node="host-a", progress=Progress(step=rank))
            for rank, process in zip((2, 0, 1), processes, strict=True)
        ]
        before = our_children()
        snapshots = capture_ranks(targets, timeout=DEADLINE)
        assert our_children() == before
    assert [snapshot.rank for snapshot in snapshots] == [2, 0, 1]
    for snapshot, process in zip(snapshots, processes, strict=True):
        assert (snapshot.observed, snapshot.reason, snapshot.source) == (True, None, "py-spy")
        assert (snapshot.pid, snapshot.node) == (process.pid, "host-a")
        assert snapshot.progress == Progress(step=snapshot.rank)
        assert snapshot.facts is not None
        assert snapshot.start_ticks == snapshot.facts.start_ticks > 0
        assert abs(snapshot.time - time.time()) < 60
        main = next(thread for thread in snapshot.threads if thread.is_main)
        assert [frame.function for frame in main.frames] == ["inner_call", "outer_call", "<module>"]
        assert {thread.name for thread in snapshot.threads} == {"MainThread", "helper"}


def test_nothing_asked_gives_nothing() -> None:
    assert capture_ranks((), timeout=1.0) == ()


def test_a_stopped_rank_is_read_and_stays_stopped() -> None:
    with waiting_process() as process:
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(process.pid) == "T")
        snapshot = capture(process.pid)
        assert snapshot.facts is not None
        assert (snapshot.observed, snapshot.facts.state) == (True, "T")
        assert "inner_call" in functions(snapshot.threads)
        assert state_of(process.pid) == "T"


def test_a_rank_blocked_in_the_kernel_is_read_without_waiting_for_it(tmp_path: Path) -> None:
    with blocked_process(tmp_path) as process:
        snapshot = capture(process.pid)
        assert snapshot.facts is not None
        assert (snapshot.facts.state, snapshot.observed) == ("D", True)
        assert "start_tool" in functions(snapshot.threads)
        assert state_of(process.pid) == "D"
        (tmp_path / "never-written").write_bytes(b"")
        assert first_line(process) == ["woke"]


def test_a_rank_that_blocks_in_the_kernel_under_the_tool_is_read_and_goes_on(tmp_path: Path) -> None:
    """The tool is told to wait for the rank just as the rank goes to sleep: it must be ended."""
    go = tmp_path / "go"
    os.mkfifo(go)
    real = Path(sys.executable).parent / "py-spy"
    late = a_tool(
        tmp_path,
        f'case "$*" in *--nonblocking*) exec {real} "$@";; esac\n'
        f'echo > {go}; until grep -q "^State:.D" /proc/$pid/status; do :; done; exec {real} "$@"',
    )
    fifo = tmp_path / "never-written"
    os.mkfifo(fifo)
    code = BLOCKED_IN_KERNEL.replace("start_tool(sys", "open(sys.argv[2]).read()\nstart_tool(sys")
    with running(code, argv=(str(fifo), str(go))) as process:
        first_line(process)
        wait_until(lambda: state_of(process.pid) == "S")
        snapshot = capture(process.pid, pyspy=late, rank_timeout=1.0, children=False)
        assert (snapshot.observed, snapshot.reason) == (True, None)
        assert "start_tool" in functions(snapshot.threads)
        fifo.write_bytes(b"")
        assert first_line(process) == ["woke"]
        wait_until(lambda: state_of(process.pid) == "S")


def test_a_rank_left_stopped_by_a_killed_tool_is_revived(tmp_path: Path) -> None:
    stop = 'case "$*" in *--nonblocking*) ;; *) kill -STOP "$pid";; esac'
    stopping = a_tool(tmp_path, f"{stop}; exec sleep 1000")
    with waiting_process() as process:
        snapshot = capture(process.pid, pyspy=stopping, timeout=0.3)
        assert (snapshot.observed, snapshot.reason) == (False, OUT_OF_TIME)
        assert snapshot.facts is not None
        wait_until(lambda: state_of(process.pid) == "S")


def test_a_rank_that_was_stopped_before_is_not_revived_when_a_tool_is_killed(tmp_path: Path) -> None:
    slow = a_tool(tmp_path, "exec sleep 1000")
    with waiting_process() as process:
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: state_of(process.pid) == "T")
        assert capture(process.pid, pyspy=slow, timeout=0.2).reason == OUT_OF_TIME
        assert state_of(process.pid) == "T"


def test_a_zombie_and_a_gone_process_are_named_as_what_they_are() -> None:
    with waiting_process() as process:
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: state_of(process.pid) == "Z")
        zombie = capture(process.pid)
        assert (zombie.observed, zombie.reason) == (False, ZOMBIE)
        assert zombie.facts is not None
    (gone,) = capture_ranks((Target(0, process.pid, exit=ExitFacts(-9)),), timeout=DEADLINE)
    assert (gone.observed, gone.reason, gone.facts, gone.exit) == (False, GONE, None, ExitFacts(-9))
    assert capture(0).reason == GONE


def test_a_process_with_another_start_time_is_not_the_rank() -> None:
    with waiting_process() as process:
        (snapshot,) = capture_ranks((Target(0, process.pid, start_ticks=1),), timeout=DEADLINE)
    assert (snapshot.observed, snapshot.reason, snapshot.threads) == (False, REPLACED, ())


def test_a_program_that_is_not_python_says_so() -> None:
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        wait_until(lambda: proc.is_python(other.pid) is False)
        assert capture(other.pid).reason == "not a Python process (sleep)"
    finally:
        end_group(other)


def test_a_rank_that_may_not_be_traced_says_what_to_do() -> None:
    with running(HIDDEN) as process:
        first_line(process)
        reason = seen_without_capabilities(
            "from rankscope.diag.capture import Target, capture_ranks",
            "print(capture_ranks((Target(0, int(sys.argv[1])),), timeout=9)[0].reason)",
            str(process.pid),
        )
    assert reason == (OTHER_USER if os.geteuid() == 0 else PTRACE_DENIED)


def test_a_missing_or_broken_tool_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = str(tmp_path / "nowhere")
    with waiting_process_of_this_python() as pid:
        assert capture(pid).reason == NO_TOOL
        assert capture(pid, pyspy=missing).reason == (
            f"py-spy: cannot start {missing}: No such file or directory"
        )
        garbage = a_tool(tmp_path, "echo '[{'")
        assert not capture(pid, pyspy=garbage).observed
        assert "no Python thread" in (capture(pid, pyspy=a_tool(tmp_path, "echo '[]'")).reason or "")


@contextlib.contextmanager
def waiting_process_of_this_python() -> Generator[int]:
    """This very process would do, were it not the one that captures: a fork that sleeps."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_slow_tool_is_ended_with_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    slow = a_tool(tmp_path, f"sleep 1000 & echo $$ $! >> {pids}; wait")
    with waiting_process() as process:
        snapshot = capture(process.pid, pyspy=slow, timeout=0.3)
        assert snapshot.reason == OUT_OF_TIME
        started = [int(pid) for pid in pids.read_text().split()]
        assert started
        wait_until(lambda: all(state_of(pid) in {None, "Z"} for pid in started))


def test_a_tool_that_did_not_answer_is_tried_last_the_next_time(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    hanging, remembered = a_tool(tmp_path, f"echo run >> {runs}; exec sleep 1000"), SlowTools()
    with waiting_process() as rank:
        for why, times in (("py-spy did not answer in 2 s", 2), ("py-spy did not answer before", 2)):
            (seen,) = capture_ranks(
                (Target(0, rank.pid),), timeout=60, rank_timeout=2.0, pyspy=hanging, slow=remembered
            )
            assert seen.source == "pystack"
            assert seen.reason == f"{why}; stacks by pystack: no Python thread names"
            assert runs.read_text() == "run\n" * times  # it may be blocked by the process: once more without
        (seen,) = capture_ranks((Target(0, rank.pid),), timeout=60, backends=("py-spy",), slow=remembered)
        assert seen.source == "py-spy"
        (seen,) = capture_ranks((Target(0, rank.pid),), timeout=60, slow=remembered)
        assert seen.source == "py-spy"


def test_a_tool_that_writes_without_end_has_failed_and_fills_no_memory(tmp_path: Path) -> None:
    endless = a_tool(tmp_path, "exec yes '[{'")
    with waiting_process() as rank:
        (snapshot,) = capture_ranks((Target(0, rank.pid),), timeout=60, pyspy=endless, backends=("py-spy",))
        assert snapshot.reason == "py-spy: its output is larger than 16 MiB"
        (snapshot,) = capture_ranks((Target(0, rank.pid),), timeout=60, pyspy=endless)
        assert snapshot.source == "pystack"


def test_ranks_that_time_does_not_reach_say_so_and_keep_their_facts(tmp_path: Path) -> None:
    slow = a_tool(tmp_path, "exec sleep 1000")
    with waiting_process() as process:
        targets = [Target(rank, process.pid) for rank in range(12)]
        snapshots = capture_ranks(targets, timeout=0.3, pyspy=slow, backends=("py-spy",))
    assert [snapshot.rank for snapshot in snapshots] == list(range(12))
    assert {snapshot.reason for snapshot in snapshots} == {OUT_OF_TIME}
    assert all(snapshot.facts is not None and snapshot.facts.state == "S" for snapshot in snapshots)


def test_captures_at_once_on_one_rank_all_get_its_stacks() -> None:
    with waiting_process() as process, ThreadPoolExecutor(6) as pool:
        for snapshot in pool.map(capture, [process.pid] * 12):
            assert (snapshot.observed, snapshot.reason) == (True, None)
            assert "inner_call" in functions(snapshot.threads)


def test_a_rank_that_a_debugger_traces_is_read_all_the_same() -> None:
    with waiting_process() as process, running(TRACER, argv=(str(process.pid),)) as tracer:
        assert first_line(tracer) == ["0"]
        assert proc.read_access(process.pid).traced_by == tracer.pid
        snapshot = capture(process.pid)
        assert (snapshot.observed, snapshot.reason) == (True, None)
        assert "inner_call" in functions(snapshot.threads)


def test_a_rank_whose_lock_is_taken_is_read_without_stopping_it(tmp_path: Path) -> None:
    arguments = tmp_path / "arguments"
    noting = a_tool(tmp_path, f'echo "$@" >> {arguments}; echo "[]"')
    with waiting_process() as process:
        with process_lock(process.pid, deadline=time.monotonic()) as held:
            assert held
            capture_process(process.pid, tools=Toolbox(noting), deadline=time.monotonic() + DEADLINE)
        assert arguments.read_text().splitlines()[0] == f"dump --json --nonblocking --pid {process.pid}"


def test_a_lock_is_for_one_at_a_time_and_leaves_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    inside = threading.Semaphore(1)

    def enter(_turn: int) -> bool:
        with process_lock(7, deadline=time.monotonic() + DEADLINE, folder=folder) as held:
            alone = inside.acquire(blocking=False)
            inside.release()
            return held and alone

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(enter, range(200)))
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    with process_lock(7, deadline=time.monotonic(), folder=folder):
        pass
    (folder / "7.lock").touch(mode=0o600)
    with process_lock(7, deadline=time.monotonic(), folder=folder) as held:
        assert held
    with (folder / "8.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with process_lock(8, deadline=time.monotonic(), folder=folder) as held:
            assert not held


def test_locks_that_the_killed_have_left_are_removed_once_their_process_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    with process_lock(NOBODY, deadline=time.monotonic(), folder=folder):
        for name in (f"{NOBODY + 1}.lock", f"{os.getpid()}.lock", "other"):
            (folder / name).touch(mode=0o600)
        remove_stale(folder)
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            (f"{NOBODY}.lock", f"{os.getpid()}.lock", "other")
        )
    remove_stale(tmp_path / "none")


def test_nobody_loses_a_lock_to_whoever_removes_stale_ones(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    inside = threading.Semaphore(1)

    def enter(turn: int) -> bool:
        if turn % 2:
            remove_stale(folder)
            return True
        with process_lock(NOBODY, deadline=time.monotonic() + DEADLINE, folder=folder) as held:
            alone = inside.acquire(blocking=False)
            inside.release()
            return held and alone

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(enter, range(400)))


def test_a_look_takes_away_the_locks_that_the_killed_have_left() -> None:
    with process_lock(NOBODY, deadline=time.monotonic()):
        pass
    left = lock_folder() / f"{NOBODY}.lock"
    left.touch(mode=0o600)
    capture_ranks([Target(0, NOBODY)], timeout=DEADLINE)
    assert not left.exists()


def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    with process_lock(7, deadline=time.monotonic(), folder=folder) as held:
        assert held
    assert list(folder.iterdir()) == []
    assert lock_folder().name == f"rankscope-{os.geteuid()}"


def test_children_are_sampled_and_other_ranks_are_nobodys_children() -> None:
    with running(WITH_CHILDREN) as process:
        _ready, forked, other = first_line(process)
        wait_until(lambda: proc.is_python(int(other)) is False)
        for pid, name in ((int(forked), "load_batches"), (process.pid, "wait_for_loader")):
            wait_until(lambda pid=pid, name=name: name in functions(capture(pid, children=False).threads))  # type: ignore[misc]
        snapshot = capture(process.pid)
        by_pid = {child.pid: child for child in snapshot.children}
        assert set(by_pid) == {int(forked), int(other)}
        assert "load_batches" in functions(by_pid[int(forked)].threads)
        sleeper = by_pid[int(other)]
        assert (sleeper.threads, sleeper.reason) == ((), "not a Python process (sleep)")
        assert sleeper.facts is not None
        assert "wait_for_loader" in functions(snapshot.threads)

        targets = (Target(0, process.pid), Target(1, int(forked)))
        first, second = capture_ranks(targets, timeout=DEADLINE)
        assert [child.pid for child in first.children] == [int(other)]
        assert second.observed
        assert capture(process.pid, children=False).children == ()


def test_a_capturing_process_and_its_tools_are_nobodys_children() -> None:
    capture_parent = (
        "import os; from rankscope.diag.capture import Target, capture_ranks\n"
        "(parent,) = capture_ranks((Target(0, os.getppid()),), timeout=20)\n"
        "print(parent.observed, [child.facts.comm for child in parent.children], flush=True)"
    )
    code = (
        "import subprocess, sys\n"
        "other = subprocess.Popen(['sleep', '1000'])\n"
        "subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    )
    with running(code, argv=(capture_parent,)) as process:
        assert first_line(process) == ["True", "['sleep']"]


def test_children_past_the_limit_are_listed_without_stacks() -> None:
    with running(MANY_CHILDREN) as process:
        first_line(process)
        children = capture(process.pid).children
    assert len(children) == 18
    assert all(child.threads for child in children[:MAX_CHILDREN])
    assert {child.reason for child in children[MAX_CHILDREN:]} == {NOT_SAMPLED}
    assert all(child.facts is not None for child in children)


def test_ranks_are_read_before_any_child(tmp_path: Path) -> None:
    order = tmp_path / "order"
    noting = a_tool(tmp_path, f'echo "$pid" >> {order}; echo "[]"')
    with running(WITH_CHILDREN) as first, running(WITH_CHILDREN) as second:
        first_line(first)
        first_line(second)
        ranks = {first.pid, second.pid}
        capture_ranks(
            [Target(0, first.pid), Target(1, second.pid)],
            timeout=DEADLINE,
            pyspy=noting,
            backends=("py-spy",),
        )
        seen = [int(pid) for pid in order.read_text().split() if pid.isdigit()]
    first_child = next(place for place, pid in enumerate(seen) if pid not in ranks)
    assert ranks == set(seen[:first_child])
    assert ranks.isdisjoint(seen[first_child:])


def test_twenty_captures_in_a_row_leave_a_rank_as_it_was() -> None:
    files = len(list(Path("/proc/self/fd").iterdir()))
    with running(SPINNING) as process:
        first_line(process)
        start = proc.read_facts(process.pid, now=time.monotonic())
        assert start is not None
        for _ in range(20):
            snapshot = capture(process.pid)
            assert (snapshot.observed, snapshot.reason) == (True, None)
            assert "spin" in functions(snapshot.threads)
        end = proc.read_facts(process.pid, now=time.monotonic())
        assert end is not None
        assert (end.state, end.thread_count, end.start_ticks) == ("R", start.thread_count, start.start_ticks)
        assert not proc.read_access(process.pid).stopped
        assert proc.read_access(process.pid).traced_by == 0
    assert len(list(Path("/proc/self/fd").iterdir())) == files
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rankscope-capture")]
