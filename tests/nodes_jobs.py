"""Real jobs of several nodes: an agent and two ranks on each, on hosts of a network or all on this one."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from tests.jobs import DEADLINE, Job, end_process, until
from tests.network import Network

from rankscope.diag.store.events import TYPE_PREFIX, Event, read_events
from rankscope.diag.store.job import AgentFile

Backend = Literal["c10d", "static"]
PROGRAM: Final = Path(__file__).parent / "integration" / "programs" / "nodes_rank.py"
RANKS: Final = 2
"""On each node."""
_PORT: Final = 29400


class Node(Job):
    """One agent of the job with its workers; its records alone, also where all share a folder.

    Attributes:
        number: from 0.
    """

    def __init__(self, folder: Path, run_id: str, *, number: int, home: Path) -> None:
        super().__init__(folder, run_id)
        self.number = number
        self.home = home

    def agent(self) -> AgentFile:
        """What the agent says of itself, once it does."""
        (mine,) = self._own()
        return mine

    def events(self, name: str | None = None) -> list[Event]:
        found = [event for one in self._own() for event in self._events_of(one)]
        return [event for event in found if name is None or event.type == TYPE_PREFIX + name]

    def lose(self) -> None:
        """Kill agent and workers: none of them says a word, only their connections end."""
        for pid in (self.pid, *(worker.pid for worker in self.agent().workers)):
            os.kill(pid, signal.SIGKILL)
        self.finish()

    def end(self) -> None:
        workers = [worker.pid for one in self._own() for worker in one.workers]
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE)
        for pid in workers:
            end_process(pid, self.run_id)

    def _own(self) -> list[AgentFile]:
        return [one for one in self.records.agents() if self.process and one.pid == self.process.pid]

    def _events_of(self, agent: AgentFile) -> Sequence[Event]:
        return read_events(self.records.node(agent.node) / "events.jsonl")[0]


class NodesJob:
    """The whole job.

    Attributes:
        folder: the ranks' own, with what they are asked for and have noted.
        nodes: its agents.
    """

    def __init__(self, folder: Path, nodes: Sequence[Node]) -> None:
        self.folder = folder
        self.nodes = tuple(nodes)

    def ask(self, what: Literal["hang", "fail", "lag"], rank: int) -> None:
        """Have a rank hang or fail, before its next step, or lag from now on."""
        (self.folder / f"{what}-{rank}").touch()

    def rounds(self, nodes: int) -> list[list[dict[str, Any]]]:
        """What the ranks of each round of so many nodes noted once all had met, by rank."""
        met: dict[str, list[dict[str, Any]]] = {}
        for path in self.folder.glob("met-*.json"):
            note = json.loads(path.read_text())
            met.setdefault(note["store"], []).append(note)
        found = [sorted(notes, key=lambda note: int(note["rank"])) for notes in met.values()]
        return [notes for notes in found if len(notes) == notes[0]["world"] == RANKS * nodes]

    def wait_for_rounds(self, count: int, *, nodes: int) -> None:
        """Wait until so many rounds of so many nodes have formed, in all."""
        self._until(lambda: len(self.rounds(nodes)) >= count, f"{count} rounds of {nodes} nodes")

    def wait_for_steps(self, count: int) -> None:
        """Wait until the round that runs has come so much further."""
        before = self._step()

        def further() -> bool:
            now = self._step()
            return bool(now["store"] == before["store"] and now["step"] >= before["step"] + count)

        self._until(further, f"{count} steps after {before}")

    def wait_for_events(self, name: str, count: int = 1) -> None:
        """Wait until each agent has told of so many."""
        self._until(
            lambda: all(len(node.events(name)) >= count for node in self.nodes),
            f"{count} times {name} of each",
        )

    def finish(self) -> list[int]:
        """Have the ranks end; the exit codes of the agents, those included that are gone already."""
        (self.folder / "finish").touch()
        return [node.finish() for node in self.nodes]

    def actions(self) -> list[list[str]]:
        """What each agent decided, in order."""
        return [[str(event.data["action"]) for event in node.events("decision")] for node in self.nodes]

    def told(self) -> str:
        """What the agents said, for a test that fails."""
        return "\n".join(f"--- node {node.number}\n{node.stderr[-3000:]}" for node in self.nodes)

    def _step(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / "step.json").read_text()))
        except FileNotFoundError:
            return {"store": "", "step": 0}

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            ended = [node.number for node in self.nodes if node.process and node.process.poll() is not None]
            assert condition() or len(ended) < len(self.nodes), (
                f"the job ended without {what}:\n{self.told()}"
            )
            return condition()

        until(met, what)


@contextmanager
def nodes_job(
    folder: Path,
    *flags: str,
    network: Network | None = None,
    nodes: int = 3,
    backend: Backend = "c10d",
    by_name: bool = False,
    shared_home: bool = True,
    numbers: int = 1,
    host: int = 0,
    environ: Mapping[str, str] | None = None,
) -> Generator[NodesJob]:
    """A job whose agents have been started, ended whatever happens.

    Args:
        folder: of the job; each node has one of its own in it.
        flags: of every agent; in them ``{is_host}`` is whether it is the one that holds the store.
        network: whose hosts the nodes are; without one all are on this host.
        nodes: how many.
        backend: of the rendezvous.
        by_name: whether the endpoint has its host's name, not its address.
        shared_home: whether all write into one folder of records, else each into its own.
        numbers: length of the vector that is summed up in each step.
        host: number of the node whose address is the endpoint.
        environ: beside what is inherited.
    """
    ranks = folder / "ranks"
    ranks.mkdir(parents=True)
    run_id = f"test-{os.getpid()}-{folder.name}"
    endpoint = _endpoint(network, host, by_name=by_name)
    job = NodesJob(ranks, [_node(folder, run_id, each, shared_home=shared_home) for each in range(nodes)])
    try:
        for node in job.nodes:
            command = [sys.executable, "-m", "rankscope.agent", f"--nproc-per-node={RANKS}"]
            command += [f"--rdzv-id={run_id}", f"--rdzv-backend={backend}", f"--rdzv-endpoint={endpoint}"]
            command += [f"--node-rank={node.number}"] if backend == "static" else []
            command += [flag.replace("{is_host}", str(node.number == host)) for flag in flags]
            command += [str(PROGRAM), str(ranks), f"--numbers={numbers}"]
            if network is not None:
                command = network.hosts[node.number].inside(*command)
            node.start(command, environ)
        yield job
    finally:
        for node in job.nodes:
            node.end()


def _node(folder: Path, run_id: str, number: int, *, shared_home: bool) -> Node:
    own = folder / f"node{number}"
    own.mkdir()
    return Node(own, run_id, number=number, home=(folder if shared_home else own) / "home")


def _endpoint(network: Network | None, number: int, *, by_name: bool) -> str:
    if network is None:
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            return f"localhost:{probe.getsockname()[1]}"
    host = network.hosts[number]
    return f"{host.name}:{_PORT}" if by_name else host.endpoint(_PORT)
