"""A job of many agents in memory: the protocol of each, a store of dicts, and a clock that tests move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rankscope.agent.nodes.events import (
    Add,
    Alone,
    Answered,
    CompareSet,
    Delete,
    Event,
    Failed,
    Fetch,
    Follow,
    Instruction,
    Judge,
    Judged,
    Keep,
    Learn,
    Left,
    Look,
    LookTaken,
    Progressed,
    Proposed,
    Put,
    StoreCall,
    Suspected,
    Tick,
)
from rankscope.agent.nodes.keys import Which
from rankscope.agent.nodes.limits import Limits
from rankscope.agent.nodes.messages import Member, Opening, Ruling
from rankscope.agent.nodes.protocol import NodeProtocol
from rankscope.diag.model import Decision


class MemoryStore:
    """What torch's store does with the calls of the protocol."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.calls: Counter[str] = Counter()
        self.history: list[tuple[str, bytes]] = []

    def carry_out(self, call: StoreCall, *, now: float, clock: float) -> Answered:
        self.calls[type(call).__name__] += 1
        number = 0
        values: tuple[bytes, ...] = ()
        match call:
            case Add(key, amount):
                number = int(self.values.get(key, b"0")) + amount
                self._set(key, str(number).encode())
            case CompareSet(key, expected, value):
                if self.values.get(key, b"") == expected:
                    self._set(key, value)
                values = (self.values.get(key, expected),)
            case Put(items):
                for key, value in items:
                    self._set(key, value)
            case Fetch(wanted):
                values = tuple(self.values.get(key, b"") for key in wanted)
            case Delete(wanted):
                for key in wanted:
                    self.values.pop(key, None)
        return Answered(now, number, values, clock, clock)

    def _set(self, key: str, value: bytes) -> None:
        if self.values.get(key) != value:
            self.history.append((key, value))
        self.values[key] = value


@dataclass
class Agent:
    """One agent: its protocol, and what it is waiting for."""

    job: SimulatedJob
    rank: int
    offset: float = 0.0
    alive: bool = True
    asleep: bool = False
    call: StoreCall | None = None
    answer: Answered | None = None
    looks: list[Which] = field(default_factory=list[Which])
    judges: list[Judge] = field(default_factory=list[Judge])
    kept: list[Keep] = field(default_factory=list[Keep])
    learned: list[Learn] = field(default_factory=list[Learn])
    followed: list[Follow] = field(default_factory=list[Follow])
    alone: list[Alone] = field(default_factory=list[Alone])
    due: float = 0.0

    def __post_init__(self) -> None:
        size = self.job.size
        ranks = (2 * self.rank, 2 * self.rank + 1)
        self.protocol = NodeProtocol(Member(self.rank, size, f"node{self.rank}", ranks), self.job.limits)

    @property
    def runs(self) -> bool:
        return self.alive and not self.asleep

    def tell(self, event: Event) -> None:
        for one in self.protocol.handle(event):
            self._take(one)

    def _take(self, one: Instruction) -> None:
        match one:
            case Look(which, _):
                self.looks.append(which)
            case Keep():
                self.kept.append(one)
            case Judge():
                self.judges.append(one)
            case Learn():
                self.learned.append(one)
            case Follow():
                self.followed.append(one)
            case Alone():
                self.alone.append(one)
            case _:
                assert self.call is None, "two calls at once"
                self.call = one

    # What a scheduler may do next; each answers whether there was anything to do.

    def tick(self) -> bool:
        self.tell(Tick(self.job.now))
        self.due = self.job.now + self.protocol.pause
        return True

    def execute(self) -> bool:
        """The store carries the call out; its answer is still under way."""
        if self.call is None or self.answer is not None or self.job.is_frozen:
            return False
        clock = self.job.now + self.offset
        self.answer = self.job.store.carry_out(self.call, now=self.job.now, clock=clock)
        return True

    def deliver(self) -> bool:
        if self.answer is None:
            return False
        answer, self.answer, self.call = self.answer, None, None
        clock = self.job.now + self.offset
        self.tell(Answered(self.job.now, answer.number, answer.values, answer.began, clock))
        return True

    def lose(self) -> bool:
        """The call fails; whether it was carried out stays open."""
        if self.call is None:
            return False
        self.call = self.answer = None
        self.tell(Failed(self.job.now, "connection reset"))
        return True

    def see(self) -> bool:
        if not self.looks:
            return False
        self.job.see(self, self.looks.pop(0))
        return True

    def judge(self) -> bool:
        if not self.judges:
            return False
        asked = self.judges.pop(0)
        self.job.judged.append((self.rank, asked))
        self.tell(Judged(self.job.now, f"verdict of {self.rank}".encode()))
        return True

    def suspect(self) -> bool:
        name = f"incident-{self.rank}-{len(self.job.opened)}"
        self.job.opened.append(name)
        opening = Opening(name, self.rank, f"node{self.rank}", "no progress", self.job.now)
        self.tell(Suspected(self.job.now, opening))
        return True

    def propose(self, action: str = "restart") -> bool:
        incident = self.protocol.incident
        if not incident or self.protocol.state != "judged":
            return False
        decision = Decision("restart", f"{action} says node{self.rank}", "now", incident)
        ruling = Ruling(incident, self.rank, f"node{self.rank}", decision.reason, decision)
        self.tell(Proposed(self.job.now, ruling))
        return True

    def progress(self) -> bool:
        self.tell(Progressed(self.job.now, f"node{self.rank} goes on"))
        return True

    def leave(self) -> None:
        self.tell(Left(self.job.now))


