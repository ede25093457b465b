"""What a training script may do to its timers: descriptors, forks, signals, threads, odd paths and times."""

from __future__ import annotations

import copy
import math
import os
import pickle
import stat
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.timers_factory import (
    OUR_BLOCKS,
    OUR_CLIENT,
    Starter,
    Watched,
    a_watched_server,
    finished,
    let_pass,
    programs,
    said,
    tell,
    until,
)

from rankscope.watchdog.timers import FileTimerClient
from rankscope.watchdog.timers.client import MAX_PATIENCE, PATIENCE

NEEDED = """
import os, sys, time, resource, signal, threading
def pipes():
    links = {int(fd): f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")}
    return [fd for fd, link in links.items() if os.path.lexists(link) and os.readlink(link) == sys.argv[1]]
"""


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


def fill(client: FileTimerClient) -> None:
    """Fill a pipe that nobody reads."""
    for _ in range(400):
        client.release("y" * 3900)


def flushed() -> None:
    until(lambda: not [t for t in threading.enumerate() if t.name == "rankscope-timer-flush"])


# Descriptors.

REUSED = """
limit = int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
client = FileTimerClient(sys.argv[1])
client.acquire("a", time.time() + 60)
(number,) = pipes()
os.closerange(3, 2000)
user = os.open(sys.argv[3], os.O_RDWR | os.O_CREAT)
os.dup2(user, number)
client.acquire("b", time.time() + 60)
client.release("a")
client.close()
client.acquire("c", time.time() + 60)
(number,) = {number} & {int(fd) for fd in os.listdir("/proc/self/fd")}
del client
print(os.lseek(number, 0, os.SEEK_END), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("limit", [0, 64], ids=["many descriptors", "64 descriptors"])
def test_a_number_that_has_become_the_programs_file_is_neither_written_nor_closed(
    path: str, watched: Watched, program: Starter, tmp_path: Path, limit: int
) -> None:
    file = tmp_path / "precious"
    worker = program(NEEDED + OUR_CLIENT + REUSED, path, str(limit), str(file))
    assert said(worker) == "0"
    until(lambda: set(watched.scopes()) == {"b", "c"})
    tell(worker)
    finished(worker)
    assert file.read_bytes() == b""


ONE_DESCRIPTOR = """
client = FileTimerClient(sys.argv[1])
for n in range(50):
    with expires(after=60, client=client):
        pass
print(len(pipes()), flush=True)
"""


def test_one_descriptor_is_kept_open(path: str, watched: Watched, program: Starter) -> None:
    assert finished(program(NEEDED + OUR_BLOCKS + ONE_DESCRIPTOR, path)) == "1"
    assert watched.requests() == 100


NO_DESCRIPTORS = """
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
client = FileTimerClient(sys.argv[1])
client.acquire("s", time.time() + 60)
os.closerange(3, 64)
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
client.release("s")
print("released", flush=True)
sys.stdin.readline()
for number in taken:
    os.close(number)
sys.stdin.readline()
"""


def test_a_release_for_which_there_was_no_descriptor_is_sent_later(
    path: str, watched: Watched, program: Starter
) -> None:
    worker = program(NEEDED + OUR_CLIENT + NO_DESCRIPTORS, path)
    assert said(worker) == "released"
    assert watched.scopes() == ["s"]
    tell(worker)
    until(lambda: watched.scopes() == [])


# Forks.

HOOKED = """
client = None
os.register_at_fork(after_in_child=lambda: client.acquire("hook", time.time() + 60))
from rankscope.watchdog.timers import FileTimerClient
client = FileTimerClient(sys.argv[1])
client.acquire("hook", time.time() + 70)
client._lock.acquire()  # as if another thread were in the client when the process forks
child = os.fork()
if child:
    client._lock.release()
    print(child, flush=True)
    sys.stdin.readline()
else:
    sys.stdin.readline()
