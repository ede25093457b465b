"""Before workers are stopped, for whatever reason, what there is to know is on disk; the end is bounded.

Real agents; the workers are small programs without torch (``programs/stopped_job.py``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import pytest
from tests.health_factory import ask
from tests.jobs import Job, diag_run, python_without_tools, until

from rankscope.diag import proc
from rankscope.diag.store.events import Event
from rankscope.diag.store.incidents import incident_folders

PROGRAM = Path(__file__).parent / "programs" / "stopped_job.py"
FREEZER = Path("/sys/fs/cgroup/freezer")
SCHEDULERS_GRACE = 10.0
"""Seconds that a scheduler leaves between SIGTERM and SIGKILL."""
NO_ANSWER = "the main thread does not answer"
STORE = """
import sys
from torch.distributed import TCPStore
store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""

LATE_AGENT = """
import sys, time
from pathlib import Path
import rankscope.agent.torchrun
from rankscope.agent.commands.run import main
print("ready", flush=True)
while not Path(sys.argv[1]).exists():
    time.sleep(0.02)
sys.exit(main(sys.argv[2:]))
"""


@contextmanager
def small_job(
    folder: Path,
    *modes: str,
    flags: tuple[str, ...] = (),
    ranks: int = 2,
    python: str = sys.executable,
    is_stuck: bool = False,
) -> Generator[Job]:
    """A job of small workers, all of them up."""
    with starting_job(folder, *modes, flags=flags, ranks=ranks, python=python, is_stuck=is_stuck) as job:
        until(lambda: job.stdout.count(" is up") == ranks, "all ranks to be up")
        job.wait_for_event("cycle.started")
        yield job


@contextmanager
def starting_job(
    folder: Path,
    *modes: str,
    flags: tuple[str, ...] = (),
    ranks: int = 2,
    python: str = sys.executable,
    is_stuck: bool = False,
) -> Generator[Job]:
    """A job of small workers; ``is_stuck``: its agent's main thread will not turn when a signal comes."""
    environ = {"TEST_FOLDER": str(folder)}
    if python != sys.executable:
        environ["PATH"] = os.defpath
    script = [str(PROGRAM), *modes]
    with diag_run(folder, *flags, ranks=ranks, script=script, environ=environ, python=python) as job:
        yield job
        assert is_stuck or NO_ANSWER not in job.stderr