class SimulatedJob:
    """A job of ``size`` agents.

    Attributes:
        opened: incidents that somebody wanted to open.
        judged: who was asked for a verdict, and how.
        is_frozen: whether the store answers nobody.
    """

    def __init__(self, size: int, *, limits: Limits | None = None, offsets: tuple[float, ...] = ()) -> None:
        self.size = size
        self.limits = limits or Limits()
        self.now = 0.0
        self.store = MemoryStore()
        self.opened: list[str] = []
        self.judged: list[tuple[int, Judge]] = []
        self.is_frozen = False
        self.agents = [Agent(self, rank) for rank in range(size)]
        for agent, offset in zip(self.agents, offsets, strict=False):
            agent.offset = offset

    @property
    def running(self) -> list[Agent]:
        return [agent for agent in self.agents if agent.runs]

    def see(self, agent: Agent, which: Which) -> None:
        """An agent's look is there."""
        agent.tell(LookTaken(self.now, which, (f"{which} of {agent.rank}".encode(),)))

    def step(self, *, propose: bool = False, judges: bool = True) -> None:
        """All that can be done now is done, then the time of the next tick has come."""
        for agent in self.running:
            if self.now >= agent.due:
                agent.tick()
        busy = True
        while busy:
            busy = sum(self._serve(agent, propose=propose, judges=judges) for agent in self.running) > 0
        self.now = min([agent.due for agent in self.running] or [self.now + 1.0])

    def _serve(self, agent: Agent, *, propose: bool, judges: bool) -> bool:
        done = [agent.execute(), agent.deliver(), agent.see(), judges and agent.judge()]
        return any(done) or (propose and agent.protocol.state == "judged" and agent.propose())

    def run(self, seconds: float, *, propose: bool = False) -> None:
        end = self.now + seconds
        while self.now < end:
            self.step(propose=propose)

    def run_until(self, condition: Callable[[], bool], *, seconds: float = 1000.0) -> None:
        end = self.now + seconds
        while not condition():
            self.step()
            assert self.now < end, self.states()

    def run_until_over(self, *, seconds: float = 1000.0, propose: bool = True) -> None:
        """Until no agent that runs has an incident open; a job in which one stays open fails here."""
        end = self.now + seconds
        while True:
            self.step(propose=propose)
            turn = int(self.store.values.get("rankscope/nodes/turn", b"0"))
            if all(one.protocol.state == "watching" and one.protocol.over == turn for one in self.running):
                return
            assert self.now < end, [(one.rank, one.protocol.state) for one in self.running]

    def states(self) -> list[str]:
        return [agent.protocol.state for agent in self.agents]

    def rulings(self) -> dict[int, set[bytes]]:
        """By incident, every ruling that ever stood in the store."""
        found: dict[int, set[bytes]] = {}
        for key, value in self.store.history:
            if key.endswith("/ruling") and value != b"over":
                found.setdefault(int(key.split("/")[2]), set()).add(value)
        return found
