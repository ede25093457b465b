"""``rankscope.agent.launch`` and an agent that somebody makes by himself: watched as under ``diag run``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.jobs import Job

PROGRAM = Path(__file__).parent / "programs" / "launching_job.py"


def launched(folder: Path, mode: str) -> tuple[dict[str, Any], Job]:
    """What the program says, and the job's records."""
    job = Job(folder, f"launched-{folder.name}")
    job.start([sys.executable, str(PROGRAM), mode], {"TEST_RUN_ID": job.run_id})
    try:
        assert job.finish() == 0, job.stderr
    except subprocess.TimeoutExpired:
        job.end()
        raise
    said: dict[str, Any] = json.loads(job.stdout)
    return said, job


def test_a_launch_by_a_program_returns_what_torchs_does_and_leaves_records(tmp_path: Path) -> None:
    said, job = launched(tmp_path, "restart")
    assert said == {"said": {"0": 0, "1": 10}, "same_handlers": True}
    (root,) = [event for event in job.events("worker.failed") if event.data.get("root")]
    assert "ConnectionError: a peer reset the connection" in str(root.data["message"])
    assert [event.data["action"] for event in job.events("decision")] == ["restart"]
    (ended,) = job.events("job.ended")
    assert (ended.data["result"], ended.data["exit_code"]) == ("succeeded", 0)
    assert job.agent().phase == "ended"


def test_an_agent_that_has_lost_track_of_its_workers_is_never_recovered(tmp_path: Path) -> None:
    said, job = launched(tmp_path, "lost")
    assert "UNKNOWN state" in said["said"]
    (decision,) = job.events("decision")
    assert decision.data["exit_code"] == 75
    assert "is not known" in str(decision.data["reason"])
    (ended,) = job.events("job.ended")
    assert ended.data["exit_code"] == 75
    assert not job.events("restart")
