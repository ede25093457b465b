"""Capture where the usual tool cannot look: no right to trace, no py-spy, another namespace, a held GIL."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.capture_factory import (
    DEADLINE,
    end_group,
    first_line,
    running,
    seen_without_ptrace,
    state_of,
    traced,
    waiting_process,
)
from tests.capture_factory import wait_until as until
from tests.probe_factory import Workers, workers

from rankscope.diag import proc
from rankscope.diag.capture import Target, capture_ranks
from rankscope.diag.capture.closer import look_closer
from rankscope.diag.capture.plan import NO_PYSPY, NO_TOOL, PTRACE_DENIED, Backend
from rankscope.diag.capture.server import find_server
from rankscope.diag.model import JobSnapshot, RankSnapshot
from rankscope.watchdog.answers import answer_file, read_answer, socket_file

BY_FAULTHANDLER = "stacks by faulthandler: no thread names, no native frames, at most 100 frames"
HIDE = """
import ctypes, os, sys, time
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE
"""
HIDDEN_RANK = f"""{HIDE}
def inner(): time.sleep(1000)
if os.fork() == 0:
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # ends with its parent
    def load(): time.sleep(1000)
    load()
print("ready", flush=True)
inner()
"""
HIDDEN_IN_KERNEL = f"""{HIDE}
os.mkfifo("never-written")
print("ready", flush=True)
def start_tool():
    opened = [(os.POSIX_SPAWN_OPEN, 9, "never-written", os.O_RDONLY, 0)]
    os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=opened)
start_tool()
print("woke", flush=True)
time.sleep(1000)
"""
IN_STORE = """
import datetime, os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("rendezvous"), rank=0, world_size=1)
for _ in range(100):
    dist.all_reduce(torch.ones(1))
store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=datetime.timedelta(seconds=1000))
print("ready", flush=True)
sys.stdin.readline()
store.get("never set")
"""
CAPTURE = """
(snapshot,) = capture_ranks((Target(0, int(sys.argv[1]), answers=sys.argv[2]),), timeout=15)
print(msgspec.json.encode(snapshot).decode())
"""
IMPORTS = "import msgspec; from rankscope.diag.capture import Target, capture_ranks"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path, slots=1) as made:
        yield made


def started(node: Workers, source: str, **more: str) -> subprocess.Popen[str]:
    """A rank that has printed its first line, and whose probe's thread may be asked."""
    process = node.start(node.script(source), rank=0, **more)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    until(lambda: _thread_of(node, process.pid) > 0)
    return process


def _thread_of(node: Workers, pid: int) -> int:
    with contextlib.suppress(FileNotFoundError):
        answer = read_answer(Path(answer_file(str(node.answers), pid)).read_text())
        return answer.thread_id if answer is not None else 0
    return 0


def without_ptrace(node: Workers, pid: int) -> RankSnapshot:
    """Captured by a process that may not trace the rank."""
    return msgspec.json.decode(
        seen_without_ptrace(IMPORTS, CAPTURE, str(pid), str(node.answers)), type=RankSnapshot
    )


def capture(
    pid: int, *backends: Backend, answers: str = "", rank: int = 0, native: bool = False
) -> RankSnapshot:
    (snapshot,) = capture_ranks(
        (Target(rank, pid, answers=answers),), timeout=DEADLINE, backends=backends, native=native
    )
    return snapshot


def main_functions(snapshot: RankSnapshot) -> list[str]:
    (main,) = (thread for thread in snapshot.threads if thread.is_main)
    return [frame.function for frame in main.frames]


def test_without_the_right_to_trace_a_rank_and_its_forked_children_answer_themselves(node: Workers) -> None:
    process = started(node, HIDDEN_RANK)
    snapshot = without_ptrace(node, process.pid)
    assert snapshot.observed
    assert (snapshot.source, snapshot.reason) == ("faulthandler", f"ptrace denied; {BY_FAULTHANDLER}")
    assert main_functions(snapshot) == ["inner", "<module>"]
    (child,) = snapshot.children
    assert child.reason == f"ptrace denied; {BY_FAULTHANDLER}"
    assert [[frame.function for frame in thread.frames] for thread in child.threads] == [["load", "<module>"]]
    assert process.poll() is None
    assert state_of(child.pid) == "S"


