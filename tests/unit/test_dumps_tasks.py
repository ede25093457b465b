"""What Slurm and launchers say of tasks that ended, and of jobs that were ended from outside."""

from __future__ import annotations

import pytest
from tests.dumps_factory import WAITS, a_dump, a_file, gathered
from tests.reading_factory import read

from rankscope.diag.classify import Catalogue, diagnose
from rankscope.diag.classify.log_words import with_log_facts
from rankscope.diag.dumps.names import read_name
from rankscope.diag.dumps.pieces import Source
from rankscope.diag.model import Diagnosis

AGENT = "torch/distributed/elastic/agent/server/api.py:704]"


def a_log(*lines: str) -> Source:
    return Source("slurm-1.out", read_name(["slurm-1.out"]), read("\n".join(lines) + "\n"))


def dumps_of(*ranks: int) -> list[Source]:
    return [a_file(f"rank{rank}.txt", a_dump(10 + rank, *WAITS)) for rank in ranks]


def judged(*sources: Source) -> Diagnosis:
    found = gathered(*sources)
    diagnosis = diagnose(
        (found.snapshots[-1], None), catalogue=Catalogue.load(), source_line=lambda _f, _l: None, time="t"
    )
    return with_log_facts(diagnosis, found.facts)[0]


def ends_of(*sources: Source) -> dict[int, int | None]:
    ranks = gathered(*sources).snapshots[-1].ranks
    return {one.rank: one.exit.code for one in ranks if one.exit is not None}


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("Out Of Memory", -9),
        ("Killed", -9),
        ("Exited with exit code 3", 3),
        ("Segmentation fault (core dumped)", -11),
        ("Segmentation fault", -11),
        ("Bus error", -7),
        ("Aborted (core dumped)", -6),
    ],
)
def test_a_task_that_is_just_the_rank_without_a_stack_is_that_rank(how: str, code: int) -> None:
    log = a_log(f"srun: error: gpu-7: task 2: {how}")
    assert ends_of(*dumps_of(0, 1, 3), log) == {2: code}
    assert ends_of(*dumps_of(0, 1), log) == {2: code}
    found = judged(*dumps_of(0, 1, 3), log)
    assert (found.verdict, found.culprits) == ("Exited", (2,))


def test_tasks_that_srun_ended_behind_the_first_are_no_cause() -> None:
    log = a_log(
        "srun: error: n-1: task 2: Killed",
        "srun: Terminating StepId=1.0",
        "slurmstepd: error: *** STEP 1.0 ON n-1 CANCELLED AT 2024-01-01T00:00:00 ***",
        "srun: error: n-1: tasks 0-1,3: Terminated",
    )
    assert ends_of(*dumps_of(0, 1, 3), log) == {2: -9}


@pytest.mark.parametrize(
    "ranks",
    [
        range(8),  # a task of several ranks: the agent on a node
        (0, 2, 4, 5),
    ],
)
def test_a_task_that_may_hold_several_ranks_is_told_with_its_node(ranks: range) -> None:
    log = a_log(
        "srun: error: gpu-7: task 1: Out Of Memory", "slurmstepd: error: Detected 2 oom_kill events in x"
    )
    assert ends_of(*dumps_of(*ranks), log) == {}
    found = judged(a_log("srun: error: gpu-7: tasks 1,3: Out Of Memory"))
    assert (found.verdict, found.culprits, found.nodes) == ("Exited", (), ("gpu-7",))
    assert "srun says of tasks 1,3 on gpu-7: Out Of Memory" in found.summary


def test_tasks_of_a_launcher_are_no_ranks() -> None:
    log = a_log(f"{AGENT} Sending process 9 closing signal SIGTERM", "srun: error: n: task 2: Killed")
    assert 2 not in ends_of(*dumps_of(0, 1, 3), log)


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2024-07-01T12:00:00 DUE TO PREEMPTION ***",
        "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2024-07-01T12:00:00 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2024-07-01T12:00:00 DUE TO NODE FAILURE, SEE X ***",
        "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2024-07-01T12:00:00 ***",
        f"W0701 12:00:00.100000 812 {AGENT} Received Signals.SIGTERM death signal, shutting down workers",
        "WARNING:torch.distributed.elastic.agent.server.api:Received 15 death signal, shutting down workers",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 812 got signal: 15",
    ],
)
def test_a_job_that_was_ended_from_outside_is_nobodys_fault(line: str) -> None:
    found = judged(a_log("step 1", line))
    assert (found.verdict, found.culprits, found.severity) == ("Exited", (), "info")
    assert "ended from outside" in found.summary
    failed = judged(a_log("Traceback (most recent call last):", "ValueError: bad batch", line))
    assert failed.verdict == "Unknown"
    assert judged(*dumps_of(0, 1), a_log(line)).verdict != "Exited"


def test_the_traceback_of_a_launcher_that_was_stopped_is_no_exception_of_a_rank() -> None:
    lines = (
        "Traceback (most recent call last):",
        '  File "/venv/bin/torchrun", line 8, in <module>',
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 812 got signal: 15",
    )
    log = Source("rank0.log", read_name(["rank0.log"]), read("\n".join(lines) + "\n"))
    assert not any(one.exit for one in gathered(log).snapshots[-1].ranks)
