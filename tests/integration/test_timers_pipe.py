"""Timers over real pipes between real processes: ours with ours, and each side with torch's other side."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.timers_factory import (
    DEADLINE,
    OUR_CLIENT,
    Starter,
    Watched,
    a_watched_server,
    let_pass,
    programs,
    said,
    tell,
    until,
)
from torch.distributed.elastic.timer import api as torch_api
from torch.distributed.elastic.timer.file_based_local_timer import FileTimerClient as TorchClient

from rankscope.watchdog.timers import Event, FileTimerClient, FileTimerRequest, FileTimerServer, expires


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "timers")


@pytest.fixture
def program() -> Generator[Starter]:
    yield from programs()


@pytest.fixture
def stalled(path: str) -> Generator[Watched]:
    """A server whose pipe is there but which does not read yet."""
    yield from a_watched_server(path, started=False)


@pytest.fixture
def watched(stalled: Watched) -> Watched:
    stalled.server.start()
    return stalled


def test_torchs_client_and_expires_work_with_our_server(path: str, watched: Watched) -> None:
    torch_api.configure(TorchClient(path))
    with torch_api.expires(after=60, scope="block"):
        until(watched.server.active_timers)
        ((pid, scope, left),) = watched.server.active_timers()
        assert (pid, scope) == (os.getpid(), "block")
        assert 0 < left <= 60
    until(lambda: not watched.server.active_timers())
    assert watched.requests() == 2


def test_torchs_expired_timer_reaches_the_callback_and_no_signal_is_sent(path: str, watched: Watched) -> None:
    client = TorchClient(path)
    with torch_api.expires(after=0.05, scope="slow", client=client):
        until(lambda: watched.expired)
    assert watched.expired == [(os.getpid(), ["slow"])]
    assert watched.server.counts().expired == 1


def test_our_client_works_under_torchs_configure_and_expires(path: str, watched: Watched) -> None:
    torch_api.configure(FileTimerClient(path))  # type: ignore[arg-type] # it is no subclass of torch's
    with torch_api.expires(after=60, scope="block"):
        until(watched.server.active_timers)
    until(lambda: not watched.server.active_timers())


TORCH_SERVER = """
import sys, threading
from torch.distributed.elastic.timer import FileTimerServer
server = FileTimerServer(sys.argv[1], "run", max_interval=0.1)
server.start()
print("ready", flush=True)
for _ in sys.stdin:
    print(server._request_count, len(server._timers), flush=True)
"""
OUR_SERVER = TORCH_SERVER.replace("torch.distributed.elastic.timer", "rankscope.watchdog.timers").replace(
    "server._request_count, len(server._timers)", "server.counts().requests, len(server.active_timers())"
)
HANGING_WORKER = """
import sys, time, threading
{imports}
client = FileTimerClient(sys.argv[1])
client.acquire("other", time.time() + 60)
client.acquire("stuck", time.time() + 0.3)
print("hangs", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("server", "client"),
    [
        (TORCH_SERVER, OUR_CLIENT),
        (OUR_SERVER, OUR_CLIENT),
        (OUR_SERVER, "from torch.distributed.elastic.timer import FileTimerClient"),
    ],
    ids=["our client, torch's server", "ours with ours", "torch's client, our server"],
)
def test_a_server_alone_kills_the_worker_and_then_itself(
    path: str, program: Starter, server: str, client: str
) -> None:
    serving = program(server, path)
    assert said(serving) == "ready"
    worker = program(HANGING_WORKER.format(imports=client), path)
    assert worker.wait(DEADLINE) == -signal.SIGKILL
    assert serving.wait(DEADLINE) == -signal.SIGKILL


def test_torchs_server_reads_our_clients_requests(path: str, program: Starter) -> None:
    serving = program(TORCH_SERVER, path)
    assert said(serving) == "ready"
    client = FileTimerClient(path, strict=True)
    for _ in range(20):
        with expires(after=60, client=client):
            pass
    client.acquire("last", time.time() + 60)

    def state() -> str:
        tell(serving, "?")
        return said(serving)

    until(lambda: state() == "41 1")


def test_an_event_is_not_sent_to_torchs_server(path: str, program: Starter) -> None:
    serving = program(TORCH_SERVER, path)
    assert said(serving) == "ready"
    assert not FileTimerClient(path).send_event("raised", rank=3)


