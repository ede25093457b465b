"""One incident over up to 2,000 agents of 8 ranks each, through a real TCPStore: time, messages, bytes,
memory.

Every agent is the production protocol with a connection of its own to the store, whose server is a process of
its own. The leader is a process of its own too, and runs the production thread and link; the others are
spread over a few processes, whose one thread serves them in turn: what they would do at the same time on
2,000 hosts they do one after the other on this one. Looks are made before the incident: taking them is
``capture``'s figure.

``python -m benchmarks.scale AGENTS ...`` prints what is measured at each size; ``rows`` at 2,000.
"""

from __future__ import annotations

import heapq
import importlib
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from benchmarks.node_looks import LOCAL, a_look
from benchmarks.row import Row
from rankscope.diag.unhurried import without_collector

if TYPE_CHECKING:
    from typing_extensions import Self

AGENTS: Final = 2_000
MERGE_BAR: Final = 2.0
MEMORY_BAR: Final = 500
_PROCESSES: Final = 4
_TIMEOUT: Final = 600.0
_PATIENCE: Final = 300.0
"""Seconds that the others wait before they lead, in place of 4: where one machine serves 2,000 agents in
turn the leader is later than on its own host, and who leads is not what is measured."""
_IDLE: Final = 5.0
"""Seconds without an incident, to count what watching costs."""


class Measured(msgspec.Struct):
    """What one size gave; seconds, bytes, MiB.

    Attributes:
        verdict: from the opening to the verdict in the store; known until the last agent knows it.
        gap: of these, what the protocol waits between its two looks.
        collect: reading and unpacking all looks; merge putting them together; classify the rules on them.
        collect_cpu: CPU seconds of the leader for the same; merge_cpu, classify_cpu likewise: what counts on
            a machine that is shared.
        followed: from the ruling until the last agent knows it.
        cpu: CPU seconds of the leader from opening to verdict.
        messages: of an agent that does not lead, in the incident; leader_messages of the leader.
        idle: messages of an agent a second while nothing is open.
        look: bytes of a look of one node; received what the leader read.
        verdict_bytes: that each agent reads.
        leader: peak memory of the leader's process; base what it had before the incident.
        server: peak of the store's process.
        left: keys in the store when all is over.
    """

    agents: int
    verdict: float
    known: float
    gap: float
    collect: float
    merge: float
    classify: float
    collect_cpu: float
    merge_cpu: float
    classify_cpu: float
    followed: float
    cpu: float
    messages: float
    leader_messages: int
    idle: float
    look: int
    received: int
    verdict_bytes: int
    leader: float
    base: float
    server: float
    left: int
    summary: str
    right: bool


class Told(msgspec.Struct):
    """What a process of followers counted."""

    messages: int
    idle_messages: int
    learned_at: float
    followed_at: float
    look: int
    traffic: int


def rows() -> list[Row]:
    """Measure at 2,000 agents: about a minute."""
    found = measure(AGENTS)
    name = f"merge of {AGENTS:,} folded nodes at the leader"
    both = found.collect + found.merge
    return [
        Row(
            f"{name}, both looks",
            f"{both:.1f} s ({found.collect_cpu + found.merge_cpu:.1f} CPU)",
            "none",
            0.0,
            f"<= {MERGE_BAR:g} s",
            both <= MERGE_BAR and found.right,
        ),
        Row(
            f"{name}: memory of its process",
            f"{found.leader:.0f} MiB",
            "none",
            0.0,
            f"<= {MEMORY_BAR} MiB",
            found.leader <= MEMORY_BAR,
        ),
    ]


