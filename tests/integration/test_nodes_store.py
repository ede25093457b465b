"""The protocol of many nodes over torch's own store: threads, connections, a server that dies or freezes."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from tests.deadline import DEADLINE
from tests.standing import stand_still
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # re-exported from torch._C

from rankscope.agent.nodes.driver import NodeDriver
from rankscope.agent.nodes.events import (
    Add,
    Alone,
    Answered,
    CompareSet,
    Delete,
    Failed,
    Fetch,
    Follow,
    Judge,
    Judged,
    Keep,
    Learn,
    Look,
    LookTaken,
    Progressed,
    Proposed,
    Put,
    StoreCall,
    Suspected,
)
from rankscope.agent.nodes.limits import Limits
from rankscope.agent.nodes.messages import Member, Opening, Ruling
from rankscope.agent.nodes.store_link import MOST_LEFT_BEHIND, Store, StoreLink, clone_of
from rankscope.diag.model import Decision

FAST = Limits(
    tick=0.05, open_tick=0.02, dense_tick=0.01, second_look=0.1, patience=5.0, collect=20.0, alone=0.5
)
SERVER = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture(autouse=True)
def _nobody_goes_on() -> Iterator[None]:
    """Threads that were left behind in a call end with it, before the next test counts what is open."""
    yield
    end = time.monotonic() + DEADLINE
    while left := [one.name for one in threading.enumerate() if one.name.startswith("rankscope-nodes")]:
        assert time.monotonic() < end, left
        time.sleep(0.01)


@pytest.fixture(scope="module")
def far_server() -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server in a process of its own, which can be stopped."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process
        process.send_signal(signal.SIGCONT)
        process.kill()


def connecting(port: int) -> Callable[[], Store]:
    def connect() -> Store:
        store: Any = PrefixStore("round-1", TCPStore("127.0.0.1", port, is_master=False))
        return store  # type: ignore[no-any-return]  # its annotations say str where it takes bytes

    return connect


class Calls:
    """A link, and what it answered."""

    def __init__(self, connect: Callable[[], Store], timeout: float = DEADLINE) -> None:
        self.answers: queue.SimpleQueue[Answered | Failed] = queue.SimpleQueue()
        self.link = StoreLink(connect, self.answers.put, timeout=timeout)

    def made(self, call: StoreCall) -> Answered:
        self.link.call(call)
        answer = self.answers.get(timeout=DEADLINE)
        assert isinstance(answer, Answered), answer
        return answer

    def failed(self, call: StoreCall) -> Failed:
        self.link.call(call)
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            self.link.give_up_overdue(time.monotonic())
            try:
                answer = self.answers.get(timeout=0.01)
            except queue.Empty:
                continue
            assert isinstance(answer, Failed), answer
            return answer
        raise AssertionError("no answer")


def test_calls_do_in_torchs_store_what_the_protocol_expects(server: TCPStore) -> None:
    calls = Calls(clone_of(PrefixStore("round-1", server)))
    assert calls.made(Add("turn", 0)).number == 0
    assert calls.made(CompareSet("turn", b"0", b"1")).value == b"1"
    assert calls.made(CompareSet("turn", b"0", b"2")).value == b"1"
    assert calls.made(Add("turn", 0)).number == 1
    assert calls.made(CompareSet("open", b"", b"mine")).value == b"mine"
    assert calls.made(CompareSet("open", b"", b"yours")).value == b"mine"
    calls.made(Put((("look/1", b"\xff\x00\n"), ("look", b"\x00"))))
    assert calls.made(Fetch(("look", "nothing", "look/1"))).values == (b"\x00", b"", b"\xff\x00\n")
    calls.made(Delete(("look", "never there")))
    found = calls.made(Fetch(("look",)))
    assert found.values == (b"",)
    assert 0 < found.began <= found.ended
    assert server.check(["round-1/look/1"])
    assert calls.link.traffic.connections == 1
    calls.link.close()


class NoCompare:
    """A store whose compare-and-set answers otherwise where there is no key."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        return bytes(self._store.compare_set(key, expected, desired)) if self._store.check([key]) else b""


def test_a_store_that_compares_otherwise_is_read_without_waiting_too(server: TCPStore) -> None:
    connect = clone_of(PrefixStore("round-1", server))
    calls = Calls(lambda: cast("Store", NoCompare(connect())))
    calls.made(Put((("look", b"x"),)))
    assert calls.made(Fetch(("look", "nothing"))).values == (b"x", b"")
    calls.link.close()


def test_a_frozen_server_holds_nobody_up(far_server: tuple[int, subprocess.Popen[str]]) -> None:
    port, process = far_server
    calls = Calls(connecting(port), timeout=0.3)
    calls.made(Add("turn", 0))
    stand_still(process.pid)
    for _ in range(MOST_LEFT_BEHIND):
        assert "no answer within" in calls.failed(Add("turn", 0)).reason
    assert "have not come back" in calls.failed(Add("turn", 0)).reason  # and no more threads than that
    process.send_signal(signal.SIGCONT)
    end = time.monotonic() + DEADLINE
    while True:  # once it runs again, so does the link
        calls.link.call(Add("turn", 0))
        if isinstance(calls.answers.get(timeout=DEADLINE), Answered):
            break
        assert time.monotonic() < end
        time.sleep(0.05)
    calls.link.close()