def test_an_event_is_handed_on_at_once(path: str, watched: Watched) -> None:
    assert FileTimerClient(path).send_event("raised", rank=3, text="boom")
    until(lambda: watched.events)
    assert watched.events == [Event("raised", os.getpid(), {"rank": 3, "text": "boom"})]


def test_under_the_agent_a_hanging_worker_is_reported_and_lives(
    path: str, watched: Watched, program: Starter
) -> None:
    worker = program(HANGING_WORKER.format(imports=OUR_CLIENT), path)
    until(lambda: watched.expired)
    assert watched.expired == [(worker.pid, ["stuck"])]
    assert worker.poll() is None
    assert [timer.scope for timer in watched.server.active_timers()] == ["other"]
    watched.server.clear({worker.pid})
    assert watched.server.active_timers() == []


def test_a_request_is_in_the_pipe_when_the_call_returns_even_if_the_caller_is_killed_then(
    path: str, stalled: Watched, program: Starter
) -> None:
    text = "import os, sys, time\n" + OUR_CLIENT
    text += "FileTimerClient(sys.argv[1]).acquire('s', time.time() + 60); os.kill(os.getpid(), 9)"
    assert program(text, path).wait(DEADLINE) == -signal.SIGKILL
    stalled.server.start()
    until(lambda: stalled.requests() == 1)


def test_a_dead_workers_timer_does_not_expire(path: str, watched: Watched, program: Starter) -> None:
    text = "import sys, time\n" + OUR_CLIENT
    # It ends at once: on a busy machine an ordinary exit may take longer than the timer.
    text += "FileTimerClient(sys.argv[1]).acquire('s', time.time() + 1.0); import os; os._exit(0)"
    assert program(text, path).wait(DEADLINE) == 0
    with expires(after=1.2, scope="mine", client=FileTimerClient(path)):
        until(lambda: watched.expired)
    assert watched.expired == [(os.getpid(), ["mine"])]


def test_a_burst_of_torchs_client_is_read_without_loss(path: str, watched: Watched) -> None:
    client = TorchClient(path)
    for _ in range(1000):
        client.acquire("s", time.time() + 60)
        client.release("s")
    until(lambda: watched.requests() == 2000)


def test_requests_of_many_processes_and_threads_are_all_read(
    path: str, watched: Watched, program: Starter
) -> None:
    text = "import sys, threading, time\n" + OUR_CLIENT
    text += """
client = FileTimerClient(sys.argv[1])
def work(name):
    for _ in range(1000):
        client.acquire(name, time.time() + 60)
        client.release(name)
threads = [threading.Thread(target=work, args=(f"thread {n} " + "x" * 300 * n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    writers = [program(text, path) for _ in range(3)]
    assert [writer.wait(DEADLINE) for writer in writers] == [0, 0, 0]
    until(lambda: watched.requests() == 24_000)
    assert watched.server.counts().skipped == {}
    assert watched.server.active_timers() == []


def test_a_full_pipe_neither_raises_nor_blocks_and_the_newest_states_arrive_without_another_call(
    path: str, stalled: Watched
) -> None:
    client = FileTimerClient(path)
    scope = "x" * 3000
    for _ in range(1000):
        client.acquire(scope, time.time() + 60)
        client.release(scope)
    client.acquire("late", time.time() + 60)
    stalled.server.start()
    until(lambda: [timer.scope for timer in stalled.server.active_timers()] == ["late"])
    assert stalled.requests() < 2001
    until(lambda: not [t for t in threading.enumerate() if t.name == "rankscope-timer-flush"])
    client.release("late")
    until(lambda: stalled.server.active_timers() == [])


def test_a_release_that_met_a_full_pipe_does_not_become_an_expiry(path: str, stalled: Watched) -> None:
    client = FileTimerClient(path)
    client.acquire("mine", time.time() + 0.01)
    for _ in range(1000):
        client.release("y" * 3000)
    client.release("mine")
    let_pass(0.02)
    stalled.server.start()
    until(lambda: not [t for t in threading.enumerate() if t.name == "rankscope-timer-flush"])
    until(lambda: stalled.server.active_timers() == [])
    assert stalled.expired == []


def test_without_a_server_nothing_happens_and_it_is_said_once(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = FileTimerClient(path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with expires(after=60, client=client):
                pass
        assert not client.send_event("raised")
    assert [record.message for record in caplog.records if path in record.message] == [
        f"timers have no effect: no server reads {path} (No such file or directory); said once"
    ]


def test_a_strict_client_raises_as_torchs_does_when_no_server_is_there(path: str) -> None:
    with pytest.raises(BrokenPipeError):
        FileTimerClient(path, strict=True).acquire("s", time.time() + 60)


def test_a_file_that_is_no_pipe_is_left_alone(path: str) -> None:
    Path(path).write_text("precious")
    FileTimerClient(path).acquire("s", time.time() + 60)
    with pytest.raises(FileExistsError, match="no named pipe"):
        FileTimerServer(path, "run")
    assert Path(path).read_text() == "precious"


def test_a_server_that_comes_back_is_told_of_the_timers_that_run(path: str) -> None:
    first = Watched(path)
    first.server.start()
    client = FileTimerClient(path)
    client.acquire("outer", time.time() + 60)
    until(lambda: first.requests() == 1)
    first.server.stop()
    client.acquire("gone", time.time() + 60)
    client.release("gone")
    second = Watched(path)
    second.server.start()
    try:
        client.acquire("inner", time.time() + 70)
        until(lambda: [timer.scope for timer in second.server.active_timers()] == ["outer", "inner"])
    finally:
        second.server.stop()


def test_a_forked_child_has_its_own_descriptor_and_timers(
    path: str, watched: Watched, program: Starter
) -> None:
    text = "import os, sys, time\n" + OUR_CLIENT
    text += """
