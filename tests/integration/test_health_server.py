"""The health server as a real process on real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.health_factory import (
    PATIENCE,
    a_health_process,
    a_page,
    a_published_page,
    a_server,
    an_agent,
    answers,
    ask,
    closes,
    connect,
    eventually,
    is_gone,
)
from tests.standing import stand_still

from rankscope.agent.health import HealthError, HealthProcess, HealthStatus
from rankscope.agent.health.listen import bound_address, default_host, open_listener
from rankscope.agent.health.process import FIRST_DELAY
from rankscope.agent.health.status import StatusWriter, Suspicion

PATHS = ("/livez", "/readyz", "/health", "/healthz")


@pytest.fixture(name="page")
def _page(tmp_path: Path) -> Iterator[StatusWriter]:
    with a_published_page(tmp_path / "status.page") as writer:
        yield writer


@pytest.fixture(name="server")
def _server(page: StatusWriter) -> Iterator[HealthProcess]:
    with a_health_process(page.path) as process:
        yield process


def address_of(server: HealthProcess) -> tuple[str, int]:
    assert server.address is not None
    return server.address


def pid_of(server: HealthProcess) -> int:
    assert server.pid is not None
    return server.pid


def what_is_said(server: HealthProcess) -> str:
    """Wait until ``check``, at time 0, has something to say."""
    said: list[str] = []

    def says() -> bool:
        line = server.check(0.0)
        said.extend([line] if line else [])
        return bool(said)

    eventually(says, "the end of the server is noticed")
    return said[0]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_every_path_answers_and_is_not_to_be_cached(server: HealthProcess, path: str, method: str) -> None:
    reply = ask(address_of(server), path, method=method)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/health+json"
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["Server"] == "rankscope"
    assert (reply.body == b"") == (method == "HEAD")


def test_what_the_agent_publishes_is_answered_at_once(server: HealthProcess, page: StatusWriter) -> None:
    address = address_of(server)
    assert ask(address, "/readyz").json() == {"status": "pass", "phase": "running"}
    page.phase("rendezvous", time.monotonic() + 100)
    reply = ask(address, "/readyz")
    assert (reply.status, reply.json()["output"]) == (503, "workers do not run: phase rendezvous")
    assert ask(address, "/livez").status == 200
    assert ask(address, "/health").json()["phase"] == "rendezvous"


def test_loops_that_stand_are_seen_in_the_stamps_alone(server: HealthProcess, page: StatusWriter) -> None:
    address = address_of(server)
    page.stamp_main(time.monotonic_ns() - 61 * 10**9)
    assert ask(address, "/livez").status == 503
    assert ask(address, "/health").status == 503
    page.stamp_watch(time.monotonic_ns())
    assert ask(address, "/livez").status == 200
    page.stamp_watch(time.monotonic_ns() - 61 * 10**9)
    page.phase("exit_barrier", time.monotonic() - 1)
    assert ask(address, "/livez").status == 200


def test_health_lists_the_workers(server: HealthProcess) -> None:
    body = ask(address_of(server), "/healthz").json()
    assert body["status"] == "pass"
    assert set(body["checks"]) == {"agent", "worker:0", "worker:1"}
    assert (body["serviceId"], body["pid"]) == ("run-7", os.getpid())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 503), ("GET", "/healthy", 404), ("POST", "/health", 405), ("DELETE", "/livez", 405)],
)
def test_what_is_not_there_is_a_problem_document(
    server: HealthProcess, method: str, path: str, status: int
) -> None:
    reply = ask(address_of(server), path, method=method)
    assert reply.status == status
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert reply.json()["status"] == status
    if status == 405:
        assert reply.headers["Allow"] == "GET, HEAD"


def test_a_large_body_is_refused(server: HealthProcess) -> None:
    reply = ask(address_of(server), "/health", body=b"x" * 70_000)
    assert (reply.status, reply.headers["Content-Type"]) == (413, "application/problem+json")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 9000 + b"\r\n\r\n",
        b"GET /" + b"y" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 100 + b"\r\n",
    ],
    ids=["tls", "long header", "long line", "many headers"],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(
    server: HealthProcess, request_bytes: bytes
) -> None:
    with connect(address_of(server)) as connection:
        connection.sendall(request_bytes)
        reply = b""
        while chunk := connection.recv(65536):
            reply += chunk
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == 400
    assert ask(address_of(server), "/livez").status == 200


@pytest.mark.parametrize(
    "does",
    [
        pytest.param("while True: pass", id="spins in Python"),
        pytest.param("ctypes.PyDLL(None).sleep(1000)", id="holds the GIL in C"),
        pytest.param("threading.Lock().acquire() and threading.Event().wait()", id="waits for ever"),
    ],
)
def test_requests_are_answered_while_the_agent(tmp_path: Path, does: str) -> None:
    with an_agent(tmp_path / "page", does) as (_agent, (address, _pid)):
        for path in PATHS * 5:
            assert ask(address, path).status == 200


def test_the_server_ends_when_its_agent_is_killed(tmp_path: Path) -> None:
    with an_agent(tmp_path / "page", "threading.Event().wait()") as (agent, (address, pid)):
        agent.send_signal(signal.SIGKILL)
        eventually(lambda: is_gone(pid), "the server has ended")
        with pytest.raises(ConnectionRefusedError):
            connect(address)


def test_a_killed_agent_with_a_forked_child_leaves_no_port_behind(tmp_path: Path) -> None:
    does = "child = os.fork()\nif child: print(child, flush=True)\nthreading.Event().wait(60)"
    with an_agent(tmp_path / "page", does) as (agent, (address, _pid)):
        assert agent.stdout is not None
        child = int(agent.stdout.readline())
        try:
            agent.send_signal(signal.SIGKILL)

            def refused() -> bool:
                try:
                    connect(address).close()
                except ConnectionRefusedError:
                    return True
                return False

            eventually(refused, "nobody listens any more")
            assert not is_gone(child)
        finally:
            os.kill(child, signal.SIGKILL)


def test_the_server_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    start = "thread = threading.Thread(target=start)\nthread.start()\nthread.join()"
    does = "print('joined', flush=True)\nsys.stdin.readline()"
    with an_agent(tmp_path / "page", does, start=start) as (agent, (address, pid)):
        assert agent.stdout is not None
        assert agent.stdout.readline() == "joined\n"
        for _ in range(20):
            assert ask(address, "/livez").status == 200
        assert not is_gone(pid)
        agent.communicate("\n", timeout=PATIENCE)
        eventually(lambda: is_gone(pid), "the server has ended with its agent")


def test_a_server_that_is_nobodys_child_ends_with_the_agent_it_was_given(tmp_path: Path) -> None:
    page = a_page(tmp_path / "page")
    with (
        an_agent(tmp_path / "other", "threading.Event().wait()") as (agent, _),
        a_server(page.path, agent_pid=agent.pid) as server,
    ):
        assert ask(server.address, "/livez").status == 200
        agent.kill()
        agent.wait(PATIENCE)
        assert server.process.wait(PATIENCE) == 0


def test_a_server_for_an_agent_that_has_already_ended_ends_at_once(tmp_path: Path) -> None:
    page = a_page(tmp_path / "page")
    with pytest.raises(AssertionError), a_server(page.path, agent_start_ticks=1, agent_pid=1):
        pass


def test_the_terminals_signals_are_ignored_and_nothing_is_written(page: StatusWriter) -> None:
    with a_server(page.path) as server:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            server.process.send_signal(number)
        for path in (*PATHS, "/nothing"):
            ask(server.address, path)
        assert server.end() == (0, "", "")


def test_the_server_has_a_name_a_session_and_nothing_of_the_agents(server: HealthProcess) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        second = HealthProcess(server._status_path, None, 0)
        second.start(PATIENCE)
        pid = pid_of(second)
        proc = Path(f"/proc/{pid}")
        assert (proc / "comm").read_text().strip() == "rankscope-healt"
        assert os.getsid(pid) == pid
        mine = Path(f"/proc/self/fd/{writing}").readlink()
        assert mine not in {each.readlink() for each in (proc / "fd").iterdir()}
        assert "torch" not in (proc / "maps").read_text()
        second.stop()
    finally:
        os.close(reading)
        os.close(writing)


def test_a_killed_server_is_started_again_on_the_same_port(server: HealthProcess) -> None:
    address, first = address_of(server), pid_of(server)
    os.kill(first, signal.SIGKILL)
    assert what_is_said(server) == "health server ended (signal SIGKILL); it starts again in 0.5 s"
    assert server.check(FIRST_DELAY - 0.01) is None
    assert server.pid is None
    # A request that comes now waits in the queue of the port that the agent has kept.
    with connect(address) as early:
        early.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert server.check(FIRST_DELAY) is None
        assert early.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert server.address == address
    assert pid_of(server) != first


def test_a_server_that_dies_again_and_again_is_started_less_and_less_often(server: HealthProcess) -> None:
    waits: list[str] = []
    for _ in range(3):
        os.kill(pid_of(server), signal.SIGKILL)
        waits.append(what_is_said(server).rpartition(" in ")[2])
        assert server.check(1000.0) is None
    assert waits == ["0.5 s", "1 s", "2 s"]
    assert server.wait_ready(PATIENCE) == server.address


def test_a_port_in_use_is_one_clear_error_and_leaves_nothing(page: StatusWriter) -> None:
    with open_listener("127.0.0.1", 0) as taken:
        port = bound_address(taken)[1]
        process = HealthProcess(page.path, "127.0.0.1", port)
        with pytest.raises(HealthError, match=rf"127\.0\.0\.1 port {port}: Address already in use") as raised:
            process.start(PATIENCE)
        assert "--diag-port" in raised.value.hint
        assert (process.address, process.pid, process.check()) == (None, None, None)


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 70_000), ("no.such.host.invalid", 0), ("192.0.2.1", 0)]
)
def test_an_address_that_cannot_be_is_a_health_error(page: StatusWriter, host: str, port: int) -> None:
    with pytest.raises(HealthError, match=r"cannot listen on|is not between"):
        HealthProcess(page.path, host, port).begin()


def test_a_missing_page_is_one_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    process = HealthProcess(tmp_path / "missing", None, 0)
    with pytest.raises(
        HealthError, match=r"ended before it was ready .exit code 1: rankscope-health: .*No such"
    ):
        process.start(PATIENCE)
    assert (process.address, process.pid) == (None, None)


def test_a_port_that_was_asked_for_is_open_to_all_interfaces(page: StatusWriter) -> None:
    with open_listener("127.0.0.1", 0) as free:
        port = bound_address(free)[1]
    process = HealthProcess(page.path, None, port)
    host, _ = process.start(PATIENCE)
    try:
        assert host in ("::", "0.0.0.0")
        assert ask(("127.0.0.1", port), "/livez").status == 200
        if host == "::":
            assert ask(("::1", port), "/livez").status == 200
    finally:
        process.stop()
    assert default_host(0) == "127.0.0.1"


def test_a_client_that_sends_half_a_line_holds_nobody_and_is_dropped(page: StatusWriter) -> None:
    with (
        a_server(page.path, request_timeout=0.5) as server,
        connect(server.address) as slow,
        connect(server.address) as silent,
    ):
        slow.sendall(b"GET /hea")
        for _ in range(20):
            assert ask(server.address, "/health").status == 200
        assert closes(slow)
        assert closes(silent)


def test_two_hundred_idle_connections_hold_nobody(server: HealthProcess) -> None:
    idle = [connect(address_of(server)) for _ in range(200)]
    try:
        for _ in range(20):
            assert ask(address_of(server), "/health").status == 200
        idle[100].sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle[100].recv(65536).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in idle:
            connection.close()


def test_past_the_most_connections_the_idlest_makes_room(page: StatusWriter) -> None:
    with a_server(page.path, max_connections=16) as server:
        idle = [connect(server.address) for _ in range(20)]
        try:
            assert ask(server.address, "/health").status == 200
            assert all(closes(connection) for connection in idle[:5])
            idle[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert idle[-1].recv(65536).startswith(b"HTTP/1.1 200 ")
        finally:
            for connection in idle:
                connection.close()


def test_stopping_leaves_no_process_no_descriptor_and_no_port(page: StatusWriter) -> None:
    def descriptors() -> set[str]:
        found: set[str] = set()
        for each in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the one that reads the folder
                found.add(str(each.readlink()))
        return found

    before, children = descriptors(), set(psutil.Process().children())
    process = HealthProcess(page.path, None, 0)
    address = process.start(PATIENCE)
    pid = pid_of(process)
    with connect(address):
        process.stop()
    process.stop()
    assert is_gone(pid)
    assert set(psutil.Process().children()) == children
    assert {each for each in descriptors() - before if each.startswith(("socket", "pipe"))} == set()
    with pytest.raises(ConnectionRefusedError):
        connect(address)
    assert process.check() is None


def test_a_server_that_does_not_heed_sigterm_is_killed(server: HealthProcess) -> None:
    pid = pid_of(server)
    stand_still(pid)
    server.stop(timeout=0.2)
    assert is_gone(pid)


def test_begin_takes_the_port_at_once_and_the_answer_follows(page: StatusWriter) -> None:
    process = HealthProcess(page.path, None, 0)
    try:
        address = process.begin()
        assert process.begin() == address
        assert ask(address, "/livez").status == 200
        assert process.wait_ready(PATIENCE) == address
        assert process.wait_ready(0.0) == address
    finally:
        process.stop()


def test_a_suspicion_is_seen_by_the_next_request(server: HealthProcess, page: StatusWriter) -> None:
    suspicion = Suspicion("no progress for 12 s", (1,))
    page.publish(HealthStatus(job="run-7", node="host-a", pid=1, suspected=suspicion))
    eventually(answers(address_of(server), "/readyz", 503), "not ready")
    assert ask(address_of(server), "/livez").status == 200
    assert ask(address_of(server), "/health").json()["status"] == "warn"
