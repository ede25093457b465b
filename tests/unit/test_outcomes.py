"""Results in torch's form: which failure torch names as the root, and what becomes of a decision."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch.distributed.elastic.agent.server.api import RunResult, Worker, WorkerState
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from rankscope.agent.failures import Failure
from rankscope.agent.workers.outcomes import failures_of, with_root_first
from rankscope.diag.model import Decision


def workers(*ranks: int) -> list[Worker]:
    made = [Worker(local_rank=local, global_rank=rank) for local, rank in enumerate(ranks)]
    for worker in made:
        worker.id = 1000 + worker.global_rank
    return made


def a_failure(local_rank: int, *, at: int, exitcode: int = 1) -> ProcessFailure:
    failure = ProcessFailure(local_rank=local_rank, pid=1, exitcode=exitcode, error_file="")
    failure.timestamp = at
    return failure


def the_root(rank: int, exit_code: int | None = 9) -> Failure:
    return Failure(
        rank=rank,
        local_rank=0,
        node="host-a",
        role="default",
        exit_code=exit_code,
        message="killed",
        identity="killed",
        source="exit code",
        retryable=False,
        because="",
        at=0.0,
    )


@pytest.mark.parametrize("times", [(100, 100), (99, 100), (100, 99)])
def test_torch_names_the_root_whatever_its_whole_seconds_say(times: tuple[int, int]) -> None:
    failures = {4: a_failure(0, at=times[0]), 5: a_failure(1, at=times[1])}
    result = RunResult(WorkerState.FAILED, failures=failures)
    found = with_root_first(result, the_root(5), workers(4, 5), None)
    assert ChildFailedError("train.py", found.failures).get_first_failure()[0] == 5
    assert found.is_failed()


def test_a_root_that_torch_has_missed_is_added() -> None:
    # torch.multiprocessing tells of the first failed process that it meets, and of no other.
    result = RunResult(WorkerState.FAILED, failures={4: a_failure(0, at=100)})
    found = with_root_first(result, the_root(5), workers(4, 5), None)
    rank, first = ChildFailedError("train.py", found.failures).get_first_failure()
    assert (rank, first.local_rank, first.pid, first.exitcode) == (5, 1, 1005, 9)


def test_a_root_of_another_node_changes_nothing_here() -> None:
    result = RunResult(WorkerState.FAILED, failures={4: a_failure(0, at=100)})
    assert with_root_first(result, the_root(9), workers(4, 5), None) is result
    assert with_root_first(result, None, workers(4, 5), None) is result


def test_each_culprit_fails_with_the_decisions_code_and_its_reason_as_traceback(tmp_path: Path) -> None:
    context: Any = SimpleNamespace(error_files={0: str(tmp_path / "0.json"), 1: str(tmp_path / "1.json")})
    decision = Decision(action="fail", reason="rank 5 hangs", time="", culprits=(5,), exit_code=75)
    found = failures_of(decision, workers(4, 5), context)
    assert {rank: failure.exitcode for rank, failure in found.items()} == {5: 75}
    assert "rank 5 hangs" in str(ChildFailedError("train.py", found))


def test_without_a_culprit_here_every_worker_fails() -> None:
    decision = Decision(action="fail", reason="unknown", time="", culprits=(9,))
    found = failures_of(decision, workers(4, 5), None)
    assert {rank: failure.exitcode for rank, failure in found.items()} == {4: 1, 5: 1}