client = FileTimerClient(sys.argv[1])
client.acquire("parent", time.time() + 60)
def pipes():
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return sum(os.path.lexists(link) and os.readlink(link) == sys.argv[1] for link in links)
child = os.fork()
if not child:
    before = pipes()
    client.acquire("child", time.time() + 60)
    print(os.getpid(), before, pipes(), flush=True)
    sys.stdin.readline()
    os._exit(0)
sys.stdin.readline()
"""
    parent = program(text, path)
    child, before, after = map(int, said(parent).split())
    until(lambda: watched.requests() == 2)
    expected = {(parent.pid, "parent"), (child, "child")}
    assert {(timer.pid, timer.scope) for timer in watched.server.active_timers()} == expected
    assert (before, after) == (0, 1)
    os.kill(child, signal.SIGKILL)


def test_a_worker_that_gave_up_pythons_pipe_protection_survives_the_servers_end(
    path: str, program: Starter
) -> None:
    text = "import signal, sys, time\n" + OUR_CLIENT
    text += """
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
client = FileTimerClient(sys.argv[1])
client.acquire("s", time.time() + 60)
print("set", flush=True)
sys.stdin.readline()
client.release("s")
client.acquire("s", time.time() + 60)
"""
    first = Watched(path)
    first.server.start()
    worker = program(text, path)
    assert said(worker) == "set"
    first.server.stop()
    tell(worker, "go")
    assert worker.wait(DEADLINE) == 0


def test_a_client_that_lives_until_the_interpreter_ends_says_nothing(path: str, watched: Watched) -> None:
    text = "import sys, time\n" + OUR_CLIENT + "from rankscope.watchdog.timers import configure\n"
    text += "client = FileTimerClient(sys.argv[1]); configure(client); client.acquire('s', time.time() + 60)"
    done = subprocess.run(
        [sys.executable, "-c", text, path], capture_output=True, text=True, check=True, timeout=DEADLINE
    )
    assert (done.stdout, done.stderr) == ("", "")
    until(lambda: watched.requests() == 1)


def test_a_client_that_is_dropped_closes_its_descriptor(path: str, watched: Watched) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    client = FileTimerClient(path)
    client.release("s")
    until(lambda: watched.requests() == 1)
    del client
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_process_outside_the_job_sets_no_timers(path: str) -> None:
    watched = Watched(path, is_known_pid=lambda pid: pid != os.getpid())
    watched.server.start()
    try:
        FileTimerClient(path).acquire("s", time.time() + 60)
        until(lambda: watched.server.counts().skipped == {"unknown_pid": 1})
        assert watched.server.active_timers() == []
    finally:
        watched.server.stop()


def test_bad_lines_and_a_writer_that_dies_in_mid_line_cost_nobody_else_a_request(
    path: str, watched: Watched
) -> None:
    client = FileTimerClient(path)
    client.acquire("before", time.time() + 60)
    with Path(path).open("wb", buffering=0) as pipe:
        pipe.write(b"\xff\x00 binary\n" + b"z" * 6000 + b'\n{"version":9}\n{"version":1,"pid":')
    client.acquire("after", time.time() + 60)
    until(lambda: len(watched.server.active_timers()) == 2)
    assert watched.server.counts().skipped == {"malformed": 2, "oversize": 1, "unknown_version": 1}


def test_the_pipe_is_private(path: str, watched: Watched) -> None:
    mode = Path(path).lstat().st_mode
    assert stat.S_ISFIFO(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_stop_leaves_no_thread_descriptor_or_pipe(path: str) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    server = FileTimerServer(path, "run")
    server.start()
    server.stop()
    server.stop()
    never_started = FileTimerServer(path, "run")
    never_started.stop()
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert not Path(path).exists()
    assert not [thread for thread in threading.enumerate() if thread.name == "rankscope-timers"]


def test_a_server_that_was_replaced_leaves_the_new_ones_pipe(path: str) -> None:
    old, new = FileTimerServer(path, "old"), FileTimerServer(path, "new")
    old.stop()
    assert Path(path).exists()
    new.stop()
    assert not Path(path).exists()


def test_a_failing_callback_does_not_end_the_server(path: str) -> None:
    told: list[int] = []

    def fail(pid: int, _requests: tuple[FileTimerRequest, ...]) -> None:
        told.append(pid)
        raise ValueError("callback")

    server = FileTimerServer(path, "run", on_expired=fail)
    server.start()
    try:
        client = FileTimerClient(path)
        client.acquire("s", time.time())
        until(lambda: len(told) == 1)
        client.acquire("s", time.time())
        until(lambda: len(told) == 2)
    finally:
        server.stop()


def switches_of(name: str) -> int:
    (thread,) = (thread for thread in threading.enumerate() if thread.name == name)
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)


def test_an_idle_server_does_not_run(path: str, watched: Watched) -> None:
    with expires(after=60, client=FileTimerClient(path)):
        until(lambda: watched.requests() == 1)
    until(lambda: watched.requests() == 2)
    let_pass(0.1)
    before = switches_of("rankscope-timers")
    let_pass(1.0)
    assert switches_of("rankscope-timers") - before == 0
    assert abs(watched.server.get_last_progress_time() - time.time()) < DEADLINE


PAUSED_SERVER = """
import json, sys
from rankscope.watchdog.timers import FileTimerServer
expired = []
server = FileTimerServer(sys.argv[1], "run", on_expired=lambda pid, requests: expired.append(pid))
server.start()
print("ready", flush=True)
for _ in sys.stdin:
    print(json.dumps([len(expired), [timer.seconds_left for timer in server.active_timers()]]), flush=True)
"""


def test_time_in_which_the_server_stood_still_lets_no_timer_expire(path: str, program: Starter) -> None:
    serving = program(PAUSED_SERVER, path)
    assert said(serving) == "ready"

    def state() -> tuple[int, list[float]]:
        tell(serving, "?")
        expired, left = json.loads(said(serving))
        return expired, left

    client, given, pause = FileTimerClient(path), 6, 8  # seconds; a busy host may take some for itself
    client.acquire("s", time.time() + given)
    until(lambda: state()[1])
    os.kill(serving.pid, signal.SIGSTOP)
    # On its way during the pause, as the one above was known before it.
    client.acquire("t", time.time() + given)
    let_pass(pause)
    os.kill(serving.pid, signal.SIGCONT)
    # Both may be known before the time is given back: it had read the second one as it was stopped.
    until(lambda: len(left := state()[1]) == 2 and min(left) > 0)
    expired, left = state()
    assert expired == 0
    assert max(left) <= given + pause
    client.release("s")
    client.release("t")
    until(lambda: state() == (0, []))
