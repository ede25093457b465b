"""What ``diag run`` does about failures: restarts, refusals, exit codes. Real agents, torchless workers."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from tests.jobs import Job, until
from tests.scripted_jobs import actions, job_of

from rankscope.diag import proc
from rankscope.diag.store.incidents import IncidentFolder

RETRYABLE = "--fault-tolerant-policy=ExitCodeAndErrorMsg"

ALWAYS_FAILS = """
import os
if os.environ["RANK"] == "1":
    raise ValueError(f"no shard at {id(object()):#x}")
input_never_comes = __import__("threading").Event().wait()
"""


def last_reason(job: Job) -> str:
    return str(job.events("decision")[-1].data["reason"])


def root_of(stderr: str) -> str:
    """The rank that torch's last report names as the root cause."""
    (rank,) = re.findall(r"Root Cause.*?rank\s+: (\d+)", stderr, re.DOTALL)[-1:]
    return str(rank)


def test_the_same_error_of_whichever_rank_ends_the_job_and_all_records_name_the_same_root(
    tmp_path: Path,
) -> None:
    text = 'raise ValueError(f"no shard at {id(object()):#x}")'
    flags = ("--max-restarts=5", "--max-num-of-same-error=1", "--monitor-interval=1")
    with job_of(tmp_path, text, *flags) as job:
        assert job.finish() == 93
        assert actions(job) == ["restart", "fail"]
        assert "this is time 2 of the same error on " in last_reason(job)
        assert len(job.events("restart")) == 1
        roots = [event.data for event in job.events("worker.failed") if event.data.get("root")]
        assert len({root["identity"] for root in roots}) == 1
        own = [event.data for event in job.events("worker.failed") if event.data.get("identity")]
        assert len(own) == 4  # of both ranks, at both launches
        (ended,) = job.events("job.ended")
        assert ended.data["exit_code"] == 93
        # Both ranks fail at once: who was first is a guess, and the same one everywhere.
        tied = roots[-1]["tied_with"]
        assert isinstance(tied, list)
        first = {roots[-1]["rank"], *tied}
        assert set(job.diagnosis().culprits) == set(job.decision().culprits) == first
        assert ("cannot be told" in job.diagnosis().summary) == (len(first) > 1)
        assert last_reason(job).startswith(job.diagnosis().summary)


def test_restarts_are_made_while_the_job_gets_further_and_not_without_a_new_step(tmp_path: Path) -> None:
    text = """
import os
from rankscope.watchdog import job_monitor as jm
life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if life < 3:
    jm.Monitor().step(life)
raise SystemExit(10 + life)
"""
    with job_of(tmp_path, text, "--max-restarts=9", "--no-progress-limit=2", ranks=1) as job:
        assert job.finish() == 93
        assert actions(job) == ["restart"] * 4 + ["fail"]
        assert "2 restarts in a row have made no new step" in last_reason(job)


def test_where_only_known_errors_are_retried_the_workers_may_name_theirs(tmp_path: Path) -> None:
    text = """
import os
from rankscope.watchdog import job_monitor as jm
jm.Monitor().set_retryable_errors(["shelf is empty"])
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise KeyError("the shelf is empty")
raise ValueError("no such shelf")
"""
    with job_of(tmp_path, text, "--max-restarts=3", RETRYABLE, ranks=1) as job:
        assert job.finish() == 93
        assert actions(job) == ["restart", "fail"]
        assert "ValueError" in last_reason(job)
        assert len(job.events("restart")) == 1


def test_a_transient_error_with_restarts_used_up_asks_to_be_run_again(tmp_path: Path) -> None:
    flags = ("--max-restarts=1", RETRYABLE, "--retryable-exit-codes=17")
    with job_of(tmp_path, "raise SystemExit(17)", *flags, ranks=1) as job:
        assert job.finish() == 75
        assert actions(job) == ["restart", "fail"]


def test_never_means_never_also_without_evidence(tmp_path: Path) -> None:
    flags = ("--max-restarts=3", "--fault-tolerant-policy=Never", "--evidence-budget=0")
    with job_of(tmp_path, ALWAYS_FAILS, *flags) as job:
        assert job.finish() == 93
        assert actions(job) == ["fail"]


def test_the_first_in_time_is_the_root_and_torch_names_it_too(tmp_path: Path) -> None:
    # Both have ended before torch looks: it would take the one with the smaller rank.
    text = """
import os, time
from pathlib import Path
told = Path(os.environ["FOLDER"], "told")
if os.environ["RANK"] == "1":
    told.touch()
    os._exit(9)
while not told.exists():
    time.sleep(0.001)
raise RuntimeError("Connection closed by peer")
"""
    with job_of(tmp_path, text, "--monitor-interval=1") as job:
        assert job.finish() == 1
        (root,) = [event for event in job.events("worker.failed") if event.data.get("root")]
        assert root.data["rank"] == 1
        assert job.decision().culprits == (1,)
        assert root_of(job.stderr) == "1"


def test_a_job_that_is_ended_while_nobody_reads_its_output_says_so_in_record_and_exit_code(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "stdout")
    reader = os.open(tmp_path / "stdout", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with job_of(tmp_path, 'print("x" * 3_000_000)', ranks=1) as job:
            job.wait_for_event("cycle.ended")
            job.signal(signal.SIGTERM)
            assert job.finish() == 1
            (ended,) = job.events("job.ended")
            assert (ended.data["result"], ended.data["exit_code"]) == ("stopped by SIGTERM", 1)
            # Whoever asks a job to end kills it soon: such a console is given up early, or at once.
            assert "took nothing for 10 s" in job.stderr or "interrupted while output" in job.stderr
    finally:
        os.close(reader)


def test_an_agent_that_was_killed_and_started_again_goes_on_counting(tmp_path: Path) -> None:
    text = """
import os, time
from pathlib import Path
folder = Path(os.environ["FOLDER"])
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" or (folder / "second").exists():
    raise SystemExit(5)
(folder / "first").touch()
while True:
    time.sleep(0.05)
"""
    flags = ("--max-restarts=2", "--no-progress-limit=0")
    with job_of(tmp_path, text, *flags, ranks=1) as job:
        until((tmp_path / "first").exists, "the first restart")
        workers = job.agent().workers
        job.signal(signal.SIGKILL)
        job.finish()
        assert actions(job) == ["restart"]
        assert all(proc.start_ticks(worker.pid) == worker.start_ticks for worker in workers)
        (tmp_path / "second").touch()
        # Its workers are left running: the next agent ends them before it starts others.
        with job_of(tmp_path, text, *flags, ranks=1) as again:
            assert again.finish() == 1
            assert not any(proc.start_ticks(worker.pid) == worker.start_ticks for worker in workers)
            assert actions(again) == ["restart", "restart", "fail"]
            assert "restart 2 of 2" in str(again.events("decision")[1].data["reason"])
            (stopping,) = again.events("stopping")
            assert stopping.data["reason"] == "the agent that had started them was killed"
            look = IncidentFolder(again.records.incidents / str(stopping.subject)).snapshot("a")
            assert look is not None
            (seen,) = look.ranks
            assert (seen.pid, bool(seen.threads)) == (workers[0].pid, True)
