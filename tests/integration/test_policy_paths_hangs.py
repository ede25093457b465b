"""What ``diag run`` does about hangs, and restarts that do not come back. Real agents, torchless workers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.jobs import Job, until
from tests.scripted_jobs import actions, job_of

from rankscope.diag import proc

QUICK = ("--diagnose-after=2", "--job-hang-interval=4")
STEPS = """
import os, signal, threading, time
from pathlib import Path
from rankscope.watchdog import job_monitor as jm
folder, rank = Path(os.environ["FOLDER"]), int(os.environ["RANK"])
life = os.environ["TORCHELASTIC_RESTART_COUNT"]
for step in range(5):
    jm.Monitor().step(step)
    time.sleep(0.05)
"""
WAITS = STEPS + "threading.Event().wait()\n"
STORE = """
import sys
from torch.distributed import TCPStore
store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


@contextmanager
def a_store() -> Generator[tuple[str, ...]]:
    """The flags that make agents meet in a store that none of them holds."""
    command = [sys.executable, "-c", STORE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        conf = "--rdzv-conf=is_host=false,last_call_timeout=1,keep_alive_interval=1"
        try:
            yield ("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", conf)
        finally:
            process.kill()


def state_of(pid: int) -> str:
    facts = proc.read_facts(pid, now=0.0)
    return facts.state if facts is not None else ""


def ready(job: Job) -> int:
    agent = job.agent()
    try:
        with urllib.request.urlopen(f"http://{agent.host}:{agent.port}/readyz", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_held_job_keeps_its_workers_until_a_signal_whatever_becomes_of_one(tmp_path: Path) -> None:
    with job_of(tmp_path, WAITS, *QUICK, "--on-hang=hold", "--c4d-log-level=Error") as job:
        job.wait_for_event("decision")
        assert actions(job) == ["hold"]
        assert ready(job) == 503
        first, second = sorted(job.agent().workers, key=lambda worker: worker.rank)
        until(lambda: "held: nothing stops the workers" in job.stderr, "the agent to say so")
        assert f"rank 0: {first.pid}" in job.stderr
        # Diagnosed and stored; printed are only what C4D calls errors, and decisions.
        assert job.diagnosis().severity != "error"
        assert "confidence" not in job.stderr
        os.kill(second.pid, signal.SIGKILL)
        until(lambda: state_of(second.pid) == "Z", "the killed worker to have ended")
        loops = switches(job.pid)
        until(
            lambda: switches(job.pid) > loops + 20, "torch's loop, which polls ten times a second, to go on"
        )
        assert state_of(first.pid) == "S"
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        assert state_of(first.pid) == ""
        assert actions(job) == ["hold"]
        assert not job.events("restart")


def switches(pid: int) -> int:
    facts = proc.read_facts(pid, now=0.0)
    assert facts is not None
    return facts.voluntary_switches


def test_held_workers_that_all_end_are_a_failure_as_any_other(tmp_path: Path) -> None:
    with job_of(tmp_path, WAITS, *QUICK, "--on-hang=hold", "--max-restarts=0", ranks=1) as job:
        job.wait_for_event("decision")
        os.kill(job.agent().workers[0].pid, signal.SIGKILL)
        assert job.finish() == 1
        assert actions(job) == ["hold", "fail"]


def test_ranks_that_linger_after_others_have_ended_are_restarted(tmp_path: Path) -> None:
    text = STEPS + "if rank == 1 and life == '0':\n    threading.Event().wait()\n"
    flags = ("--job-exit-hang-interval=3", "--job-hang-interval=3", "--max-restarts=1")
    with job_of(tmp_path, text, *flags) as job:
        assert job.finish() == 0
        assert actions(job) == ["restart"]
        assert "rank 0 has ended" in job.decision().reason
        assert len(job.events("restart")) == 1


@contextmanager
def two_nodes(
    folder: Path, text: str, *flags: str, ranks: int, meeting: tuple[tuple[str, ...], tuple[str, ...]]
) -> Generator[tuple[Job, Job]]:
    """Two agents of one job, both with workers that run; each finds a folder of its own as ``FOLDER``.

    ``meeting`` has the flags by which each finds the other.
    """
    with job_of(folder / "a", text, *meeting[0], *flags, ranks=ranks) as first:
        join = (*meeting[1], *flags, f"--rdzv-id={first.run_id}")
        with job_of(folder / "b", text, *join, ranks=ranks) as second:
            second.run_id = first.run_id
            until(lambda: full_rounds(first, 2 * ranks), "the first node to run with the second")
            until(lambda: full_rounds(second, 2 * ranks), "the second node to run with the first")
            yield first, second


def full_rounds(job: Job, world: int) -> bool:
    return any(event.data["world_size"] == world for event in job.events("cycle.started"))


def test_a_restart_that_does_not_come_back_in_time_ends_with_75(tmp_path: Path) -> None:
    text = STEPS + "while not (folder / 'fail').exists():\n    time.sleep(0.02)\nraise SystemExit(4)\n"
    flags = ("--nnodes=2", "--max-restarts=3", "--job-restart-timeout=4")
    with (
        a_store() as store,
        two_nodes(tmp_path, text, *flags, ranks=1, meeting=(store, store)) as (job, gone),
    ):
        gone.signal(signal.SIGKILL)
        gone.finish()
        for folder in "ab":
            (tmp_path / folder / "fail").touch()
        assert job.finish() == 75
        assert actions(job) == ["restart", "fail"]
        assert "--job-restart-timeout 4" in str(job.events("decision")[-1].data["reason"])
        assert "TookTooLongError" not in job.stderr  # how it waited is nothing to read


LEAVING = (
    STEPS
    + """
while not (folder / "done").exists():
    if rank % 2 and (folder / "stop").exists():
        os.kill(os.getpid(), signal.SIGSTOP)
    if life == "0" and (folder / "fail").exists():
        raise SystemExit(4)
    time.sleep(0.02)
"""
)
ELASTIC = ("--nnodes=1:2", "--max-restarts=3", *QUICK)


def goes_on_alone(job: Job, folder: Path) -> int:
    """Have the workers of a node fail once; its exit code after a round without the other one."""
    (folder / "fail").touch()
    until(lambda: full_rounds(job, 2), "the node to run alone")
    (folder / "done").touch()
    return job.finish()


def test_a_node_that_is_to_blame_leaves_and_the_job_goes_on_without_it(tmp_path: Path) -> None:
    with (
        a_store() as store,
        two_nodes(tmp_path, LEAVING, *ELASTIC, ranks=2, meeting=(store, store)) as (stays, leaves),
    ):
        workers = leaves.agent().workers
        (tmp_path / "b" / "stop").touch()
        assert leaves.finish() == 75
        # The other node may restart first: until nodes decide together, it is decided again then.
        assert {decision.data["action"] for decision in leaves.events("decision")} == {"isolate"}
        (left,) = leaves.events("isolated")
        assert (left.data["node"], left.data["trouble"]) == (leaves.agent().node, "")
        assert not any(state_of(worker.pid) for worker in workers)
        # The rendezvous is open for the other node.
        assert goes_on_alone(stays, tmp_path / "a") == 0


def test_a_node_that_holds_the_store_leaves_and_keeps_its_process_until_the_job_is_over(
    tmp_path: Path,
) -> None:
    endpoint = ("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}")
    conf = "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,is_host="
    meeting = ((*endpoint, f"{conf}true"), (*endpoint, f"{conf}false"))
    with two_nodes(tmp_path, LEAVING, *ELASTIC, ranks=2, meeting=meeting) as (leaves, stays):
        workers = leaves.agent().workers
        (tmp_path / "a" / "stop").touch()
        leaves.wait_for_event("isolated")
        until(lambda: "this process stays until the job is over" in leaves.stderr, "the agent to say so")
        assert not any(state_of(worker.pid) for worker in workers)
        assert goes_on_alone(stays, tmp_path / "b") == 0
        assert leaves.finish() == 75


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