"""


def test_a_timer_may_be_set_in_an_at_fork_hook_that_runs_before_ours(
    path: str, watched: Watched, program: Starter
) -> None:
    parent = program(NEEDED + HOOKED, path)
    child = int(said(parent))
    until(lambda: watched.requests() == 2)
    assert {(timer.pid, timer.scope) for timer in watched.server.active_timers()} == {
        (parent.pid, "hook"),
        (child, "hook"),
    }
    parent.communicate("")


UNSEEN_FORK = """
import ctypes
client = FileTimerClient(sys.argv[1])
client.acquire("s", time.time() + 60)
child = ctypes.PyDLL(None).fork()
if not child:
    client.acquire("s", time.time() + 70)
    os.write(1, b"%d\\n" % os.getpid())
    os.read(0, 1)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_child_whose_fork_python_did_not_see_has_its_own_timers(
    path: str, watched: Watched, program: Starter
) -> None:
    parent = program(NEEDED + OUR_CLIENT + UNSEEN_FORK, path)
    child = int(said(parent))
    until(lambda: watched.requests() == 2)
    assert {(timer.pid, timer.scope) for timer in watched.server.active_timers()} == {
        (parent.pid, "s"),
        (child, "s"),
    }
    tell(parent)
    finished(parent)


def test_a_client_travels_and_is_copied_as_its_path_and_signal(path: str, watched: Watched) -> None:
    client = FileTimerClient(path, 15)
    client.acquire("s", time.time() + 60)
    copies = [copy.copy(client), copy.deepcopy(client), pickle.loads(pickle.dumps(client))]
    assert [each.signal for each in copies] == [15, 15, 15]
    for number, each in enumerate(copies):
        each.acquire(f"copy {number}", time.time() + 70 + number)
    del copies
    client.acquire("t", time.time() + 90)
    until(lambda: watched.scopes() == ["s", "copy 0", "copy 1", "copy 2", "t"])


# Signals.

REENTERED = """
client = FileTimerClient(sys.argv[1])
def handler(number, frame):
    client.acquire("alarm", time.time() + 60)
    client.release("alarm")
    client.send_event("alarm")
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for n in range(3000):
    client.acquire("main", time.time() + 60)
    client.release("main")
    if n % 100 == 0:
        client.close()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def test_a_signal_handler_may_use_the_client_while_the_program_is_in_it(
    path: str, watched: Watched, program: Starter
) -> None:
    worker = program(NEEDED + OUR_CLIENT + REENTERED, path)
    finished(worker)
    until(lambda: watched.requests() > 6000)  # what the pipe still holds is read after the worker's end
    until(lambda: watched.scopes() == [])
    assert watched.server.counts().skipped == {}


RAISING_HANDLER = """
client = FileTimerClient(sys.argv[1])
def handler(number, frame):
    raise TimeoutError("the program's own")
signal.signal(signal.SIGALRM, handler)
client.acquire("held", time.time() + 60)
print("acquired", flush=True)
sys.stdin.readline()
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    client.release("held")
except TimeoutError:
    print("raised", flush=True)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    with expires(after=60, scope="block", client=client):
        print("entered", flush=True)
except TimeoutError:
    print("raised", flush=True)
sys.stdin.readline()
"""


def test_what_a_signal_handler_raises_reaches_the_program_and_the_release_the_server(
    path: str, stalled: Watched, program: Starter
) -> None:
    worker = program(NEEDED + OUR_BLOCKS + RAISING_HANDLER, path)
    assert said(worker) == "acquired"
    filler = FileTimerClient(path)
    fill(filler)
    tell(worker)
    assert said(worker) == "raised"
    assert said(worker) in ("raised", "entered")
    stalled.server.start()
    flushed()
    until(lambda: stalled.requests() > 0 and stalled.scopes() == [])
    filler.close()


ON_THE_QUICK_WAY = """
import fcntl
client = FileTimerClient(sys.argv[1])
def handler(number, frame):
    raise TimeoutError("the program's own")
signal.signal(signal.SIGALRM, handler)
for scope in ("held", "other"):
    client.acquire(scope, time.time() + 60)
def look(*arguments):
    signal.raise_signal(signal.SIGALRM)  # the handler runs where the client looks at its descriptor
true, fcntl.fcntl = fcntl.fcntl, look
try:
    client.release("held")
except TimeoutError:
    fcntl.fcntl = true
    print("raised", flush=True)
print("over", flush=True)
sys.stdin.readline()
"""


def test_a_release_that_an_alarm_interrupts_before_the_write_is_sent_without_another_call(
    path: str, watched: Watched, program: Starter
) -> None:
    worker = program(NEEDED + OUR_CLIENT + ON_THE_QUICK_WAY, path)
    assert said(worker) == "raised"
    until(lambda: watched.scopes() == ["other"])
    tell(worker)
    finished(worker)


EVERYWHERE = """
import random
client = FileTimerClient(sys.argv[1])
class Alarm(Exception): pass
def handler(number, frame):
    raise Alarm