def test_a_dead_server_is_told_at_once() -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    calls = Calls(connecting(server.port))
    calls.made(Add("turn", 0))
    del server
    assert "Dist" in calls.failed(Add("turn", 0)).reason
    calls.link.close()


@dataclass
class Node:
    """An owner that sees, judges and follows at once."""

    rank: int
    driver: NodeDriver | None = None
    kept: list[Keep] = field(default_factory=list[Keep])
    judged: list[Judge] = field(default_factory=list[Judge])
    learned: queue.SimpleQueue[Learn] = field(default_factory=queue.SimpleQueue)
    followed: queue.SimpleQueue[Follow] = field(default_factory=queue.SimpleQueue)
    was_alone: threading.Event = field(default_factory=threading.Event)

    def _tell(self, event: LookTaken | Judged) -> None:
        assert self.driver is not None
        self.driver.tell(event)

    def look(self, asked: Look) -> None:
        self._tell(LookTaken(time.monotonic(), asked.which, (f"{asked.which}{self.rank}".encode(),)))

    def keep(self, kept: Keep) -> None:
        self.kept.append(kept)

    def judge(self, asked: Judge) -> None:
        self.judged.append(asked)
        self._tell(Judged(time.monotonic(), b"verdict"))

    def learn(self, learned: Learn) -> None:
        self.learned.put(learned)

    def follow(self, follow: Follow) -> None:
        self.followed.put(follow)

    def alone(self, alone: Alone) -> None:
        self.was_alone.set()


def opened_by(rank: int) -> Suspected:
    opening = Opening(f"i{rank}", rank, f"node{rank}", "no progress", time.time())
    return Suspected(time.monotonic(), opening)


@pytest.fixture
def nodes(server: TCPStore) -> Iterator[list[Node]]:
    made = [Node(rank) for rank in range(3)]
    for node in made:
        me = Member(node.rank, len(made), f"node{node.rank}", (node.rank,))
        node.driver = NodeDriver(me, clone_of(PrefixStore("round-1", server)), node, limits=FAST)
        node.driver.start()
    yield made
    for node in made:
        assert node.driver is not None
        node.driver.stop()


def _of(node: Node) -> NodeDriver:
    assert node.driver is not None
    return node.driver


def test_three_agents_come_to_one_verdict_and_one_ruling(nodes: list[Node], server: TCPStore) -> None:
    before = server.num_keys()
    for node in nodes:
        _of(node).tell(opened_by(node.rank))
    learned = [node.learned.get(timeout=DEADLINE) for node in nodes]
    assert {one.verdict for one in learned} == {b"verdict"}
    assert len({one.opening.incident for one in learned}) == 1
    assert sorted({one.rank for node in nodes for one in node.kept}) == [0, 1, 2]
    for node in nodes:
        decision = Decision("restart", f"says {node.rank}", "now", learned[0].opening.incident)
        ruling = Ruling(learned[0].opening.incident, node.rank, f"node{node.rank}", "because", decision)
        _of(node).tell(Proposed(time.monotonic(), ruling))
    followed = [node.followed.get(timeout=DEADLINE) for node in nodes]
    assert len({repr(one.ruling) for one in followed}) == 1
    end = time.monotonic() + DEADLINE
    while server.num_keys() > before + 5:  # roster of three, turn, ruling
        assert time.monotonic() < end, server.list_keys()
        time.sleep(0.01)


def test_progress_anywhere_ends_it_for_all(nodes: list[Node]) -> None:
    _of(nodes[1]).tell(opened_by(1))
    nodes[2].learned.get(timeout=DEADLINE)
    _of(nodes[2]).tell(Progressed(time.monotonic(), "node2 goes on"))
    rulings = [node.followed.get(timeout=DEADLINE).ruling for node in nodes]
    assert {one.reason for one in rulings} == {"node2 goes on"}


def test_an_agent_whose_store_is_frozen_knows_that_it_is_alone_and_still_stops(
    far_server: tuple[int, subprocess.Popen[str]],
) -> None:
    port, process = far_server
    node = Node(0)
    node.driver = NodeDriver(
        Member(0, 2, "node0", (0,)), connecting(port), node, limits=FAST, call_timeout=0.2
    )
    node.driver.start()
    node.driver.tell(opened_by(0))
    end = time.monotonic() + DEADLINE
    while node.driver.state not in ("looking", "reported"):
        assert time.monotonic() < end
        time.sleep(0.01)
    stand_still(process.pid)
    assert node.was_alone.wait(DEADLINE)
    process.send_signal(signal.SIGCONT)
    node.driver.stop()
