"""The main job, end to end: real training runs that hang, crash or do well, under ``diag run``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.jobs import Job, diag_run, python_without_tools, torchrun, until

from rankscope.diag.store.job import AgentFile, JobFolder, job_folder

FAULT_STEP = 30
STEPS = 60
of_the_hang = pytest.mark.xdist_group("hang")
"""These tests look at one job, which is run once."""


@dataclass
class Seen:
    """A job that hung, what was seen of it meanwhile, and how it ended."""

    job: Job
    live: tuple[int, dict[str, Any]]
    by_pid: tuple[int, dict[str, Any]]
    exit_code: int
    health: AskHealth
    text: str


@pytest.fixture(scope="module")
def hang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """A job whose rank 1 gets stuck in a loader, looked at while it hangs, restarted, finished."""
    folder = tmp_path_factory.mktemp("hang")
    flags = ("--max-restarts=1", "--job-hang-interval=25", "--log-capture=on")
    with diag_run(
        folder, *flags, fault="data_loading", fault_rank=1, fault_step=FAULT_STEP, steps=STEPS, step_time=0.1
    ) as job:
        asking = AskHealth(job.records)
        job.wait_for_event("suspected")
        asking.ready_while_hung()
        live = job.analyze_json(job.run_id)
        pids = ",".join(str(worker.pid) for worker in job.agent().workers)
        by_pid = job.analyze_json("--pid", pids)
        job.wait_for_event("restart")
        exit_code = job.finish()
        health = asking.stop()
        text = job.diag("analyze", job.run_id).stdout.decode()
        yield Seen(job, live, by_pid, exit_code, health, text)


class AskHealth:
    """Asks for /livez all the time, from the moment there is an address."""

    def __init__(self, records: JobFolder) -> None:
        self.records = records
        self.answers: dict[str, set[int]] = {}
        self.phases: set[str] = set()
        self.unanswered = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask_all_the_time)
        self._thread.start()

    def _agent(self) -> AgentFile | None:
        return next(iter(self.records.agents()), None)

    def _ask_all_the_time(self) -> None:
        while not self._stop.wait(0.1):
            agent = self._agent()
            if agent is None or not agent.port or agent.phase == "ended":
                continue
            for path in ("/livez", "/readyz", "/health", "/healthz"):
                self._ask(agent, path)

    def _ask(self, agent: AgentFile, path: str) -> None:
        try:
            with urllib.request.urlopen(f"http://{agent.host}:{agent.port}{path}", timeout=5) as answer:
                code, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                code, body = error.code, error.read()
        except OSError:
            now = self._agent()
            if now is not None and now.phase != "ended":
                self.unanswered += 1
            return
        self.answers.setdefault(path, set()).add(code)
        if path == "/readyz":
            self.phases.add(json.loads(body).get("phase", ""))

    def ready_while_hung(self) -> None:
        until(lambda: 503 in self.answers.get("/readyz", set()), "readyz to say that a rank is suspected")

    def stop(self) -> AskHealth:
        self._stop.set()
        self._thread.join()
        return self


@of_the_hang
def test_a_hung_job_is_explained_restarted_and_finishes(hang: Seen) -> None:
    job = hang.job
    assert hang.exit_code == 0, job.stderr[-3000:]
    diagnosis = job.diagnosis()
    assert diagnosis.verdict == "RankNonCommHang"
    assert diagnosis.culprits == (1,)
    assert diagnosis.kind == "data_loading"
    assert diagnosis.confidence == "high"
    assert diagnosis.location is not None
    assert diagnosis.location.function == "read_shard"
    assert diagnosis.location.source == "pipe.read_bytes()"


@of_the_hang
def test_the_evidence_of_every_rank_is_stored_twice(hang: Seen) -> None:
    job = hang.job
    for which in ("a", "b"):
        snapshot = job.snapshot(which)
        assert [rank.rank for rank in snapshot.ranks] == [0, 1, 2]
        assert all(rank.observed and rank.threads and rank.progress for rank in snapshot.ranks)


@of_the_hang
def test_the_folded_stacks_name_who_waits(hang: Seen) -> None:
    job = hang.job
    diagnosis = job.diagnosis()
    waiting = next(group for group in diagnosis.stacks if group.ranks == "0,2")
    assert waiting.count == 2
    assert {thread.split(":")[0] for thread in waiting.threads} == {"0", "2"}
    assert {rank.rank: rank.waits_for for rank in diagnosis.ranks} == {0: (1,), 1: (), 2: (1,)}


@of_the_hang
def test_the_decision_and_the_restart_are_on_record(hang: Seen) -> None:
    job = hang.job
    assert job.decision().action == "restart"
    (restart,) = job.events("restart")
    assert restart.data["restarts"] == 1
    assert restart.data["instance_name"] == "rank 1"
    assert restart.data["result"] == "running"
    assert [event.data["restart_count"] for event in job.events("cycle.started")] == [0, 1]
    assert "resumed from step 30" in job.stdout


@of_the_hang
def test_the_terminal_shows_verdict_rank_file_and_line(hang: Seen) -> None:
    job = hang.job
    for part in ("RankNonCommHang", "rank 1", "read_shard", "train.py:", "restart 1 of 1", "stored in"):
        assert part in job.stderr


@of_the_hang
def test_a_live_job_is_analysed_by_its_run_id(hang: Seen) -> None:
    code, diagnosis = hang.live
    assert code == 3
    assert (diagnosis["verdict"], diagnosis["culprits"]) == ("RankNonCommHang", [1])
    assert diagnosis["observed"] == "0-2"


@of_the_hang
def test_a_live_job_is_analysed_by_its_pids(hang: Seen) -> None:
    code, diagnosis = hang.by_pid
    assert code == 3
    assert diagnosis["culprits"] == [1]


@of_the_hang
def test_an_ended_job_shows_its_stored_incident(hang: Seen) -> None:
    job = hang.job
    done = job.diag("analyze", "--json", job.run_id)
    assert done.returncode == 3
    assert json.loads(done.stdout)["incident"] == job.incident().id
    assert "read_shard" in hang.text


@of_the_hang
def test_health_answers_from_start_to_end(hang: Seen) -> None:
    health = hang.health
    assert health.unanswered == 0
    assert health.answers["/livez"] == {200}
    assert health.answers["/readyz"] == {200, 503}
    assert {"running"} <= health.phases


@of_the_hang
def test_every_line_of_the_workers_reaches_the_console_and_the_files(hang: Seen) -> None:
    job = hang.job
    logs = sorted(job.records.path.glob("nodes/*/logs/attempt_*/0/stdout.log"))
    assert len(logs) == 2
    lines = [line for log in logs for line in log.read_text().splitlines()]
    assert [line for line in job.stdout.splitlines() if line.startswith("step")] == [
        line for line in lines if line.startswith("step")
    ]


def test_a_hang_without_restarts_left_fails_with_75_and_names_the_culprit(tmp_path: Path) -> None:
    flags = ("--max-restarts=0", "--job-hang-interval=9", "--diagnose-after=4")
    with diag_run(
        tmp_path, *flags, ranks=2, fault="lock", fault_rank=0, fault_step=FAULT_STEP, steps=STEPS
    ) as job:
        assert job.finish() == 75
        assert job.decision().action == "fail"
        assert job.diagnosis().culprits == (0,)
        assert job.diagnosis().kind == "lock"
        assert "ChildFailedError" in job.stderr
        assert "exitcode  : 75" in job.stderr
        (ended,) = job.events("job.ended")
        assert ended.data["exit_code"] == 75


def test_a_healthy_job_is_left_alone_and_prints_what_it_prints_under_torchrun(tmp_path: Path) -> None:
    with torchrun(tmp_path / "plain", ranks=2, steps=30) as plain:
        assert plain.finish() == 0
    with diag_run(tmp_path / "watched", ranks=2, steps=30) as job:
        assert job.finish() == 0
        assert job.stdout == plain.stdout
        assert [event.type.removeprefix("rankscope.") for event in job.events()] == [
            "job.started",
            "cycle.started",
            "job.ended",
        ]
        workers_said = [line for line in job.stderr.splitlines() if not _is_the_agents(line)]
        assert workers_said == []


def _is_the_agents(line: str) -> bool:
    return line.startswith("rankscope: ") or "torch/distributed/" in line


@pytest.mark.parametrize("flags", [(), ("--run-path",)], ids=["commands", "functions"])
def test_a_crash_keeps_the_stacks_of_those_who_wait(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with diag_run(tmp_path, *flags, fault="crash", fault_rank=1, fault_step=FAULT_STEP, steps=STEPS) as job:
        assert job.finish() == 1
        diagnosis = job.diagnosis()
        assert (diagnosis.verdict, diagnosis.kind, diagnosis.culprits) == ("Exited", "dead", (1,))
        assert "the loss is not a number" in diagnosis.summary
        snapshot = job.snapshot()
        assert all(rank.observed and rank.threads for rank in snapshot.ranks)
        assert "ValueError: the loss is not a number" in job.stderr
        (failed,) = [event for event in job.events("worker.failed") if event.data["rank"] == 1]
        assert failed.data["exit_code"] == 1


def test_a_killed_worker_is_named_and_the_job_restarts(tmp_path: Path) -> None:
    flags = ("--max-restarts=1",)
    with diag_run(tmp_path, *flags, fault="killed", fault_rank=2, fault_step=FAULT_STEP, steps=40) as job:
        assert job.finish() == 0
        diagnosis = job.diagnosis()
        assert (diagnosis.verdict, diagnosis.culprits) == ("Exited", (2,))
        assert "SIGKILL" in diagnosis.summary
        assert job.decision().action == "restart"
        assert len(job.events("restart")) == 1


def test_without_the_probe_a_hang_is_noticed_by_the_processes_alone(tmp_path: Path) -> None:
    environ = {"RANKSCOPE_PROBE": "0"}
    flags = ("--max-restarts=0", "--job-hang-interval=22")
    with diag_run(
        tmp_path,
        *flags,
        environ=environ,
        fault="data_loading",
        fault_rank=2,
        fault_step=FAULT_STEP,
        steps=STEPS,
    ) as job:
        assert job.finish() == 75
        diagnosis = job.diagnosis()
        assert (diagnosis.verdict, diagnosis.culprits) == ("RankNonCommHang", (2,))
        assert all(rank.progress is None for rank in job.snapshot().ranks)


def test_a_job_under_plain_torchrun_is_analysed_by_pid(tmp_path: Path) -> None:
    with torchrun(tmp_path, fault="frozen", fault_rank=0, fault_step=FAULT_STEP, steps=STEPS) as job:
        stopped = Stopped(job.pid)
        until(stopped.found, "a stopped worker")
        code, diagnosis = job.analyze_json("--pid", str(job.pid))
        assert code == 3
        assert (diagnosis["verdict"], diagnosis["kind"], diagnosis["culprits"]) == (
            "RankNonCommHang",
            "frozen",
            [0],
        )
        alone = job.diag("analyze", "--json")
        assert alone.returncode == 3
        assert stopped.found()


class Stopped:
    """Finds a stopped child of a process."""

    def __init__(self, parent: int) -> None:
        self.parent = parent

    def found(self) -> bool:
        children = Path(f"/proc/{self.parent}/task/{self.parent}/children").read_text().split()
        for child in children:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                    return True
        return False


def test_a_port_in_use_costs_the_health_server_and_nothing_else(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with diag_run(tmp_path, f"--diag-port={port}", ranks=1, steps=5) as job:
            assert job.finish() == 0
            (line,) = [line for line in job.stderr.splitlines() if "health server" in line]
            assert str(port) in line


def test_an_unwritable_home_costs_the_records_and_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    environ = {"RANKSCOPE_HOME": str(blocked / "below")}
    with diag_run(tmp_path / "job", environ=environ, ranks=1, steps=5) as job:
        assert job.finish() == 0
        assert "step 4" in job.stdout
        (line,) = [line for line in job.stderr.splitlines() if "cannot write records" in line]
        assert str(blocked) in line


def test_without_py_spy_the_job_runs_and_a_hang_says_why_it_was_not_seen(tmp_path: Path) -> None:
    python = python_without_tools(tmp_path / "environment")
    environ = {"PATH": os.defpath}
    flags = ("--max-restarts=0", "--job-hang-interval=9", "--diagnose-after=4")
    with diag_run(
        tmp_path / "job",
        *flags,
        environ=environ,
        python=python,
        ranks=2,
        fault="data_loading",
        fault_rank=1,
        steps=STEPS,
    ) as job:
        assert job.finish() == 75
        assert all(not rank.observed and "py-spy" in (rank.reason or "") for rank in job.snapshot().ranks)


@of_the_hang
def test_nothing_is_left_behind(hang: Seen) -> None:
    job = hang.job
    for root in ("/dev/shm", os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp"):
        if root:
            assert not list(Path(root).glob(f"rankscope-agent-{job.pid}-*"))
    assert job_folder(job.run_id, job.home).job() is not None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--no-such-flag", "train.py"], "--no-such-flag"),
        (["--nproc-per-node", "2", "/no/such/script.py"], "no such script: /no/such/script.py"),
        (["--no-python", "no-such-command-anywhere"], "no such command: no-such-command-anywhere"),
        (["--job-hang-interval", "soon", __file__], "--job-hang-interval 'soon'"),
        (["--max-restarts", "many", __file__], "--max-restarts"),
        (["--nproc-per-node", "some", __file__], "some"),
    ],
)
def test_a_wrong_command_line_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    job = Job(tmp_path, "never")
    done = job.diag("run", *arguments)
    assert done.returncode == 2
    lines = done.stderr.decode().strip().splitlines()
    assert len(lines) == 1, lines
    assert expected in lines[0]


def test_a_signal_that_ends_a_suspected_job_leaves_an_incident(tmp_path: Path) -> None:
    with diag_run(
        tmp_path, ranks=2, fault="data_loading", fault_rank=1, fault_step=FAULT_STEP, steps=STEPS
    ) as job:
        job.wait_for_event("suspected")
        job.signal(signal.SIGTERM)
        job.finish()
        assert job.diagnosis().culprits == (1,)
        (ended,) = job.events("job.ended")
        assert ended.data["result"] == "stopped by SIGTERM"
