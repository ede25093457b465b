"""A real job whose agent is killed with SIGKILL and started again under the same run id."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from tests.jobs import Job, end_process, until

from rankscope.agent.records.past import Past
from rankscope.agent.records.replay import differences
from rankscope.diag.commands.history import main
from rankscope.diag.history.read import read_job
from rankscope.diag.store.job import AgentFile

# No torch in it: its first step comes soon, and steps are all that the records need.
TRAINS = """
import itertools, time
from rankscope.watchdog import job_monitor as jm
monitor = jm.Monitor()
for step in itertools.count():
    monitor.step(step)
    time.sleep(0.02)
"""


def test_the_records_of_a_killed_agent_are_found_and_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path, f"killed-{tmp_path.name}")
    script = tmp_path / "train.py"
    flags = ["--nproc-per-node=2", f"--rdzv-id={job.run_id}", "--max-restarts=2"]
    command = [sys.executable, "-m", "rankscope.agent", *flags, str(script)]
    script.write_text(TRAINS)
    left: list[AgentFile] = []
    try:
        job.start(command)
        job.wait_for_event("cycle.training")
        end_process(job.agent().workers[1].pid, job.run_id)
        job.wait_for_event("restart")
        until(lambda: len(job.events("cycle.training")) == 2, "training after the restart")
        created = job.records.job()
        left.append(job.agent())
        job.signal(signal.SIGKILL)
        job.finish()
        job.start(command)
        until(lambda: len(job.events("cycle.training")) == 3, "training under the second agent")
        past = Past.of(job.events())
        assert (past.continues, past.restarts) == (True, 1)
        assert len(job.events("job.started")) == 2
        job.signal(signal.SIGTERM)
        job.finish()
    finally:
        job.end()
        for worker in (worker for agent in left for worker in agent.workers):
            end_process(worker.pid, job.run_id)
    assert created is not None
    ended = job.records.job()
    assert ended is not None
    assert (ended.created, ended.result) == (created.created, "stopped by SIGTERM")
    assert [path.name for path in (job.home / "jobs").iterdir()] == [job.run_id]
    assert [event.number for event in job.events()] == list(range(1, len(job.events()) + 1))
    assert list(differences(job.events(), read_job(job.records).diagnoses)) == []
    assert main([str(job.records.path), "--json"]) == 0
    history = json.loads(capsys.readouterr().out)
    assert history["warnings"] == []
    results = [(cycle["number"], cycle["result"]) for cycle in history["cycles"]]
    assert results == [(1, "restarted"), (2, "cut off"), (3, "stopped by SIGTERM")]
    (restart,) = history["restarts"]
    assert (restart["record"]["error_code"], restart["record"]["instance_name"]) == ("-9", "rank 1")
    assert [fault["is_root"] for fault in restart["faults"]] == [True]
    spent = {one["cause"]: one["seconds"] for one in history["spent"]}
    assert all(spent[cause] > 0 for cause in ("rendezvous", "start", "first_step", "agent_gone"))
    assert sum(spent.values()) == pytest.approx(history["wall"], abs=1e-6)