def measure(agents: int) -> Measured:
    """One incident."""
    importlib.import_module("torch.distributed")  # once, for all processes

    with ExitStack() as stack:
        server = stack.enter_context(_Program(_serve))
        port = int(server.line())
        spread = _spread(agents - 1)
        others = [
            stack.enter_context(_Program(_follow, port, first, count, agents)) for first, count in spread
        ]
        leader = stack.enter_context(_Program(_lead, port, agents))
        for one in (*others, leader):
            assert one.line() == "ready"
        time.sleep(_IDLE)
        for one in others:
            one.say("open" if one is others[-1] else "count")
        found = msgspec.json.decode(leader.line(), type=Measured)
        told = [msgspec.json.decode(one.line(), type=Told) for one in others]
        server.say("")
        peak, left = server.line().split()
    opened, ruled = found.known, found.followed
    return msgspec.structs.replace(
        found,
        server=float(peak),
        left=int(left),
        messages=sum(one.messages for one in told) / (agents - 1),
        idle=sum(one.idle_messages for one in told) / (agents - 1) / _IDLE,
        known=max(one.learned_at for one in told) - opened,
        followed=max(one.followed_at for one in told) - ruled,
        look=told[0].look,
    )


def _spread(count: int) -> list[tuple[int, int]]:
    """First agent and number of agents of each process; agent 0 leads."""
    each = -(-count // _PROCESSES)
    return [(1 + first, min(each, count - first)) for first in range(0, count, each)] if count else []


class _Program:
    """A process of its own, forked once torch is loaded, and what it says; ended when it is left.

    Args:
        function: what it runs, with lines in and out by standard input and output.
        numbers: its arguments.
    """

    def __init__(self, function: Callable[..., None], *numbers: int) -> None:
        (there_in, self._in), (self._out, there_out) = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(there_in, 0)
            os.dup2(there_out, 1)
            os.closerange(3, 64)
            _run(function, numbers)
        os.close(there_in)
        os.close(there_out)
        self._lines = os.fdopen(self._out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._in)
        self._lines.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def say(self, text: str) -> None:
        os.write(self._in, f"{text}\n".encode())

    def line(self) -> str:
        said = self._lines.readline().strip()
        if not said:
            raise RuntimeError("a process of the measurement has ended")
        return said


def _run(function: Callable[..., None], numbers: tuple[int, ...]) -> NoReturn:
    code = 1
    try:
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        function(*numbers)
        sys.stdout.flush()
        code = 0
    except BaseException:  # noqa: BLE001 - the edge of a process
        traceback.print_exc()
    finally:
        os._exit(code)


# ---- the programs ----


def _serve() -> None:
    """The store."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # re-exported from torch._C

    _allow_connections()
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    print(server.port, flush=True)
    sys.stdin.readline()
    print(_peak_mib(), server.num_keys(), flush=True)


def _allow_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _culprit(agents: int) -> int:
    return (agents * LOCAL) * 2 // 3


def _parts(node: int, agents: int) -> dict[str, tuple[bytes, ...]]:
    from rankscope.agent.nodes.folding import fold_look
    from rankscope.agent.nodes.limits import look_bytes

    looks = (("a", 0.0), ("b", 4.0))
    return {
        which: fold_look(
            a_look(node, nodes=agents, culprit=_culprit(agents), later=later), look_bytes(agents)
        )
        for which, later in looks
    }


def _connect(port: int) -> Any:
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # re-exported

    return PrefixStore("round", TCPStore("127.0.0.1", port, is_master=False))


@dataclass(order=True)
class _Follower:
    """One agent that does not lead."""

    due: float
    rank: int
    protocol: Any = field(compare=False)
    store: Any = field(compare=False)
    parts: dict[str, tuple[bytes, ...]] = field(compare=False)
    learned_at: float = field(default=0.0, compare=False)
    followed_at: float = field(default=0.0, compare=False)


def _follow(port: int, first: int, count: int, agents: int) -> None:
    """Agents ``first`` and on, one after the other in one thread."""
    from rankscope.agent.nodes.limits import Limits
    from rankscope.agent.nodes.messages import Member
    from rankscope.agent.nodes.protocol import NodeProtocol
    from rankscope.agent.nodes.store_link import Traffic

    _allow_connections()
    traffic = Traffic()
    queue: list[_Follower] = []
    for rank in range(first, first + count):
        ranks = tuple(range(rank * LOCAL, (rank + 1) * LOCAL))
        patient = Limits(patience=_PATIENCE, judge=_PATIENCE, incident=2 * _PATIENCE)
        protocol = NodeProtocol(Member(rank, agents, f"node{rank:04d}", ranks), patient)
        due = time.monotonic() + (rank % 100) / 100  # as agents that start on their own are spread
        queue.append(_Follower(due, rank, protocol, _connect(port), _parts(rank, agents)))
    everybody = list(queue)
    heapq.heapify(queue)
    said = _Said()
    for one in everybody:
        _tick(one, traffic)
    traffic.messages = traffic.sent = traffic.received = 0
    print("ready", flush=True)
    idle = 0
    while not all(one.followed_at and one.protocol.state == "watching" for one in everybody):
        word = said.take()
        if word:
            idle, traffic.messages = traffic.messages, 0
            if word == "open":
                _open(everybody[-1], traffic)
        due = queue[0].due
        time.sleep(min(0.02, max(0.0, due - time.monotonic())))
        if time.monotonic() >= due:
            one = heapq.heappop(queue)
            _tick(one, traffic)
            heapq.heappush(queue, one)
    told = Told(
        traffic.messages,
        idle,
        max(one.learned_at for one in everybody),
        max(one.followed_at for one in everybody),
        sum(map(len, everybody[0].parts["b"])),
        traffic.sent + traffic.received,
    )
    print(msgspec.json.encode(told).decode(), flush=True)


class _Said:
    """Lines of standard input, without waiting."""

    def __init__(self) -> None:
        self._words: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._words.append(line.strip())

    def take(self) -> str:
        return self._words.pop(0) if self._words else ""


def _open(one: _Follower, traffic: Any) -> None:
    from rankscope.agent.nodes.events import Suspected
    from rankscope.agent.nodes.messages import Opening

    opening = Opening("incident", one.rank, f"node{one.rank:04d}", "no progress for 10 s", time.time())
    _do(one, Suspected(time.monotonic(), opening), traffic)
    one.due = time.monotonic()


def _tick(one: _Follower, traffic: Any) -> None:
    from rankscope.agent.nodes.events import Tick

    _do(one, Tick(time.monotonic()), traffic)
    one.due = time.monotonic() + one.protocol.pause


def _do(one: _Follower, event: Any, traffic: Any) -> None:
    """Tell the protocol something, and do all that it asks for."""
    from rankscope.agent.nodes.events import Follow, Learn, Look, LookTaken
    from rankscope.agent.nodes.store_link import carry_out

    todo = [event]
    while todo:
        for said in one.protocol.handle(todo.pop(0)):
            match said:
                case Look(which, _):
                    todo.append(LookTaken(time.monotonic(), which, one.parts[which]))
                case Learn():
                    one.learned_at = time.time()
                case Follow():
                    one.followed_at = time.time()
                case _:
                    todo.append(carry_out(one.store, said, traffic, at_once=True))


class _Leader:
    """An owner that merges and judges for real."""

    def __init__(self, agents: int) -> None:
        from rankscope.agent.nodes.merging import Merge

        self.agents = agents
        self.parts = _parts(0, agents)
        self.merge = Merge("scale", agents * LOCAL)
        self.driver: Any = None
        self.times: dict[str, float] = {}
        self.cpu_times: dict[str, float] = {}
        self.opened = 0.0
        self.cpu = 0.0
        self.verdict = self.verdict_known = b""
        self.is_late = False
        self.diagnosis: Any = None
        self.done = threading.Event()

    def look(self, asked: Any) -> None:
        from rankscope.agent.nodes.events import LookTaken

        if asked.which == "a":
            self.opened, self.cpu = asked.opening.time, time.process_time()
        self.driver.tell(LookTaken(time.monotonic(), asked.which, self.parts[asked.which]))

    def _mark(self, name: str) -> None:
        self.times[name], self.cpu_times[name] = time.monotonic(), time.process_time()

    def keep(self, kept: Any) -> None:
        if "collect" not in self.times:
            self._mark("collect")
        with without_collector():  # as the agent does
            self.merge.keep(kept.which, kept.rank, kept.parts)

    @without_collector()
    def judge(self, asked: Any) -> None:
        from rankscope.agent.nodes.clock_offsets import offset_of
        from rankscope.agent.nodes.events import Judged
        from rankscope.agent.nodes.verdicts import write_verdict
        from rankscope.diag.classify import diagnose, load_catalogue

        self._mark("merge")
        offsets = {rank: offset_of(asked.own_marks, marks) for rank, marks in asked.marks}
        looks = [
            self.merge.job_look(which, missing=asked.missing, members={}, offsets=offsets)
            for which in ("a", "b")
        ]
        self._mark("classify")
        self.diagnosis = diagnose(
            (looks[0], looks[1]),
            catalogue=load_catalogue(),
            source_line=lambda _file, _line: None,
            time="",
            silent_seconds=14.0,
        )
        self.verdict = write_verdict(self.diagnosis)
        self._mark("end")
        self.driver.tell(Judged(time.monotonic(), self.verdict))

    def learn(self, learned: Any) -> None:
        from rankscope.agent.nodes.events import Proposed
        from rankscope.agent.nodes.messages import Ruling
        from rankscope.diag.model import Decision

        self.verdict_known = learned.verdict
        self.times["verdict"] = time.time()
        self.cpu = time.process_time() - self.cpu
        decision = Decision("restart", "all workers are restarted", "", "incident")
        ruling = Ruling("incident", 0, "node0000", decision.reason, decision)
        # A moment, so that agents learn the verdict and the ruling one after the other, as in a job.
        threading.Timer(2.0, lambda: self.driver.tell(Proposed(time.monotonic(), ruling))).start()

    def follow(self, follow: Any) -> None:
        self.is_late = follow.late
        self.times["ruled"] = time.time()
        self.done.set()

    def alone(self, alone: Any) -> None:
        sys.stderr.write(f"scale: {alone.reason}\n")


def _lead(port: int, agents: int) -> None:
    from rankscope.agent.nodes.driver import NodeDriver
    from rankscope.agent.nodes.limits import Limits
    from rankscope.agent.nodes.messages import Member

    owner = _Leader(agents)
    owner.driver = NodeDriver(
        Member(0, agents, "node0000", tuple(range(LOCAL))),
        lambda: _connect(port),
        owner,
        limits=Limits(collect=_PATIENCE, judge=_PATIENCE, incident=2 * _PATIENCE),
    )
    owner.driver.start()
    base = _peak_mib()
    print("ready", flush=True)
    assert owner.done.wait(_TIMEOUT)
    leader_messages = owner.driver.link.traffic.messages
    peak = _peak_mib()
    while owner.driver.state != "watching":
        time.sleep(0.01)
    times, cpu = owner.times, owner.cpu_times
    found = Measured(
        agents=agents,
        verdict=times["verdict"] - owner.opened,
        known=owner.opened,
        gap=Limits().second_look,
        collect=times["merge"] - times["collect"],
        merge=times["classify"] - times["merge"],
        classify=times["end"] - times["classify"],
        collect_cpu=cpu["merge"] - cpu["collect"],
        merge_cpu=cpu["classify"] - cpu["merge"],
        classify_cpu=cpu["end"] - cpu["classify"],
        followed=times["ruled"],
        cpu=owner.cpu,
        messages=0.0,
        leader_messages=leader_messages,
        idle=0.0,
        look=0,
        received=owner.driver.link.traffic.received,
        verdict_bytes=len(owner.verdict),
        leader=peak,
        base=base,
        server=0.0,
        left=0,
        summary=owner.diagnosis.summary,
        right=owner.diagnosis.culprits == (_culprit(agents),),
    )
    owner.driver.stop()
    print(msgspec.json.encode(found).decode(), flush=True)


def main(arguments: Sequence[str]) -> None:
    """Measure at some sizes."""
    for agents in map(int, arguments):
        found = measure(agents)
        print(msgspec.json.format(msgspec.json.encode(found)).decode(), flush=True)
        sys.stderr.write(f"scale: load {os.getloadavg()[0]:.1f}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
