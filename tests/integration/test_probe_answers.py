"""How a worker answers those who look at it, and that nothing of the user's is touched by it."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.probe_factory import DEADLINE, Workers, finish, wait_until, workers

from rankscope.diag.capture.answers import Answering, ask_stacks, find_answering
from rankscope.diag.capture.server import ServerAnswer, ask_server, find_server
from rankscope.diag.model import ThreadStack
from rankscope.watchdog import probe
from rankscope.watchdog.answers import DUMP_SIGNAL, answer_file, socket_file, stacks_file
from rankscope.watchdog.probe import worker_server
from rankscope.watchdog.probe.process_stat import start_ticks
from rankscope.watchdog.probe.worker_server import has_room

WAIT = "print('ready', flush=True); import sys; sys.stdin.read()"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path, slots=1) as made:
        yield made


def started(node: Workers, source: str, **more: str) -> subprocess.Popen[str]:
    """A rank that has printed its first line."""
    process = node.start(node.script(source), rank=0, **more)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def answering(node: Workers, pid: int, *, forked_from: int = 0) -> Answering | None:
    return find_answering(pid, start_ticks(pid), folders=[str(node.answers)], forked_from=forked_from)


def stacks(found: Answering | None, *, to_thread: bool = False) -> list[list[str]]:
    """Functions of each thread, after a dump."""
    assert found is not None
    threads, problem, _size = ask_stacks(found, to_thread=to_thread, deadline=time.monotonic() + DEADLINE)
    assert threads, problem
    return [[frame.function for frame in thread.frames] for thread in with_main_first(threads)]


def with_main_first(threads: tuple[ThreadStack, ...]) -> list[ThreadStack]:
    assert sum(thread.is_main for thread in threads) == 1
    return sorted(threads, key=lambda thread: not thread.is_main)


def is_ready(node: Workers, pid: int) -> bool:
    """Whether the probe's thread has said that it may be asked too."""
    found = answering(node, pid)
    return found is not None and found.readiness.by_thread


def ask(node: Workers, pid: int) -> ServerAnswer:
    address = find_server(pid, folders=[str(node.answers)], environ={})
    assert address is not None
    return ask_server(address, deadline=time.monotonic() + DEADLINE)


def test_a_rank_dumps_its_threads_again_and_again_and_goes_on(node: Workers) -> None:
    process = started(
        node,
        """
        import sys, threading
        def inner():
            print("ready", flush=True)
            sys.stdin.read()
        def helper(): threading.Event().wait()
        threading.Thread(target=helper, daemon=True).start()
        inner()
        print("end")
        """,
    )
    wait_until(lambda: is_ready(node, process.pid), "the probe's thread is known")
    for to_thread in (False, True, False):
        found = stacks(answering(node, process.pid), to_thread=to_thread)
        assert found[0] == ["inner", "<module>"]
        assert any("helper" in functions for functions in found[1:])
        assert any("_run" in functions for functions in found[1:]), "the probe's own thread"
        assert Path(stacks_file(str(node.answers), process.pid)).stat().st_size == 0
    assert finish(process) == (0, "end\n", "")
    assert list(node.answers.iterdir()) == []


def test_a_stacks_file_that_is_another_file_too_is_not_emptied(node: Workers) -> None:
    process = started(node, WAIT)
    found = answering(node, process.pid)
    precious = node.folder / "precious"
    precious.hardlink_to(stacks_file(str(node.answers), process.pid))
    precious.write_text("keep")
    assert found is not None
    threads, reason, _size = ask_stacks(found, to_thread=False, deadline=time.monotonic() + DEADLINE)
    assert (threads, reason) == ((), "the file for its stacks is not its own")
    assert precious.read_text() == "keep"
    precious.unlink()
    assert stacks(found)
    finish(process)


BUSY_IN_C = """
    import ctypes, torch, torch.distributed as dist, os, sys
    meet = "file://" + os.path.abspath("rendezvous")
    dist.init_process_group("gloo", init_method=meet, rank=0, world_size=1)
    dist.all_reduce(torch.ones(1))
    print("ready", flush=True)
    sys.stdin.readline()
    def hold_the_gil():
        semaphore = ctypes.create_string_buffer(64)
        libc = ctypes.PyDLL(None)  # does not release the GIL
        libc.sem_init(semaphore, 0, 0)
        libc.sem_wait(semaphore)
    hold_the_gil()
"""


