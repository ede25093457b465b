"""Ranks below a worker that launches them: real processes, without MPI and without torch in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from tests.jobs import until
from torch.distributed.elastic.agent.server.api import WorkerSpec

from rankscope.agent.ranks.nested import LOOK_AGAIN, NestedRanks, slots_for
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag import proc
from rankscope.watchdog import environment

WAITS = "import sys; sys.stdin.read()"
RANK = f'"{sys.executable}" -c "{WAITS}"'
StartLauncher = Callable[..., WorkerRef]


def ranks(count: int, rank: str = RANK) -> str:
    """A launcher as a shell script; its ranks end with its standard input."""
    starts = (
        f"OMPI_COMM_WORLD_RANK={number} OMPI_COMM_WORLD_LOCAL_RANK={number} OMPI_COMM_WORLD_SIZE={count} "
        f"PMIX_NAMESPACE=job {rank} <&3 &"
        for number in range(count)
    )
    return "exec 3<&0; " + " ".join(starts) + " wait"


@pytest.fixture
def start_launcher() -> Generator[StartLauncher]:
    """Starts launchers as torch's agent starts workers, and ends what is left."""
    started: list[subprocess.Popen[bytes]] = []

    def start(script: str, *, rank: int = 0, below: int = 3) -> WorkerRef:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("RANKSCOPE_", "OMPI_"))
        }
        env = {
            **inherited,
            environment.TASK: "",
            environment.SLOT: str(rank),
            environment.JOB_DIR: "/jobs/nested",
            "TORCHELASTIC_RUN_ID": "nested",
            "RANK": str(rank),
            "WORLD_SIZE": "1",
        }
        process = subprocess.Popen(
            ["sh", "-c", script], env=env, stdin=subprocess.PIPE, start_new_session=True
        )
        started.append(process)
        until(lambda: len(python_below(process.pid)) >= below, "the ranks to start")
        return WorkerRef(rank, rank, process.pid, proc.start_ticks(process.pid) or 0)

    yield start
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        process.kill()
        process.wait(20)


def python_below(pid: int) -> list[int]:
    # In the midst of its exec a process has its new program, and no environment yet.
    return [one for one in proc.descendants(pid) if proc.is_python(one) and proc.environ(one)]


def launch_of(*workers: WorkerRef) -> Launch:
    return Launch(workers, restart_count=1, world_size=len(workers))


def looked(nested: NestedRanks, times: int = 2) -> Launch | None:
    """The answer of the last of some looks."""
    found = None
    for _ in range(times):
        found = nested.look()
    return found


def test_ranks_are_told_when_two_looks_have_shown_the_same(start_launcher: StartLauncher) -> None:
    worker = start_launcher(ranks(3))
    nested = NestedRanks()
    assert nested.look() is None, "nothing has been started yet"
    nested.begin(launch_of(worker))
    assert nested.look() is None
    found = nested.look()
    assert found is not None
    assert [(one.rank, one.local_rank) for one in found.workers] == [(0, 0), (1, 1), (2, 2)]
    assert {one.pid for one in found.workers} == set(python_below(worker.pid))
    assert (found.world_size, found.restart_count) == (3, 1)
    assert [nested.look() for _ in range(2 * LOOK_AGAIN)] == [None] * 2 * LOOK_AGAIN


def test_a_shell_around_a_rank_and_what_a_rank_starts_are_no_ranks(start_launcher: StartLauncher) -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{WAITS}'])"
    wrapped = f"""sh -c '"{sys.executable}" -c "{child.replace("'", "'" + chr(92) + "''")}"; true'"""
    worker = start_launcher(ranks(2, wrapped), below=4)
    nested = NestedRanks()
    nested.begin(launch_of(worker))
    found = looked(nested)
    assert found is not None
    assert [one.rank for one in found.workers] == [0, 1]
    assert all(len(python_below(one.pid)) == 1 for one in found.workers)


def test_ordinary_workers_and_scripts_around_them_have_none_below(start_launcher: StartLauncher) -> None:
    worker = start_launcher(f"{RANK}; true", below=1)
    nested = NestedRanks()
    nested.begin(launch_of(worker))
    assert looked(nested, 2 * LOOK_AGAIN) is None


def test_the_ranks_of_two_launchers_have_the_same_numbers_and_are_left_alone(
    start_launcher: StartLauncher,
) -> None:
    workers = (start_launcher(ranks(2), below=2), start_launcher(ranks(2), rank=1, below=2))
    nested = NestedRanks()
    nested.begin(launch_of(*workers))
    assert looked(nested) is None


def test_when_all_have_ended_their_launcher_is_watched_again(start_launcher: StartLauncher) -> None:
    worker = start_launcher(ranks(2) + f"; {RANK}", below=2)
    base = launch_of(worker)
    nested = NestedRanks()
    nested.begin(base)
    found = looked(nested)
    assert found is not None
    for one in found.workers:
        os.kill(one.pid, 9)
    until(lambda: not {one.pid for one in found.workers} & set(python_below(worker.pid)), "the ranks to end")
    assert looked(nested) is base


def test_ranks_that_outlive_their_launcher_are_ended(start_launcher: StartLauncher) -> None:
    worker = start_launcher(ranks(2), below=2)
    nested = NestedRanks()
    nested.begin(launch_of(worker))
    found = looked(nested)
    assert found is not None
    nested.stop_looking()
    assert nested.look() is None
    os.kill(worker.pid, 9)
    assert nested.end_left() == ()
    until(
        lambda: (
            not any(proc.start_ticks(one.pid) == one.start_ticks and _runs(one.pid) for one in found.workers)
        ),
        "the ranks to end",
        seconds=10,
    )
    assert nested.end_left() == ()


def _runs(pid: int) -> bool:
    facts = proc.read_facts(pid, now=0.0)
    return facts is not None and facts.state not in "ZX"


@pytest.mark.parametrize(
    ("entrypoint", "spare"),
    [(sys.executable, False), (print, False), ("/usr/bin/mpirun", True), ("run.sh", True)],
)
def test_the_page_has_slots_to_spare_for_commands_only(entrypoint: Any, *, spare: bool) -> None:
    spec = WorkerSpec("trainer", 2, None, entrypoint=entrypoint)  # type: ignore[arg-type]  # it meets nobody
    assert (slots_for(spec) > 2) == spare
    assert slots_for(spec) >= (2 + 64 if spare else 2)


def test_the_page_has_a_slot_for_each_cpu_of_a_large_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 384)
    spec = WorkerSpec("trainer", 1, None, entrypoint=str(Path("/usr/bin/mpirun")))  # type: ignore[arg-type]  # as above
    assert slots_for(spec) == 385
