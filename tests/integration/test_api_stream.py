"""Server-sent events: what a client of the stream is told, what it is told again, and when it is dropped."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.api_factory import TOKEN, ServedByHand, a_served_job, open_files
from tests.health_factory import connect, eventually

from rankscope.agent.health.api.stream import MOST_STREAMS
from rankscope.agent.health.status import HealthStatus, WorkerHealth


@dataclass(frozen=True)
class Message:
    event: str
    data: Any
    id: str


@contextmanager
def following(served: ServedByHand, last: str = "") -> Generator[Iterator[Message]]:
    """The messages of a stream, as they come."""
    connection = connect(served.address)
    known = f"Last-Event-ID: {last}\r\n" if last else ""
    connection.sendall(
        f"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n{known}\r\n".encode()
    )
    file = connection.makefile("rb")
    try:
        assert b" 200 " in file.readline()
        while file.readline().strip():
            pass
        yield _messages(file)
    finally:
        file.close()
        connection.close()


def _messages(file: Any) -> Iterator[Message]:
    fields: dict[str, str] = {}
    while size := file.readline():
        chunk = file.read(int(size, 16) + 2)[:-2].decode()
        for line in chunk.split("\n"):
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                yield Message(fields["event"], json.loads(fields["data"]), fields.get("id", ""))
                fields = {}
            else:
                fields = {}


def until(messages: Iterator[Message], event: str) -> Message:
    return next(message for message in messages if message.event == event)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedByHand]:
    with a_served_job(tmp_path_factory.mktemp("stream")) as server:
        yield server


def test_a_new_client_hears_where_the_log_is_then_what_comes(served: ServedByHand) -> None:
    last = served.ask("/v1/events").json()["events"][-1]["id"]
    with following(served) as messages:
        first = next(messages)
        assert (first.event, first.id) == ("alive", last)
        assert until(messages, "ranks").data["job"] == "run-7"
        new = served.happens("message", rank=1, content="two\nlines and \u2028 more")
        said = until(messages, "message")
        assert said.id == new
        assert said.data["data"]["content"] == "two\nlines and \u2028 more"
        assert said.data["type"] == "rankscope.message"


def test_a_client_that_comes_back_gets_what_it_missed_and_nothing_twice(served: ServedByHand) -> None:
    everything = [event["id"] for event in served.ask("/v1/events").json()["events"]]
    with following(served, everything[-4]) as messages:
        assert [next(messages).id for _ in range(3)] == everything[-3:]
        assert next(messages).event == "alive"


def test_a_client_whose_last_event_is_not_known_gets_all_after_a_reset(served: ServedByHand) -> None:
    everything = [event["id"] for event in served.ask("/v1/events").json()["events"]]
    with following(served, "of-another-life") as messages:
        assert next(messages).event == "reset"
        assert [next(messages).id for _ in everything] == everything


def test_ranks_are_sent_when_they_changed(served: ServedByHand) -> None:
    with following(served) as messages:
        until(messages, "ranks")
        worker = WorkerHealth(0, 0, 100, "hung", step=9)
        served.page.publish(HealthStatus("run-7", "vm", os.getpid(), workers=(worker,)))
        ranks = until(messages, "ranks").data
        while ranks["ranks"][0]["state"] != "hung":
            ranks = until(messages, "ranks").data
        assert ranks["ranks"][0]["step"] == 9


def test_who_hears_nothing_new_hears_that_the_server_lives(served: ServedByHand) -> None:
    with following(served) as messages:
        assert until(messages, "alive").id
        assert until(messages, "alive").data["time"]


def test_a_log_that_was_replaced_resets_the_client(tmp_path: Path) -> None:
    with a_served_job(tmp_path) as served, following(served) as messages:
        until(messages, "ranks")
        log = served.folder.node("vm") / "events.jsonl"
        kept = log.read_bytes().splitlines(keepends=True)[:2]
        log.unlink()
        log.write_bytes(b"".join(kept))
        until(messages, "reset")
        assert until(messages, "job.started").data["type"] == "rankscope.job.started"


def test_a_server_that_ends_says_good_bye(tmp_path: Path) -> None:
    with a_served_job(tmp_path) as served, following(served) as messages:
        until(messages, "ranks")
        psutil.Process(served.pid).terminate()
        assert until(messages, "gone").data["reason"]
        assert list(messages) == []


def test_streams_are_bounded_and_leave_nothing_behind(tmp_path: Path) -> None:
    with a_served_job(tmp_path) as served:
        served.ask("/v1/job")
        before = open_files(served.pid)
        asked = (
            f"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        clients: list[socket.socket] = []
        for _ in range(MOST_STREAMS):
            clients.append(connect(served.address))
            clients[-1].sendall(asked)
            assert b"200" in clients[-1].recv(20)
        refused = served.ask("/v1/stream")
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) > 0
        assert served.ask("/v1/job").status == 200
        for client in clients:
            client.close()
        eventually(lambda: open_files(served.pid) <= before, "all streams are closed")

        def is_admitted() -> bool:
            with connect(served.address) as client:
                client.sendall(asked)
                return b" 200 " in client.recv(20)

        eventually(is_admitted, "there is room again")


def test_a_client_that_reads_nothing_is_dropped_and_costs_no_memory(tmp_path: Path) -> None:
    with a_served_job(tmp_path) as served:
        log = served.folder.node("vm") / "events.jsonl"
        found = json.loads(log.read_bytes().splitlines()[0]) | {"data": {"padding": "x" * 1000}}
        text = [json.dumps(found | {"id": f"many-{number}"}).encode() + b"\n" for number in range(20000)]
        with log.open("ab") as file:  # 20 MB that the client asks for and does not take
            file.writelines(text)
        served.ask("/v1/events?limit=1")
        memory = psutil.Process(served.pid)
        before = memory.memory_info().rss
        client = connect(served.address)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(
            f"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Last-Event-ID: unknown\r\n\r\n".encode()
        )
        files = open_files(served.pid)
        eventually(lambda: open_files(served.pid) < files, "the client is dropped", 60)
        assert memory.memory_info().rss - before < 8 << 20
        client.close()