def test_with_the_gil_held_in_c_both_the_stacks_and_torchs_server_answer(node: Workers) -> None:
    process = started(node, BUSY_IN_C)
    wait_until(lambda: Path(socket_file(str(node.answers), process.pid)).is_socket(), "the server runs")
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    wait_until(lambda: stacks(answering(node, process.pid))[0][0] == "hold_the_gil", "it holds the GIL")
    answer = ask(node, process.pid)
    assert answer.answers is True
    assert b'"gloo:all_reduce"' in answer.record
    os.kill(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "taking",
    [
        "import signal; signal.signal({number}, lambda *_: print('mine', flush=True))",
        "import faulthandler; faulthandler.register({number})",
        "import faulthandler; faulthandler.unregister({number})",
        "from ctypes import *; mine = CFUNCTYPE(None, c_int)(print); CDLL(None).signal({number}, mine)",
    ],
    ids=["signal.signal", "faulthandler.register", "faulthandler.unregister", "in C"],
)
def test_a_user_who_takes_the_signal_has_it(node: Workers, taking: str) -> None:
    process = started(
        node,
        f"{WAIT.partition(';')[0]}\nimport sys\nsys.stdin.readline()\n"
        + taking.format(number=DUMP_SIGNAL)
        + "\nsys.stdin.read()\n",
    )
    wait_until(lambda: is_ready(node, process.pid), "it answers")
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    wait_until(lambda: answering(node, process.pid) is None, "the answer is withdrawn")
    assert finish(process)[:2] == (0, "")
    assert list(node.answers.iterdir()) == []


WAITS_FOR_THE_SIGNAL = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {57})
print("ready", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 57)
print(signal.sigtimedwait({57}, 20).si_signo, flush=True)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {57})
sys.stdin.read()
"""


def test_a_user_who_blocks_the_signal_and_waits_for_it_gets_it(node: Workers) -> None:
    process = started(node, WAITS_FOR_THE_SIGNAL)

    def is_asked() -> bool:
        found = answering(node, process.pid)
        return found is not None and (found.readiness.by_process or found.readiness.by_thread)

    wait_until(lambda: answering(node, process.pid) is not None, "the probe to answer")
    wait_until(lambda: not is_asked(), "the probe to leave the signal alone")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "57\n"
    wait_until(is_asked, "the probe to take it again")
    finish(process)


def test_a_signal_that_the_user_ignores_or_handles_already_is_left_alone(node: Workers) -> None:
    (node.folder / "own").mkdir()
    (node.folder / "own" / "sitecustomize.py").write_text(
        f"import signal; signal.signal({DUMP_SIGNAL}, lambda *_: print('mine', flush=True))"
    )
    process = started(node, WAIT, PYTHONPATH=probe.pythonpath(str(node.folder / "own")))
    wait_until(lambda: node.slot().beat_ns > 0, "the probe runs")
    assert answering(node, process.pid) is None
    assert list(node.answers.iterdir()) == []
    os.kill(process.pid, DUMP_SIGNAL)
    assert finish(process) == (0, "mine\n", "")


def test_a_descriptor_closed_by_the_user_is_taken_anew_and_no_file_of_his_is_written_to(
    node: Workers,
) -> None:
    process = started(
        node,
        """
        import os, sys
        print("ready", flush=True)
        sys.stdin.readline()
        os.closerange(3, 2000)
        mine = os.open("mine", os.O_WRONLY | os.O_CREAT)
        os.dup2(mine, 900)
        print("closed", flush=True)
        sys.stdin.read()
        """,
    )
    wait_until(lambda: is_ready(node, process.pid), "it answers")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "closed\n"
    assert_not_asked_by_a_stale_word(node, process.pid)
    wait_until(lambda: is_ready(node, process.pid), "it answers again")
    assert stacks(answering(node, process.pid))[0] == ["<module>"]
    assert finish(process) == (0, "", "")
    assert (node.folder / "mine").read_bytes() == b""


def assert_not_asked_by_a_stale_word(node: Workers, pid: int) -> None:
    """Until the probe has looked, the word names a descriptor that is the user's: it is seen to be."""
    found = answering(node, pid)
    assert found is None or found.answer.fd != 900