@contextmanager
def store_host() -> Generator[tuple[subprocess.Popen[bytes], tuple[str, ...]]]:
    """A store in a process of its own, and the flags that make an agent meet there."""
    command = [sys.executable, "-c", STORE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        conf = "--rdzv-conf=is_host=false,last_call_timeout=1"
        try:
            yield process, ("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", conf)
        finally:
            process.kill()


@pytest.fixture
def freezer(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A control group in which processes take no signal at all, SIGKILL included."""
    group = FREEZER / f"rankscope-test-{os.getpid()}-{abs(hash(request.node.name))}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("no version 1 freezer control group that we may use")
    yield group
    (group / "freezer.state").write_text("THAWED")
    until(lambda: not (group / "cgroup.procs").read_text(), "the frozen processes to end", seconds=20)
    group.rmdir()


def freeze(group: Path, pid: int) -> None:
    (group / "cgroup.procs").write_text(str(pid))
    (group / "freezer.state").write_text("FROZEN")
    until(lambda: (group / "freezer.state").read_text().strip() == "FROZEN", "the process to freeze")


def pid_of(job: Job, rank: int) -> int:
    return next(worker.pid for worker in job.agent().workers if worker.rank == rank)


def workers_run(job: Job) -> bool:
    facts = [proc.read_facts(worker.pid, now=time.monotonic()) for worker in job.agent().workers]
    return any(one is not None and one.state not in "ZX" for one in facts)


def event_names(job: Job) -> list[str]:
    names = (event.type.removeprefix("rankscope.") for event in job.events())
    return [name for name in names if name not in ("cycle.training", "cycle.ended")]


def tracebacks(job: Job) -> int:
    return job.stderr.count("Traceback (most recent call last)")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP], ids=lambda s: s.name)
def test_a_training_job_that_is_preempted_is_called_healthy_and_no_alarm_is_raised(
    tmp_path: Path, sent: signal.Signals
) -> None:
    with small_job(tmp_path, "train") as job:
        job.signal(sent)
        assert job.finish() == 1
        diagnosis = job.diagnosis()
        assert (diagnosis.verdict, diagnosis.severity, diagnosis.culprits) == ("Healthy", "none", ())
        assert f"stopped by {sent.name}" in diagnosis.summary
        assert all(rank.observed and rank.threads for rank in job.snapshot().ranks)
        (stopping,) = job.events("stopping")
        assert (stopping.data["reason"], stopping.subject) == (sent.name, diagnosis.incident)
        assert event_names(job) == ["job.started", "cycle.started", "stopping", "job.ended"]
        assert "Hang" not in job.stderr
        assert tracebacks(job) == 0
        said = f"diag run: stopped by {sent.name} (SignalException: Process {job.pid} got signal: "
        assert [line for line in job.stderr.splitlines() if said in line]
        assert not workers_run(job)


def test_sigterm_then_sigkill_after_ten_seconds_leaves_an_incident_with_two_looks(tmp_path: Path) -> None:
    with small_job(tmp_path, "deaf") as job:
        # Longer than a job of which nothing is known may be silent without being looked at twice.
        until(lambda: seconds_up(job) > 3.0, "some silence")
        job.signal(signal.SIGTERM)
        until(lambda: bool(incident_folders(job.records.incidents)), "an incident", seconds=SCHEDULERS_GRACE)
        job.signal(signal.SIGKILL)
        job.finish()
        diagnosis = job.diagnosis()
        assert (diagnosis.verdict, diagnosis.culprits) == ("Unknown", ())
        assert "too early to call it a hang" in diagnosis.summary
        first, second = job.snapshot("a"), job.snapshot("b")
        assert second.time - first.time >= 2.0
        assert all(rank.threads for look in (first, second) for rank in look.ranks)


def seconds_up(job: Job) -> float:
    return seconds_since(job.events("cycle.started")[0])


def seconds_since(event: Event) -> float:
    then = datetime.fromisoformat(event.time.replace("Z", "+00:00"))
    return (datetime.now(timezone.utc) - then).total_seconds()


def test_a_signal_is_heard_while_the_main_thread_waits_for_a_store_on_a_frozen_host(tmp_path: Path) -> None:
    with store_host() as (host, flags), small_job(tmp_path, "train", flags=flags, is_stuck=True) as job:
        host.send_signal(signal.SIGSTOP)
        until(lambda: does_not_turn(job), "the main thread to wait for the store")
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        assert job.diagnosis().verdict == "Healthy"
        assert NO_ANSWER in job.stderr
        (ended,) = job.events("job.ended")
        assert ended.data["result"] == "stopped by SIGTERM"
        assert not workers_run(job)


def does_not_turn(job: Job) -> bool:
    """Whether the agent's main thread sleeps for half a second: its loops turn five to ten times in that."""
    before, then = switches(job), time.monotonic()
    until(lambda: time.monotonic() - then > 0.5, "half a second")
    return switches(job) == before


def switches(job: Job) -> int:
    facts = proc.read_facts(job.pid, now=0.0)
    assert facts is not None
    return facts.voluntary_switches


def test_a_signal_ends_an_agent_that_waits_for_other_nodes(tmp_path: Path) -> None:
    with (
        store_host() as (host, flags),
        starting_job(tmp_path, "wait", flags=(*flags, "--nnodes=2"), is_stuck=True) as job,
    ):
        until(lambda: "health on" in job.stderr, "the agent to start")
        until(lambda: connected_to(job.pid, int(flags[1].rpartition(":")[2])), "the agent to be at the store")
        host.send_signal(signal.SIGSTOP)
        until(lambda: does_not_turn(job), "a wait")
        answers_while_blocked(job, "rendezvous")
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        assert event_names(job)[-1] == "job.ended"


def answers_while_blocked(job: Job, phase: str) -> None:
    """The main thread waits in torch's C++: probes and metrics answer, and nothing would kill the pod."""
    agent = job.agent()
    address = (agent.host, agent.port)
    for _ in range(20):
        assert ask(address, "/livez").json() == {"status": "pass", "phase": phase}
    ready = ask(address, "/readyz")
    assert (ready.status, ready.json()["output"]) == (503, f"workers do not run: phase {phase}")
    health = ask(address, "/health")
    assert (health.status, health.json()["checks"]["watchdog:loop"][0]["status"]) == (200, "pass")
    assert f'state="{phase}"}} 1.0'.encode() in ask(address, "/metrics").body


def connected_to(pid: int, port: int) -> bool:
    """Whether a process of our name space has a connection to the port."""
    wanted = f":{port:04X}"
    links: set[str] = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.add(str(fd.readlink()))
        except OSError:
            continue
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[2].endswith(wanted) and f"socket:[{fields[9]}]" in links:
                return True
    return False


def test_a_signal_ends_an_agent_in_the_exit_barrier(tmp_path: Path) -> None:
    with store_host() as (_host, flags):
        both = (*flags, "--nnodes=2")
        with (
            starting_job(tmp_path / "a", "done", flags=both, ranks=1, is_stuck=True) as first,
            starting_job(
                tmp_path / "b", "wait", flags=(*both, f"--rdzv-id={first.run_id}"), ranks=1
            ) as second,
        ):
            first.wait_for_event("cycle.started")
            until(lambda: "is up" in second.stdout, "the second node to run")
            (tmp_path / "a" / "done").touch()
            until(lambda: does_not_turn(first), "a wait")
            answers_while_blocked(first, "exit_barrier")
            first.signal(signal.SIGTERM)
            assert first.finish() == 1
            assert not incident_folders(first.records.incidents)
            second.signal(signal.SIGTERM)
            assert second.finish() == 1


def end_workers(job: Job) -> None:
    """What a scheduler does that signals every process, the workers first."""
    for worker in job.agent().workers:
        os.kill(worker.pid, signal.SIGTERM)


@pytest.mark.parametrize("mode", ["train", "fail"])
def test_a_healthy_job_whose_workers_get_the_signal_first_is_no_failure(tmp_path: Path, mode: str) -> None:
    with small_job(tmp_path, mode, flags=("--max-restarts=2",)) as job:
        end_workers(job)
        until(lambda: not workers_run(job), "the workers to end")
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        diagnosis = job.diagnosis()
        assert (diagnosis.verdict, diagnosis.severity, diagnosis.culprits) == (
            "Unknown",
            "info",
            (),
        )  # too late to see any
        assert "stopped by SIGTERM" in diagnosis.summary
        ended = "by SIGTERM" if mode == "train" else "with exit code 1"
        assert [fact.fact for fact in diagnosis.evidence if fact.source == "exit"] == [
            f"ended {ended} as the job was stopped"
        ] * 2
        assert event_names(job) == ["job.started", "cycle.started", "stopping", "job.ended"]


def test_a_suspected_hang_is_told_also_when_the_workers_get_the_signal_first(tmp_path: Path) -> None:
    with small_job(tmp_path, "wait", flags=("--diagnose-after=2",)) as job:
        suspected = job.wait_for_event("suspected")
        until(lambda: seconds_since(suspected) > 1.5, "the first look")
        end_workers(job)
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        diagnosis = job.diagnosis()
        assert diagnosis.verdict not in ("Exited", "Healthy")
        assert diagnosis.summary.endswith("then stopped by SIGTERM")
        assert diagnosis.incident == suspected.subject
        assert all(rank.threads for rank in job.snapshot().ranks)
        assert job.incident().snapshot("b") is None
        assert not job.events("decision")


def test_a_silent_job_whose_workers_get_the_signal_first_leaves_an_incident(tmp_path: Path) -> None:
    with small_job(tmp_path, "wait") as job:
        until(lambda: seconds_up(job) > 3.0, "some silence")
        end_workers(job)
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        assert (job.diagnosis().verdict, job.diagnosis().culprits) == ("Unknown", ())
        assert "without any progress yet, too early to call it a hang" in job.diagnosis().summary
        assert all("ended by SIGTERM" in (rank.reason or "") for rank in job.snapshot().ranks)


def test_a_worker_that_crashed_before_the_signal_came_is_still_the_cause(tmp_path: Path) -> None:
    with small_job(tmp_path, "deaf", "crash", flags=("--shutdown-timeout=2",)) as job:
        (tmp_path / "crash").touch()
        until(lambda: "closing signal" in job.stderr, "the other worker to be stopped")
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        assert (job.diagnosis().verdict, job.diagnosis().culprits) == ("Exited", (1,))


def test_an_error_of_the_agent_itself_leaves_an_incident(tmp_path: Path) -> None:
    with store_host() as (host, flags), small_job(tmp_path, "train", flags=flags) as job:
        host.kill()
        assert job.finish() == 1
        assert "an error of the agent" in job.diagnosis().summary
        assert job.diagnosis().verdict == "Healthy"
        assert not workers_run(job)


def test_a_new_node_that_comes_while_a_hang_is_suspected_leaves_an_incident(tmp_path: Path) -> None:
    with store_host() as (_host, flags):
        more = (*flags, "--nnodes=1:2", "--diagnose-after=2")
        with small_job(tmp_path / "a", "wait", flags=more, ranks=1) as job:
            other = Job(tmp_path, job.run_id)
            words = (*more, "--nproc-per-node=1", f"--rdzv-id={job.run_id}", str(PROGRAM), "wait")
            other.start([sys.executable, "-c", LATE_AGENT, str(tmp_path / "join"), *words])
            try:
                until(lambda: "ready" in other.stdout, "the new node to be ready")
                job.wait_for_event("suspected")
                (tmp_path / "join").touch()
                (stopping,) = [job.wait_for_event("stopping")]
                assert stopping.data["reason"] == "a change of the membership"
                assert stopping.subject == job.events("suspected")[0].subject
                assert job.incident().id == stopping.subject
                assert {"a", "b"} == {which for which in "ab" if job.incident().snapshot(which) is not None}
                other.signal(signal.SIGTERM)
                job.signal(signal.SIGTERM)
                assert (other.finish(), job.finish()) == (1, 1)
            finally:
                other.end()


@pytest.mark.parametrize("flags", [(), ("--run-path",)], ids=["commands", "functions"])
def test_a_worker_that_not_even_sigkill_ends_is_left_and_no_restart_made_beside_it(
    tmp_path: Path, freezer: Path, flags: tuple[str, ...]
) -> None:
    more = ("--shutdown-timeout=1", "--max-restarts=3", *flags)
    with small_job(tmp_path, "wait", "crash", flags=more) as job:
        pid = pid_of(job, 0)
        freeze(freezer, pid)
        (tmp_path / "crash").touch()
        assert job.finish() == 75
        assert job.diagnosis().verdict == "Exited"
        assert job.diagnosis().culprits == (1,)
        assert [event.data["action"] for event in job.events("decision")] == ["restart", "fail"]
        (left,) = job.events("worker.left")
        assert (left.data["rank"], left.data["pid"], left.data["state"]) == (0, pid, "D")
        assert f"rank 0, process {pid} (state D" in job.stderr
        assert not job.events("restart")


def test_a_signal_during_a_restart_starts_no_workers(tmp_path: Path) -> None:
    flags = ("--shutdown-timeout=2", "--max-restarts=3")
    with small_job(tmp_path, "deaf", "crash", flags=flags) as job:
        (tmp_path / "crash").touch()
        until(lambda: "closing signal" in job.stderr, "the other worker to be stopped")
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        assert len(job.events("cycle.started")) == 1
        assert "forcefully exiting via SIGKILL" in job.stderr
        assert not workers_run(job)
        assert job.events("job.ended")[0].data["result"] == "stopped by SIGTERM"


def slow_tool(folder: Path) -> str:
    """An environment whose py-spy never answers; its Python."""
    python = python_without_tools(folder)
    tool = folder / "bin" / "py-spy"
    tool.write_text("#!/bin/sh\nexec sleep 1000\n")
    tool.chmod(0o755)
    return python


def test_evidence_that_takes_longer_than_its_budget_is_cut(tmp_path: Path) -> None:
    python = slow_tool(tmp_path / "environment")
    with small_job(tmp_path / "job", "train", flags=("--evidence-budget=1",), python=python) as job:
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        assert all(rank.source != "py-spy" and rank.reason for rank in job.snapshot().ranks)
        assert job.diagnosis().verdict == "Healthy"


def test_a_tool_that_hangs_costs_a_training_job_a_second_and_no_more(tmp_path: Path) -> None:
    python = slow_tool(tmp_path / "environment")
    with small_job(tmp_path / "job", "train", python=python) as job:
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        # What a tool is given comes from the time for all: of 5 s it would be more.
        reasons = [rank.reason or "" for rank in job.snapshot().ranks]
        assert all("py-spy did not answer in 0." in reason for reason in reasons), reasons
        assert job.diagnosis().verdict == "Healthy"


def test_whoever_asks_twice_does_not_wait_for_the_evidence(tmp_path: Path) -> None:
    python = slow_tool(tmp_path / "environment")
    with small_job(tmp_path / "job", "polite", flags=("--evidence-budget=600",), python=python) as job:
        job.signal(signal.SIGINT)
        # The second one counts when it comes a second later.
        while job.process is not None and job.process.poll() is None:
            job.signal(signal.SIGINT)
            time.sleep(0.3)
        assert job.finish() == 1
        assert tracebacks(job) == 0
        assert not workers_run(job)


def test_without_a_budget_nothing_is_looked_at(tmp_path: Path) -> None:
    with small_job(tmp_path, "train", flags=("--evidence-budget=0",)) as job:
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        assert not incident_folders(job.records.incidents)


def test_a_folder_that_takes_no_incident_does_not_delay_the_end(tmp_path: Path) -> None:
    with small_job(tmp_path, "train") as job:
        # A file where the folder should be fails for every user.
        job.records.incidents.write_text("")
        job.signal(signal.SIGTERM)
        assert job.finish() == 1
        assert job.stderr.count("cannot write records") == 1
        assert not workers_run(job)
        assert "stored in" not in job.stderr
        # What cannot be kept is shown while there is somebody to see it.
        assert "not stored (File exists)" in job.stderr
        assert "stacks, leaf first" in job.stderr
