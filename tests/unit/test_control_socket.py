"""The control socket: real sockets, and clients that behave in every way but well."""

from __future__ import annotations

import asyncio
import socket
import stat
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rankscope.agent.control import listener as listening
from rankscope.agent.control.client import ControlClient
from rankscope.agent.control.listener import MOST, ControlListener, Reply
from rankscope.agent.control.messages import (
    MAX_REQUEST,
    Analyze,
    ChangeSettings,
    ControlError,
    GetRecords,
    Refusal,
    Request,
    refused,
)

PATIENCE = 20.0
ENDLESS = b'"' + b"x" * 8_000_000 + b'"'
"""More than the kernel keeps for a reader that does not read."""
DESCRIPTORS = Path("/proc/self/fd")


class Agent:
    """Answers as a test says; what is asked for later is answered by ``later``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "control"
        self.asked: list[Request] = []
        self.later: list[Reply] = []
        self.has_later = threading.Event()
        self.listener = ControlListener(self.path, self._answer)
        self.listener.start()
        self.client = ControlClient(str(self.path))

    def _answer(self, request: Request, reply: Reply) -> None:
        self.asked.append(request)
        match request:
            case Analyze(by="nobody"):
                raise ZeroDivisionError
            case Analyze():
                self.later.append(reply)
                self.has_later.set()
            case ChangeSettings(change=change) if "no" in change:
                raise refused("bad_request", "there is no setting no")
            case ChangeSettings():
                reply(msgspec.Raw(b'{"changed":{},"settings":{}}'))
            case GetRecords():
                reply(msgspec.Raw(b'{"trouble":"full"}'))

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(PATIENCE)
        sock.connect(str(self.path))
        return sock

    def says(self, data: bytes) -> bytes:
        """What a client that sends this gets until the end of the connection."""
        with self.connect() as sock:
            sock.sendall(data)
            return all_of(sock)


def all_of(sock: socket.socket) -> bytes:
    found = bytearray()
    try:
        while data := sock.recv(65536):
            found += data
    except ConnectionResetError:  # it did not read all that we have sent
        pass
    return bytes(found)


@pytest.fixture
def agent(tmp_path: Path) -> Generator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.listener.close()


def run(question: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(question)


def refusal(question: Coroutine[Any, Any, Any]) -> Refusal:
    with pytest.raises(ControlError) as error:
        asyncio.run(question)
    return error.value.refusal


def test_what_is_asked_is_answered(agent: Agent) -> None:
    assert run(agent.client.records()).trouble == "full"
    assert run(agent.client.change_settings({"on-hang": "log"}, by="127.0.0.1")).changed == {}
    assert agent.asked == [GetRecords(), ChangeSettings({"on-hang": "log"}, "127.0.0.1")]


def test_only_its_user_may_ask(agent: Agent) -> None:
    assert stat.S_IMODE(agent.path.stat().st_mode) == 0o600


def test_a_refusal_arrives_as_it_was_made(agent: Agent) -> None:
    found = refusal(agent.client.change_settings({"no": 1}))
    assert found == Refusal("bad_request", "there is no setting no")


def test_an_answer_may_come_later_from_any_thread_and_holds_nobody_meanwhile(agent: Agent) -> None:
    async def both() -> tuple[bytes, str]:
        analysis = asyncio.ensure_future(agent.client.analyze(by="me"))
        await asyncio.to_thread(agent.has_later.wait, PATIENCE)
        meanwhile = (await agent.client.records()).trouble
        threading.Thread(target=agent.later[0], args=(msgspec.Raw(b'{"verdict":"Healthy"}'),)).start()
        return await analysis, meanwhile

    assert run(both()) == (b'{"verdict":"Healthy"}', "full")


def test_of_two_answers_the_first_is_given(agent: Agent) -> None:
    with agent.connect() as sock:
        sock.sendall(b'{"op":"analyze"}\n')
        assert agent.has_later.wait(PATIENCE)
        agent.later[0](Refusal("unavailable", "the first"))
        agent.later[0](Refusal("failed", "the second"))
        assert b"the first" in all_of(sock)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b"what?\n",
        b'{"op":"destroy"}\n',
        b'{"op":"settings","change":{"a":[[1]]}}\n',
        b'{"op":"analyze","by":"\xff"}\n',
        b'{"op":"settings","change":' + b'{"a":' * 5000 + b"\n",
        b"[" * 60_000 + b"\n",
    ],
)
def test_what_is_no_request_is_refused_in_one_line(agent: Agent, line: bytes) -> None:
    answer = agent.says(line)
    assert msgspec.json.decode(answer)["error"]["kind"] == "bad_request"
    assert agent.asked == []
    assert run(agent.client.records()).trouble == "full"


def test_a_request_without_an_end_is_refused_when_it_is_too_long(agent: Agent) -> None:
    with agent.connect() as sock:
        sock.sendall(b" " * (MAX_REQUEST + 1))
        assert b"bytes at most" in all_of(sock)


def test_what_is_asked_by_a_client_that_has_gone_already_is_not_done(agent: Agent) -> None:
    is_held, may_go_on = threading.Event(), threading.Event()
    answer_at_once = agent.listener._answering

    def held(request: Request, reply: Reply) -> None:
        if request == GetRecords():
            is_held.set()
            assert may_go_on.wait(PATIENCE)
        answer_at_once(request, reply)

    agent.listener._answering = held
    with agent.connect() as first:
        first.sendall(b'{"op":"records"}\n')
        assert is_held.wait(PATIENCE)  # as one is that is stopped by a signal
        with agent.connect() as impatient:
            impatient.sendall(b'{"op":"settings","change":{"on-hang":"log"}}\n')
        may_go_on.set()
        assert b"full" in all_of(first)
    assert run(agent.client.records()).trouble == "full"
    assert agent.asked == [GetRecords(), GetRecords()]


def test_an_error_of_ours_is_an_answer_and_the_next_is_served(agent: Agent) -> None:
    assert refusal(agent.client.analyze(by="nobody")).kind == "failed"
    assert run(agent.client.records()).trouble == "full"


def test_who_says_nothing_or_half_a_line_holds_nobody(agent: Agent) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(agent.connect()) for _ in range(3 * MOST)]
        for sock in silent[::2]:
            with_half(sock)
        assert run(agent.client.records()).trouble == "full"


def with_half(sock: socket.socket) -> None:
    try:
        sock.sendall(b'{"op":')
    except OSError:  # it was dropped already: there are too many
        return


def test_who_says_nothing_is_dropped(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "REQUEST_SECONDS", 0.05)
    with agent.connect() as sock:
        assert all_of(sock) == b""


def test_who_does_not_read_holds_nobody_and_is_dropped(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    with agent.connect() as patient, agent.connect() as dropped:
        _ask_and_read_nothing(agent, patient)
        assert run(agent.client.records()).trouble == "full"
        dropped.sendall(b'{"op":')  # its line is begun before time becomes short
        monkeypatch.setattr(listening, "REQUEST_SECONDS", 0.05)
        _ask_and_read_nothing(agent, dropped, rest=b'"analyze"}\n')
        wait_until(lambda: _writable_end_is_gone(dropped))
        assert len(all_of(dropped)) < len(ENDLESS)


def _ask_and_read_nothing(agent: Agent, sock: socket.socket, *, rest: bytes = b'{"op":"analyze"}\n') -> None:
    agent.has_later.clear()
    sock.sendall(rest)
    assert agent.has_later.wait(PATIENCE)
    agent.later[-1](msgspec.Raw(ENDLESS))


def _writable_end_is_gone(sock: socket.socket) -> bool:
    try:
        sock.send(b" ")
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_answer_that_never_comes_is_a_refusal(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_WAIT_SECONDS", 0.05)
    assert refusal(agent.client.analyze()).kind == "failed"


def test_an_answer_to_a_client_that_has_gone_is_nobodys(agent: Agent) -> None:
    with agent.connect() as sock:
        sock.sendall(b'{"op":"analyze"}\n')
        assert agent.has_later.wait(PATIENCE)
    agent.later[0](msgspec.Raw(b"{}"))
    assert run(agent.client.records()).trouble == "full"


def test_an_answer_that_is_too_long_is_a_refusal(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MAX_ANSWER", 20)
    found = refusal(agent.client.records())
    assert found.kind == "failed"
    assert "20 at most" in found.detail


def test_its_end_leaves_nothing_behind_and_answers_nobody(tmp_path: Path) -> None:
    descriptors = len(list(DESCRIPTORS.iterdir()))
    agent = Agent(tmp_path)
    with agent.connect() as sock:
        sock.sendall(b'{"op":"analyze"}\n')
        assert agent.has_later.wait(PATIENCE)
        agent.listener.close()
        assert all_of(sock) == b""
    assert not agent.path.exists()
    assert "rankscope-control" not in {thread.name for thread in threading.enumerate()}
    agent.later[0](msgspec.Raw(b"{}"))
    assert len(list(DESCRIPTORS.iterdir())) == descriptors
    found = refusal(agent.client.records())
    assert (found.kind, found.retry_after) == ("unavailable", 1)


def test_a_path_that_no_socket_can_have_is_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    descriptors = len(list(DESCRIPTORS.iterdir()))
    for path in (tmp_path / ("x" * 108), tmp_path / "no folder" / "control"):
        listener = ControlListener(path, lambda _request, _reply: None)
        with pytest.raises(OSError, match=r"too long|No such file"):
            listener.start()
        listener.close()
    assert len(list(DESCRIPTORS.iterdir())) == descriptors


def test_an_agent_that_does_not_answer_in_time_is_not_waited_for(agent: Agent) -> None:
    found = refusal(agent.client.analyze(timeout=0.05))
    assert (found.kind, found.detail) == ("unavailable", "the agent did not answer within 0.05 s")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", "unavailable"),
        (b"half a line", "unavailable"),
        (b"what?\n", "failed"),
        (b"{}\n", "failed"),
        (b'{"ok":[]}\n', "failed"),
        (b'{"error":{"kind":"odd","detail":""}}\n', "failed"),
    ],
)
def test_what_is_no_answer_is_an_error_that_says_so(tmp_path: Path, answer: bytes, kind: str) -> None:
    async def talk() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(answer)
            writer.close()

        async with await asyncio.start_unix_server(serve, tmp_path / "s"):
            await ControlClient(str(tmp_path / "s")).records()

    assert refusal(talk()).kind == kind