def test_forked_children_answer_into_the_ranks_file_and_take_nothing_with_them(node: Workers) -> None:
    process = started(
        node,
        """
        import ctypes, os, sys, time
        import torch.distributed
        time.sleep(1.2)
        def load():
            sys.stdin.read()
        short = os.fork()
        if short == 0:
            sys.exit(0)  # an ordinary end: atexit, destructors
        os.waitpid(short, 0)
        long = os.fork()
        if long == 0:
            print("ready", os.getpid(), sep="\\n", flush=True)  # what Python does after a fork is done
            sys.stdin.read()  # ends with the rank: left behind it would hold the pipes open
            os._exit(0)
        load()
        os.waitpid(long, 0)
        """,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    found = answering(node, child, forked_from=process.pid)
    assert found is not None
    assert not found.readiness.by_thread, "the probe's thread is not forked"
    assert stacks(found) == [["<module>"]]
    rank = answering(node, process.pid)
    wait_until(lambda: stacks(rank)[0] == ["load", "<module>"], "the rank has gone on")
    assert ask(node, process.pid).answers is True
    assert finish(process) == (0, "", "")


def test_a_child_that_runs_another_program_is_sent_no_signal(node: Workers) -> None:
    process = started(
        node,
        """
        import subprocess, sys
        child = subprocess.Popen(["sleep", "1000"])
        print("ready", flush=True)
        print(child.pid, flush=True)
        sys.stdin.read()
        child.kill()
        """,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    wait_until(lambda: b"sleep" in Path(f"/proc/{child}/comm").read_bytes(), "the child runs sleep")
    assert answering(node, child, forked_from=process.pid) is None
    assert finish(process) == (0, "", "")


def test_the_server_takes_no_line_and_no_descriptor_of_the_user(node: Workers) -> None:
    source = """
        import os, sys, threading
        def report():
            for number in range(20000):
                os.write(2, b"line %d\\n" % number)
        writer = threading.Thread(target=report)
        writer.start()
        import torch.distributed
        writer.join()
        held, kept = os.pipe()
        print("ready", flush=True)
        sys.stdin.readline()
        os.close(kept)
        print(os.read(held, 1) == b"", sorted(os.listdir("/proc/self/fd"), key=int)[:-1], flush=True)
        for number in range(20000):
            os.write(2, b"more %d\\n" % number)
    """
    process = node.start(node.script(source))
    assert process.stderr is not None
    lines = finish_after_server(node, process)
    assert lines == [f"line {number}" for number in range(20000)] + [
        f"more {number}" for number in range(20000)
    ]


def finish_after_server(node: Workers, process: subprocess.Popen[str]) -> list[str]:
    """Let the rank go on once the server runs; what it wrote to stderr."""
    assert process.stderr is not None
    assert process.stdout is not None
    assert process.stdin is not None
    errors: list[str] = []
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()))
    reader.start()
    assert process.stdout.readline() == "ready\n"
    wait_until(lambda: Path(socket_file(str(node.answers), process.pid)).is_socket(), "the server runs")
    process.stdin.write("\n")
    process.stdin.flush()
    first = process.stdout.readline()
    assert first.startswith("True "), "a pipe whose end is closed ends"
    assert "socket" not in " ".join(os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in _fds(process.pid))  # noqa: PTH115
    reader.join(DEADLINE)
    process.wait(DEADLINE)
    return [line.rstrip("\n") for line in errors]


def _fds(pid: int) -> list[str]:
    return [path.name for path in Path(f"/proc/{pid}/fd").iterdir()]


def test_the_server_leaves_broken_pipes_to_the_user(node: Workers) -> None:
    """Its constructor has SIGPIPE ignored in the whole process; a client that hangs up must not end it."""
    process = started(
        node,
        """
        import signal, sys
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        import torch.distributed
        print("ready", flush=True)
        sys.stdin.readline()
        """,
    )
    path = Path(socket_file(str(node.answers), process.pid))
    wait_until(path.is_socket, "the server runs")
    wait_until(lambda: ask(node, process.pid).answers is True, "it answers")
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(b"POST /handler/fr_trace_json HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    assert ask(node, process.pid).answers is True
    status = Path(f"/proc/{process.pid}/status").read_text()
    ignored = int(status.partition("SigIgn:\t")[2].split()[0], 16)
    assert not ignored & 1 << (signal.SIGPIPE - 1)
    assert finish(process) == (0, "", "")


def test_the_server_is_not_started_where_it_is_switched_off(node: Workers) -> None:
    process = started(node, f"import torch.distributed\n{WAIT}", RANKSCOPE_SERVER="0")
    begin = node.slot().beat_ns
    wait_until(lambda: node.slot().beat_ns > begin, "a beat after torch was loaded")
    begin = node.slot().beat_ns
    wait_until(lambda: node.slot().beat_ns > begin, "and one more")
    assert not Path(socket_file(str(node.answers), process.pid)).exists()
    assert Path(answer_file(str(node.answers), process.pid)).exists()
    assert finish(process) == (0, "", "")


def test_the_server_is_not_started_where_threads_could_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[int, tuple[int, int]] = {}
    endless = (resource.RLIM_INFINITY,) * 2
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits.get(which, endless))
    monkeypatch.setattr(worker_server, "_cgroup_limits", lambda: [(4096, 3)])
    monkeypatch.setattr(worker_server, "_running_tasks", lambda: 300)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert has_room()
    limits[resource.RLIMIT_AS] = (1 << 34, 1 << 34)
    assert not has_room()
    limits.clear()
    limits[resource.RLIMIT_NPROC] = (400, 400)
    assert not has_room()
    limits.clear()
    monkeypatch.setattr(worker_server, "_cgroup_limits", lambda: [(1 << 20, 3), (128, 3)])
    assert not has_room()