def test_without_the_right_to_trace_a_rank_blocked_in_the_kernel_answers_through_its_other_thread(
    node: Workers,
) -> None:
    process = started(node, HIDDEN_IN_KERNEL)
    until(lambda: state_of(process.pid) == "D")
    snapshot = without_ptrace(node, process.pid)
    assert (snapshot.source, snapshot.facts and snapshot.facts.state) == ("faulthandler", "D")
    assert main_functions(snapshot) == ["start_tool", "<module>"]
    assert state_of(process.pid) == "D"
    (node.folder / "never-written").write_bytes(b"")
    assert process.stdout is not None
    assert process.stdout.readline() == "woke\n"


def test_a_stopped_rank_gets_no_signal_that_would_wait_for_it(node: Workers) -> None:
    process = started(node, HIDDEN_RANK)
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: state_of(process.pid) == "T")
    snapshot = without_ptrace(node, process.pid)
    assert (snapshot.observed, snapshot.reason) == (False, PTRACE_DENIED)
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert "ShdPnd:\t0000000000000000" in status


def test_a_rank_that_a_debugger_watches_gets_no_signal(node: Workers) -> None:
    process = started(node, f"import time\n{IDLE}")
    with traced(process.pid) as tracer:
        assert proc.read_access(process.pid).traced_by == tracer
        alone = capture(process.pid, "faulthandler", answers=str(node.answers))
        assert (alone.observed, alone.reason) == (False, NO_TOOL)
        assert main_functions(capture(process.pid, "py-spy")) == ["inner", "<module>"]
        assert main_functions(capture(process.pid, "pystack")) == ["inner", "<module>"]


IDLE = """
def inner(): time.sleep(1000)
print("ready", flush=True)
inner()
"""


def test_what_a_rank_writes_to_answer_is_none_of_its_own_work(node: Workers) -> None:
    process = started(node, f"import time\n{IDLE}")
    first, second, third = (
        capture(process.pid, "faulthandler", answers=str(node.answers)).facts for _ in range(3)
    )
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.look_bytes > 0
    assert second.io_bytes == first.io_bytes + first.look_bytes
    assert third.io_bytes == second.io_bytes + second.look_bytes


def test_with_pystack_alone_the_stacks_say_what_they_lack() -> None:
    with waiting_process() as process:
        snapshot = capture(process.pid, "pystack")
    assert snapshot.source == "pystack"
    assert snapshot.reason == f"{NO_PYSPY}; stacks by pystack: no Python thread names"
    assert main_functions(snapshot) == ["inner_call", "outer_call", "<module>"]
    assert len(snapshot.threads) == 2


def test_where_py_spy_fails_pystack_takes_its_place(tmp_path: Path) -> None:
    broken = tmp_path / "py-spy"
    broken.write_text("#!/bin/sh\necho 'Error: this Python is too new' >&2; exit 1\n")
    broken.chmod(0o755)
    with waiting_process() as process:
        (snapshot,) = capture_ranks((Target(0, process.pid),), timeout=DEADLINE, pyspy=str(broken))
    assert snapshot.source == "pystack"
    assert snapshot.reason == "py-spy: this Python is too new; stacks by pystack: no Python thread names"


def test_native_frames_name_themselves_as_the_source() -> None:
    with waiting_process() as process:
        for backend in ("py-spy", "pystack"):
            snapshot = capture(process.pid, backend, native=True)
            assert snapshot.source == f"{backend} --native"
            assert any(frame.kind == "native" for thread in snapshot.threads for frame in thread.frames)
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: state_of(process.pid) == "T")
        stopped = capture(process.pid, "py-spy", native=True)
        assert (stopped.source, stopped.reason) == (
            "py-spy",
            "the process may not be stopped; stacks by py-spy: no native frames",
        )


