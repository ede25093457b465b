"""One job that hangs, is looked at meanwhile, is restarted and finishes; every test looks at the same job."""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.jobs import Job, diag_run, until

from rankscope.diag.store.job import AgentFile, JobFolder, job_folder

FAULT_STEP = 30
STEPS = 60


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
    flags = ("--max-restarts=1", "--job-hang-interval=30", "--log-capture=on")
    with diag_run(
        folder, *flags, fault="data_loading", fault_rank=1, fault_step=FAULT_STEP, steps=STEPS, step_time=0.1
    ) as job:
        asking = AskHealth(job.records)
        job.wait_for_event("suspected")
        asking.ready_while_hung()
        pids = ",".join(str(worker.pid) for worker in job.agent().workers)
        with ThreadPoolExecutor() as both:  # on a busy host one after the other would be too late
            asked = [both.submit(job.analyze_json, *which) for which in ((job.run_id,), ("--pid", pids))]
            live, by_pid = (one.result() for one in asked)
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
        self.metrics = ""
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
            for path in ("/livez", "/readyz", "/health", "/healthz", "/metrics"):
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
        if path == "/metrics":
            self.metrics = body.decode()
        if path == "/readyz":
            self.phases.add(json.loads(body).get("phase", ""))

    def ready_while_hung(self) -> None:
        until(lambda: 503 in self.answers.get("/readyz", set()), "readyz to say that a rank is suspected")

    def stop(self) -> AskHealth:
        self._stop.set()
        self._thread.join()
        return self


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


def test_the_evidence_of_every_rank_is_stored_twice(hang: Seen) -> None:
    job = hang.job
    for which in ("a", "b"):
        snapshot = job.snapshot(which)
        assert [rank.rank for rank in snapshot.ranks] == [0, 1, 2]
        assert all(rank.observed and rank.threads and rank.progress for rank in snapshot.ranks)


def test_the_folded_stacks_name_who_waits(hang: Seen) -> None:
    job = hang.job
    diagnosis = job.diagnosis()
    waiting = next(group for group in diagnosis.stacks if group.ranks == "0,2")
    assert waiting.count == 2
    assert {thread.split(":")[0] for thread in waiting.threads} == {"0", "2"}
    assert {rank.rank: rank.waits_for for rank in diagnosis.ranks} == {0: (1,), 1: (), 2: (1,)}


def test_the_decision_and_the_restart_are_on_record(hang: Seen) -> None:
    job = hang.job
    assert job.decision().action == "restart"
    (restart,) = job.events("restart")
    assert restart.data["restarts"] == 1
    assert restart.data["instance_name"] == "rank 1"
    assert restart.data["result"] == "running"
    assert [event.data["restart_count"] for event in job.events("cycle.started")] == [0, 1]
    assert "resumed from step 30" in job.stdout


def test_the_terminal_shows_verdict_rank_file_and_line(hang: Seen) -> None:
    job = hang.job
    for part in ("RankNonCommHang", "rank 1", "read_shard", "train.py:", "restart 1 of 1", "stored in"):
        assert part in job.stderr


def test_a_live_job_is_analysed_by_its_run_id(hang: Seen) -> None:
    code, diagnosis = hang.live
    assert code == 3
    assert (diagnosis["verdict"], diagnosis["culprits"]) == ("RankNonCommHang", [1])
    assert diagnosis["observed"] == "0-2"


def test_a_live_job_is_analysed_by_its_pids(hang: Seen) -> None:
    code, diagnosis = hang.by_pid
    assert code == 3
    assert diagnosis["culprits"] == [1]


def test_an_ended_job_shows_its_stored_incident(hang: Seen) -> None:
    job = hang.job
    done = job.diag("analyze", "--json", job.run_id)
    assert done.returncode == 3
    assert json.loads(done.stdout)["incident"] == job.incident().id
    assert "read_shard" in hang.text


def test_health_answers_from_start_to_end(hang: Seen) -> None:
    health = hang.health
    assert health.unanswered == 0
    assert health.answers["/livez"] == {200}
    assert health.answers["/readyz"] == {200, 503}
    assert {"running"} <= health.phases


def test_the_metrics_tell_of_the_hang_and_of_the_restart(hang: Seen) -> None:
    """The last scrape before the end: what was counted has outlived the workers that it is about."""
    assert hang.health.answers["/metrics"] == {200}
    of = f'job="{hang.job.run_id}"'
    found = {
        (family.name, *sorted(label for name, label in one.labels.items() if name not in ("job", "node"))): (
            one.value
        )
        for family in text_string_to_metric_families(hang.health.metrics)
        for one in family.samples
        if not one.name.endswith("_bucket")
    }
    assert of in hang.health.metrics
    assert found["rankscope_incidents", "RankNonCommHang", "data_loading"] == 1
    assert (found["rankscope_restarts", "hang"], found["rankscope_restarts", "failure"]) == (1, 0)
    counts = {
        name: float(line.rpartition(" ")[2])
        for line in hang.health.metrics.splitlines()
        for name in ("detection", "capture", "timer_requests")
        if line.startswith((f"rankscope_{name}_seconds_count", f"rankscope_{name}_total"))
    }
    assert counts["detection"] == 1
    assert counts["capture"] >= 2
    assert found["rankscope_rank_step", "1"] > 0
    for check in ("gpu", "disk:records", "capture:permission"):
        assert found["rankscope_check_state", check, "pass"] == 1, hang.health.metrics


def test_every_line_of_the_workers_reaches_the_console_and_the_files(hang: Seen) -> None:
    job = hang.job
    logs = sorted(job.records.path.glob("nodes/*/logs/attempt_*/0/stdout.log"))
    assert len(logs) == 2
    lines = [line for log in logs for line in log.read_text().splitlines()]
    assert [line for line in job.stdout.splitlines() if line.startswith("step")] == [
        line for line in lines if line.startswith("step")
    ]


def test_nothing_is_left_behind(hang: Seen) -> None:
    job = hang.job
    for root in ("/dev/shm", os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp"):
        if root:
            assert not list(Path(root).glob(f"rankscope-agent-{job.pid}-*"))
    assert job_folder(job.run_id, job.home).job() is not None
