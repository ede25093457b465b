"""Three agents of two ranks each over torch's store: one verdict of the whole job, wherever its culprit is.

Their looks are made, not taken; all else is what an agent would run: protocol, threads, connections, rules.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace
from tests.classify_factory import ARank, a_job, judge
from tests.deadline import DEADLINE
from tests.rules_factory import loading, waiting
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # re-exported from torch._C

from rankscope.agent.nodes.driver import NodeDriver
from rankscope.agent.nodes.events import Follow, Suspected
from rankscope.agent.nodes.keys import Which
from rankscope.agent.nodes.limits import Limits
from rankscope.agent.nodes.messages import Member, Opening
from rankscope.agent.nodes.store_link import clone_of
from rankscope.agent.nodes.whole_job import Hands, WholeJob
from rankscope.diag.model import Diagnosis, Evidence, JobSnapshot, RankSnapshot

NODES, LOCAL = 3, 2
WORLD = NODES * LOCAL
FAST = Limits(
    tick=0.05, open_tick=0.02, dense_tick=0.01, second_look=0.1, patience=2.0, collect=0.5, judge=5.0
)


@dataclass
class Node:
    """One agent, whose looks are made."""

    rank: int
    store: TCPStore
    ranks: Sequence[ARank]
    clock: float = 0.0
    sees: bool = True
    learned: queue.SimpleQueue[Diagnosis] = field(default_factory=queue.SimpleQueue)
    followed: queue.SimpleQueue[Follow] = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        mine = tuple(range(self.rank * LOCAL, (self.rank + 1) * LOCAL))
        me = Member(self.rank, NODES, f"node{self.rank}", mine)
        hands = Hands(
            opened=lambda _opening: None,
            put=lambda job: job(),
            take=self._take,
            unseen=self._unseen,
            judge=_judged,
            learned=lambda _opening, found: self.learned.put(found),
            followed=self.followed.put,
            alone=lambda _reason: None,
        )
        part = WholeJob(me, job="run-7", world_size=WORLD, hands=hands)
        self.driver = NodeDriver(me, clone_of(PrefixStore("round-1", self.store)), part, limits=FAST)
        part.tell = self.driver.tell

    def _take(self, which: Which, _opening: Opening) -> tuple[JobSnapshot, ...]:
        if not self.sees:
            raise OSError("ptrace is denied")
        job = a_job(*self.ranks, seconds=0.0 if which == "a" else 4.0, world_size=WORLD)
        mine = tuple(
            replace(one, node=f"node{self.rank}") for one in job.ranks if one.rank // LOCAL == self.rank
        )
        return (replace(job, ranks=mine, time=job.time + self.clock),)

    def _unseen(self, reason: str) -> JobSnapshot:
        mine = range(self.rank * LOCAL, (self.rank + 1) * LOCAL)
        ranks = tuple(
            RankSnapshot(rank, node=f"node{self.rank}", observed=False, reason=reason) for rank in mine
        )
        return JobSnapshot("run-7", 0.0, WORLD, ranks)

    def suspects(self) -> None:
        opening = Opening("incident", self.rank, f"node{self.rank}", "no progress for 8 s", time.time())
        self.driver.tell(Suspected(time.monotonic(), opening))


def _judged(
    _opening: Opening, looks: tuple[JobSnapshot, ...], _clocks: float | None, told: tuple[Evidence, ...]
) -> Diagnosis:
    a, b = looks
    found = judge(a, b, silent=12.0)
    return replace(found, evidence=(*found.evidence, *told))


Launch = Callable[..., list[Node]]


@pytest.fixture
def launch() -> Iterator[Launch]:
    made: list[Node] = []

    def launched(*ranks: ARank, without: int | None = None) -> list[Node]:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        trained = [rank if rank.step is not None else rank.but(step=5) for rank in ranks]
        made.extend(Node(rank, store, trained) for rank in range(NODES))
        for node in made:
            if node.rank != without:
                node.driver.start()
        return [node for node in made if node.rank != without]

    yield launched
    for node in made:
        node.driver.stop()


def hung(culprit: int) -> list[ARank]:
    others = [rank for rank in range(WORLD) if rank != culprit]
    return [*waiting(*others, seq=7), loading(culprit).at(6)]


@pytest.mark.parametrize("culprit", [0, 3, 4])
def test_all_agents_get_the_verdict_of_the_whole_job(launch: Launch, culprit: int) -> None:
    nodes = launch(*hung(culprit))
    nodes[1].suspects()
    found = [node.learned.get(timeout=DEADLINE) for node in nodes]
    assert {one.culprits for one in found} == {(culprit,)}
    assert {one.nodes for one in found} == {(f"node{culprit // LOCAL}",)}
    assert {(one.verdict, one.confidence) for one in found} == {("RankNonCommHang", "high")}
    assert found[0] == found[1] == found[2]


def test_a_node_without_an_agent_is_named_and_the_culprit_of_another_still_found(launch: Launch) -> None:
    nodes = launch(*hung(0), without=1)
    nodes[0].suspects()
    found = nodes[1].learned.get(timeout=DEADLINE)
    assert found.culprits == (0,)
    assert [one.rank for one in found.unobserved] == [2, 3]
    told = [one.fact for one in found.evidence if one.source == "node"]
    assert len(told) == 1
    assert "group rank 1, because its agent did not answer within" in told[0]


def test_an_agent_that_cannot_look_says_why(launch: Launch) -> None:
    nodes = launch(*hung(0))
    nodes[2].sees = False
    nodes[2].suspects()
    found = nodes[0].learned.get(timeout=DEADLINE)
    assert found.culprits == (0,)
    assert {one.rank: "ptrace is denied" in one.reason for one in found.unobserved} == {4: True, 5: True}
