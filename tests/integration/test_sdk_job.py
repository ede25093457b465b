"""The SDK in real jobs under ``diag run``: what ranks say is on the console and in the records."""

from __future__ import annotations

from pathlib import Path

from tests.jobs import diag_run

SAYS = """
import os
from rankscope.watchdog import job_monitor as jm

rank = os.environ["RANK"]
monitor = jm.Monitor(config=jm.PyTorchConfig(job_hang_interval=600, max_num_of_same_error=3))
monitor.set_retryable_errors(["loader timed out", f"shard {rank} is gone"])
for step in range(3):
    with jm.hang_detect(1800, name="evaluation"):
        monitor.step(step)
status = monitor.send_custom_message(content=f"rank {rank} has seen 3 steps")
print("status", status.to_string(), flush=True)
monitor.reset_config(job_hang_interval=-1)
"""


def test_what_ranks_say_is_shown_and_recorded(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SAYS)
    with diag_run(tmp_path / "job", ranks=2, script=[str(script)]) as job:
        assert job.finish() == 0
        assert job.stdout.splitlines() == ["status OK"] * 2
        said = {event.data["rank"]: event.data["content"] for event in job.events("message")}
        assert said == {rank: f"rank {rank} has seen 3 steps" for rank in (0, 1)}
        for rank in (0, 1):
            assert f"rankscope: rank {rank} says: rank {rank} has seen 3 steps\n" in job.stderr
            assert [
                event.data["values"] for event in job.events("settings.changed") if event.data["rank"] == rank
            ] == [
                {"job_hang_interval": 600, "max_num_of_same_error": 3},
                {"retryable_errors": ["loader timed out", f"shard {rank} is gone"]},
                {"job_hang_interval": -1},
            ]
        assert job.stderr.count("only recorded: max_num_of_same_error") == 1


HANGS = """
import os, threading
import torch
import torch.distributed as dist
from rankscope.watchdog import job_monitor as jm

dist.init_process_group("gloo")
jm.Monitor(config=jm.PyTorchConfig(job_hang_interval=600))
for step in range(5):
    dist.all_reduce(torch.ones(1))
with jm.hang_detect(10, name="evaluation"):
    if dist.get_rank() == 1:
        threading.Event().wait()
    dist.barrier()
"""


def test_a_stage_has_a_limit_of_its_own_that_is_acted_on(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HANGS)
    flags = ("--max-restarts=0", "--job-hang-interval=900")
    with diag_run(tmp_path / "job", *flags, ranks=2, script=[str(script)]) as job:
        suspected = job.wait_for_event("suspected")
        assert suspected.data["reason"] in {
            f"no progress for {seconds} s in stage evaluation" for seconds in range(2, 9)
        }
        assert job.finish() == 75
        assert job.diagnosis().culprits == (1,)
        assert job.decision().action == "fail"