signal.signal(signal.SIGALRM, handler)
raised = 0
for n in range(400):
    try:
        client.acquire("s", time.time() + 60)
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 6e-5))
        client.release("s")
        while True: pass
    except Alarm:
        raised += 1
client.acquire("last", time.time() + 60)
client.release("s")
print(raised, len(pipes()), flush=True)
sys.stdin.readline()
"""


def test_an_alarm_at_any_place_breaks_nothing_in_the_client(
    path: str, watched: Watched, program: Starter
) -> None:
    worker = program(NEEDED + OUR_CLIENT + EVERYWHERE, path)
    assert said(worker) == "400 1"
    until(lambda: watched.scopes() == ["last"])
    assert watched.server.counts().skipped == {}
    tell(worker)
    finished(worker)


# Threads, and the interpreter's end.

MANY_THREADS = """
client = FileTimerClient(sys.argv[1])
start = threading.Event()
def work(n):
    start.wait()
    client.acquire(f"scope {n}", time.time() + 60)
    client.release(f"scope {n}")
threading.stack_size(256 * 1024)
threads = [threading.Thread(target=work, args=(n,)) for n in range(1000)]
for thread in threads: thread.start()
start.set()
for thread in threads: thread.join()
print(len(pipes()))
"""


def test_a_thousand_threads_share_one_descriptor_and_lose_nothing(
    path: str, watched: Watched, program: Starter
) -> None:
    assert finished(program(NEEDED + OUR_CLIENT + MANY_THREADS, path)) == "1"
    until(lambda: watched.requests() == 2000)
    assert watched.server.counts().skipped == {}
    assert watched.scopes() == []


DAEMONS = """
import atexit
client = FileTimerClient(sys.argv[1])
def work():
    while True:
        client.acquire("daemon", time.time() + 60)
        client.release("daemon")
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
client.acquire("s", time.time() + 60)
atexit.register(client.release, "s")
"""
FINALISER = """
class Last:
    client = FileTimerClient(sys.argv[1])
    def __del__(self, moment=time.time() + 60, write=os.write):
        self.client.acquire("last", moment)
        self.client.release("last")
        write(1, b"finalised")
last = Last()
"""


@pytest.mark.parametrize("is_read", [True, False], ids=["the pipe is read", "the pipe is full"])
@pytest.mark.parametrize(("text", "printed"), [(DAEMONS, ""), (FINALISER, "finalised")])
def test_the_interpreter_ends_whatever_threads_and_finalisers_do_with_the_client(
    path: str, stalled: Watched, program: Starter, text: str, printed: str, *, is_read: bool
) -> None:
    filler = FileTimerClient(path)
    if is_read:
        stalled.server.start()
    else:
        fill(filler)
    assert finished(program(NEEDED + OUR_CLIENT + text, path)) == printed
    stalled.server.start()
    flushed()


FROZEN_THREAD = """
client = FileTimerClient(sys.argv[1])
held = threading.Event()
def freeze():
    client._lock.acquire()  # a daemon thread that the interpreter's end has stopped in mid-call
    held.set()
    threading.Event().wait()
threading.Thread(target=freeze, daemon=True).start()
held.wait()
client.acquire("s", time.time() + 60)
client.release("s")
client.send_event("raised")
client.close()
"""


def test_a_thread_that_is_frozen_in_the_client_blocks_no_other_for_long(
    path: str, watched: Watched, program: Starter
) -> None:
    finished(program(NEEDED + OUR_CLIENT + FROZEN_THREAD, path))
    assert watched.server.counts().skipped == {}


PATCHED = """
import select
del select.poll
class NoThread(threading.Thread):
    def start(self):
        raise RuntimeError("can't start new thread")
