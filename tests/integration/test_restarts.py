"""Restarts come back: after every one the workers form a process group again, on every backend.

Real agents in processes of their own, real gloo groups; ``programs/rounds_job.py`` is what they run.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deadline import DEADLINE
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # re-exported from torch._C

PROGRAM = Path(__file__).parent / "programs" / "rounds_job.py"
WORKERS = 2
"""Workers of one agent."""
FAILURES = 5
"""So often a job has to come back where a round is cheapest."""
FEW_FAILURES = 3
"""So often it has to on every one of the backends: torch's own fail at the first or the second."""

Meeting = dict[str, Any]


class Job:
    """The agents of one job, each a process group of its own, and what their workers wrote down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.meetings_folder = folder / "meetings"
        self.meetings_folder.mkdir()
        self.agents: dict[str, subprocess.Popen[bytes]] = {}

    def start_agent(self, name: str, *flags: str) -> None:
        with self._output(name).open("wb") as output, self._errors(name).open("wb") as errors:
            self.agents[name] = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self.meetings_folder), "--agent", name, *flags],
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def exit_code(self, name: str) -> int:
        """The agent's, after it and everything it started has ended."""
        agent = self.agents[name]
        code = agent.wait(DEADLINE)
        until(lambda: not group_is_alive(agent.pid), f"everything that agent {name} started to end")
        return code

    def returned(self, name: str) -> dict[int, int]:
        """What the launch of the agent returned; its errors are the message if it did not succeed."""
        assert self.exit_code(name) == 0, self._errors(name).read_text(errors="replace")[-4000:]
        result = json.loads(self._output(name).read_text())
        return {int(rank): value for rank, value in result.items()}

    def rounds(self) -> list[list[Meeting]]:
        """Meetings, those in the same store together; a later store may get the port of an earlier one."""
        by_store: dict[str, list[list[Meeting]]] = {}
        for path in sorted(self.meetings_folder.glob("*.json"), key=lambda one: one.stat().st_mtime_ns):
            meeting = json.loads(path.read_text())
            rounds = by_store.setdefault(meeting["store"], [[]])
            if meeting["rank"] in [one["rank"] for one in rounds[-1]]:
                rounds.append([])
            rounds[-1].append(meeting)
        return [met for rounds in by_store.values() for met in rounds]

    def full_rounds(self, *, world: int) -> list[list[Meeting]]:
        return [met for met in self.rounds() if len(met) == world and {one["sum"] for one in met} == {world}]

    def end(self) -> None:
        for agent in self.agents.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(agent.pid, signal.SIGKILL)
            agent.wait(DEADLINE)

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.out"

    def _errors(self, name: str) -> Path:
        return self.folder / f"{name}.err"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.end()


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < deadline, f"waited {DEADLINE:g} s for {what}"
        time.sleep(0.02)


def group_is_alive(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def assert_every_round_formed(job: Job, *, failures: int, world: int) -> None:
    rounds = job.rounds()
    assert len(rounds) == failures + 1
    for met in rounds:
        assert sorted(one["rank"] for one in met) == list(range(world))
        assert {(one["world"], one["sum"], one["agent_store"]) for one in met} == {(world, world, "True")}


@pytest.mark.parametrize(
    ("script", "failures"), [([], FAILURES), (["--script"], 2)], ids=["function", "script"]
)
def test_a_standalone_job_comes_back_after_every_failure(job: Job, script: list[str], failures: int) -> None:
    job.start_agent("a", "--failures", str(failures), *script)
    # Commands have no return values.
    assert job.returned("a") == ({0: 2, 1: 2} if not script else {0: None, 1: None})
    assert_every_round_formed(job, failures=failures, world=WORKERS)


def test_a_static_job_comes_back_and_its_first_round_meets_at_the_users_address(job: Job) -> None:
    endpoint = f"localhost:{free_port()}"
    flags = ("--backend", "static", "--endpoint", endpoint, "--conf", '{"rank": 0}')
    job.start_agent("a", *flags, "--failures", str(FEW_FAILURES))
    assert job.returned("a") == {0: 2, 1: 2}
    assert_every_round_formed(job, failures=FEW_FAILURES, world=WORKERS)
    assert endpoint.replace(":", " ") in {met[0]["store"] for met in job.rounds()}


@pytest.mark.parametrize("backend", ["c10d", "static"])
def test_two_agents_come_back_together_after_every_failure(job: Job, backend: str) -> None:
    endpoint = f"localhost:{free_port()}"
    flags = ("--nnodes", "2:2", "--backend", backend, "--endpoint", endpoint, "--failures", str(FEW_FAILURES))
    for rank, name in enumerate("ab"):
        conf = json.dumps({"rank": rank} if backend == "static" else {})
        job.start_agent(name, *flags, "--conf", conf)
    returned = job.returned("a") | job.returned("b")
    assert returned == dict.fromkeys(range(2 * WORKERS), 2 * WORKERS)
    assert_every_round_formed(job, failures=FEW_FAILURES, world=2 * WORKERS)


def test_a_job_goes_on_when_a_node_joins_and_when_group_rank_0_leaves(job: Job) -> None:
    host = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    # A heartbeat may come 2 s after the last one; a node without one for 5 s counts as gone.
    conf = {"is_host": False, "last_call_timeout": 1, "keep_alive_interval": 1, "keep_alive_max_attempt": 5}
    flags = ("--train", "until-told", "--nnodes", "1:2", "--endpoint", f"localhost:{host.port}")
    job.start_agent("a", *flags, "--conf", json.dumps(conf))
    until(lambda: job.full_rounds(world=WORKERS), "the first node to train alone")

    job.start_agent("b", *flags, "--conf", json.dumps(conf))
    until(lambda: job.full_rounds(world=2 * WORKERS), "both nodes to train together")
    (together,) = job.full_rounds(world=2 * WORKERS)
    leaving = next(one["agent"] for one in together if one["group_rank"] == 0)
    (staying,) = {"a", "b"} - {leaving}

    alone_before = len(job.full_rounds(world=WORKERS))

    job.agents[leaving].terminate()
    assert job.exit_code(leaving) != 0
    until(lambda: len(job.full_rounds(world=WORKERS)) > alone_before, "the other node to train alone")
    (job.meetings_folder / "finish").touch()
    assert job.returned(staying) == {0: 2, 1: 2}