def test_a_rank_in_another_pid_namespace_is_read_and_answers(node: Workers) -> None:
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        pytest.skip("no pid namespaces here")
    script = node.script(f"import time\n{IDLE}")
    launcher = subprocess.Popen(
        [*unshare, sys.executable, str(script)],
        env=node.environment(0, RANKSCOPE_AGENT_PID="0"),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert first_line(launcher) == ["ready"]
        (pid,) = proc.children(launcher.pid)
        until(lambda: _thread_of(node, 1) > 0)
        for backend in ("py-spy", "pystack", "faulthandler"):
            snapshot = capture(pid, backend, answers=str(node.answers))
            assert snapshot.observed, snapshot.reason
            assert snapshot.source == backend
            assert main_functions(snapshot) == ["inner", "<module>"]
    finally:
        end_group(launcher)


def test_a_record_is_asked_for_when_it_is_wanted_and_trimmed(node: Workers) -> None:
    process = started(node, IN_STORE)
    until(lambda: Path(socket_file(str(node.answers), process.pid)).is_socket())
    snapshot = capture(process.pid, "py-spy")  # finds the folder through the rank's environment
    assert snapshot.server_answers is True
    assert snapshot.record is not None
    assert [entry.seq for entry in snapshot.record.entries] == list(range(37, 101))
    assert {entry.op for entry in snapshot.record.entries} == {"all_reduce"}
    assert snapshot.record.is_whole is False
    (group,) = snapshot.record.groups
    assert group.enqueued == 100
    (quick,) = capture_ranks((Target(0, process.pid),), timeout=DEADLINE, record=False)
    assert (quick.record, quick.server_answers) == (None, None)
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: state_of(process.pid) == "T")
    begin = time.monotonic()
    assert capture(process.pid, "py-spy").server_answers is None
    assert time.monotonic() - begin < DEADLINE / 2, "a stopped process is not waited for"
    os.kill(process.pid, signal.SIGCONT)


OWN_SERVER = f"""
import os, torch
from torch._C._distributed_c10d import _WorkerServer
server = _WorkerServer(*SERVER)
{IN_STORE}
"""


@pytest.mark.parametrize("where", ['("::", 0)', '(os.environ["TORCH_WORKER_SERVER_SOCKET"],)', '("own",)'])
def test_a_server_that_the_job_started_itself_is_asked(tmp_path: Path, where: str) -> None:
    env = {"TORCH_WORKER_SERVER_SOCKET": str(tmp_path / "named")} if "environ" in where else {}
    code = f"import os; os.chdir({str(tmp_path)!r})\n" + OWN_SERVER.replace("*SERVER", f"*{where}")
    with running(code, env=env) as process:
        assert first_line(process) == ["ready"]
        until(lambda: find_server(process.pid, folders=(), environ=env) is not None)
        snapshot = capture(process.pid, "py-spy")
        assert snapshot.server_answers is True
        assert snapshot.record is not None


def test_a_dump_that_the_rank_has_written_is_read_and_an_older_one_is_not(tmp_path: Path) -> None:
    prefix = str(tmp_path / "trace_rank_")
    Path(f"{prefix}1").write_text('{"version": "2.10", "entries": []}')
    os.utime(f"{prefix}1", (1, 1))
    with waiting_process(env={"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": prefix}) as process:
        assert capture(process.pid, "py-spy", rank=1).record is None
        Path(f"{prefix}1").touch()
        until(lambda: Path(f"{prefix}1").stat().st_mtime > 1)
        snapshot = capture(process.pid, "py-spy", rank=1)
    assert snapshot.record is not None
    assert snapshot.server_answers is None


def test_a_closer_look_shows_the_native_frames_of_the_ranks_that_are_named(node: Workers) -> None:
    process = started(node, IN_STORE)
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    until(lambda: (facts := proc.read_facts(process.pid, now=0.0)) is not None and facts.wchan is not None)
    first = JobSnapshot("job", time.time(), 1, (capture(process.pid, "py-spy"),))
    assert first.ranks[0].source == "py-spy"
    assert look_closer(first, (), deadline=time.monotonic() + DEADLINE) is first
    assert look_closer(first, (0,), deadline=time.monotonic()) is first
    (closer,) = look_closer(first, (0,), deadline=time.monotonic() + DEADLINE, longest_hold=DEADLINE).ranks
    assert (closer.source, closer.reason) == ("py-spy --native", None)
    assert any("c10d::TCPStore" in function for function in main_functions(closer))
    assert closer.record == first.ranks[0].record
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: state_of(process.pid) == "T")
    (kept,) = look_closer(first, (0,), deadline=time.monotonic() + DEADLINE).ranks
    assert kept.threads == first.ranks[0].threads
    assert kept.reason is not None
    assert "no native frames" in kept.reason
    os.kill(process.pid, signal.SIGCONT)