threading.Thread = NoThread
client = FileTimerClient(sys.argv[1])
client.acquire("s", time.time() + 60)
client.release("s")
"""


def test_a_full_pipe_raises_nothing_where_threads_and_poll_are_missing(
    path: str, stalled: Watched, program: Starter
) -> None:
    filler = FileTimerClient(path)
    fill(filler)
    finished(program(NEEDED + OUR_CLIENT + PATCHED, path))
    stalled.server.start()
    flushed()


def test_a_full_pipe_is_waited_for_once_and_for_a_bounded_moment(path: str, stalled: Watched) -> None:
    client = FileTimerClient(path)
    took: list[float] = []
    for number in range(1000):
        before = time.monotonic()
        client.acquire("z" * 3900 + str(number % 10), time.time() + 60)
        took.append(time.monotonic() - before)
    took.sort()
    assert PATIENCE <= took[-1] < MAX_PATIENCE
    assert took[-2] < PATIENCE
    stalled.server.start()
    flushed()


# Paths.

MOVED = """
os.chdir(sys.argv[2])
client = FileTimerClient("timers")
os.chdir("/")
client.acquire("first", time.time() + 60)
client.close()
client.acquire("second", time.time() + 70)
os.mkdir(sys.argv[2] + "/gone")
os.chdir(sys.argv[2] + "/gone")
os.rmdir(sys.argv[2] + "/gone")
FileTimerClient(sys.argv[1]).acquire("third", time.time() + 80)
FileTimerClient("timers").acquire("nowhere", time.time() + 80)
print("done", flush=True)
sys.stdin.readline()
"""


def test_the_program_may_change_its_folder(path: str, watched: Watched, program: Starter) -> None:
    worker = program(NEEDED + OUR_CLIENT + MOVED, path, str(Path(path).parent))
    assert said(worker) == "done"
    until(lambda: watched.scopes() == ["first", "second", "third"])


def test_what_is_no_pipe_is_left_alone(tmp_path: Path) -> None:
    file, link, dangling = tmp_path / "file", tmp_path / "link", tmp_path / "dangling"
    file.write_text("precious")
    link.symlink_to(file)
    dangling.symlink_to(tmp_path / "nothing")
    for odd in (file, link, dangling, tmp_path, Path("/dev/null"), file / "below", tmp_path / ("x" * 300)):
        client = FileTimerClient(str(odd))
        client.acquire("s", time.time() + 60)
        client.release("s")
        assert not client.send_event("raised")
    assert file.read_text() == "precious"
    assert link.is_symlink()
    assert not (tmp_path / "nothing").exists()


def test_a_pipe_that_was_deleted_serves_those_who_have_it_and_a_new_one_all(path: str) -> None:
    first = Watched(path)
    first.server.start()
    old = FileTimerClient(path)
    old.acquire("known", time.time() + 60)
    Path(path).unlink()
    FileTimerClient(path).acquire("nowhere", time.time() + 60)
    old.acquire("still known", time.time() + 70)
    until(lambda: first.scopes() == ["known", "still known"])
    second = Watched(path)
    second.server.start()
    first.server.stop()
    assert stat.S_ISFIFO(Path(path).stat().st_mode)
    old.acquire("moved", time.time() + 80)
    until(lambda: second.scopes() == ["known", "still known", "moved"])
    second.server.stop()


# Times.


def test_no_time_is_too_odd_for_a_timer(path: str, watched: Watched) -> None:
    client = FileTimerClient(path)
    never = [math.inf, math.nan, 10**400, 1e308, 2**63]
    for number, moment in enumerate(never):
        client.acquire(f"never {number}", moment)
    for released in (-1, -math.inf, -(10**400), -0.001):
        client.acquire("released", released)
    client.acquire("at once", -0.0)
    until(lambda: watched.requests() == 10)
    until(lambda: watched.expired)
    assert watched.expired == [(os.getpid(), ["at once"])]
    assert [timer.seconds_left for timer in watched.server.active_timers()] == [math.inf] * len(never)
    assert watched.server.counts().skipped == {}


def test_a_request_is_with_the_server_within_100_ms(path: str, watched: Watched) -> None:
    client = FileTimerClient(path)
    took: list[float] = []
    for _ in range(51):
        before = time.monotonic()
        client.acquire("s", time.time() + 60)
        until(lambda: watched.requests() > len(took))
        took.append(watched.server.last_request_times()[os.getpid()] - before)
    assert sorted(took)[25] < 0.1


def test_a_timer_that_was_long_on_its_way_keeps_the_time_it_had(path: str, stalled: Watched) -> None:
    # As when everything was stopped between the write and the read.
    FileTimerClient(path).acquire("s", time.time() + 1.0)
    let_pass(1.2)
    started = time.monotonic()
    stalled.server.start()
    until(lambda: stalled.expired)
    assert stalled.expired_at[0] - started > 0.9
