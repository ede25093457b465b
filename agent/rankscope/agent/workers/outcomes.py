"""Results of a run in torch's own form, from what was decided: failures by global rank, the root first.

It must not know how a decision came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from torch.distributed.elastic.agent.server.api import RunResult, Worker, WorkerState
from torch.distributed.elastic.multiprocessing import PContext
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from rankscope.agent.failures import Failure
from rankscope.agent.workers.torch_files import write_error
from rankscope.diag.model import Decision

_FAILED: Final = 1


class NodeLeavesError(ChildFailedError):
    """This node leaves the job: its workers are stopped, and the rendezvous stays open for the others."""


class RestartTimedOutError(ChildFailedError):
    """A restart took too long; something of torch's may still be waiting in a thread that was left behind."""


def failures_of(
    decision: Decision, workers: Sequence[Worker], pcontext: PContext | None
) -> dict[int, ProcessFailure]:
    """A failure for each culprit of a decision; without a culprit here, for each of the workers.

    The reason goes into torch's error file of each that wrote none: it becomes the printed traceback.
    """
    named = [worker for worker in workers if worker.global_rank in decision.culprits]
    found: dict[int, ProcessFailure] = {}
    for worker in named or workers:
        error_file = pcontext.error_files.get(worker.local_rank, "") if pcontext is not None else ""
        write_error(error_file, decision.reason)
        found[worker.global_rank] = ProcessFailure(
            local_rank=worker.local_rank,
            pid=worker.id,
            exitcode=decision.exit_code or _FAILED,
            error_file=error_file,
        )
    return found


def with_root_first(
    result: RunResult, root: Failure | None, workers: Sequence[Worker], pcontext: PContext | None
) -> RunResult:
    """A failed result in which torch names the root that was found.

    torch takes the failure with the smallest time, in whole seconds; among equal ones the first.
    """
    worker = next((one for one in workers if root is not None and one.global_rank == root.rank), None)
    if root is None or worker is None:
        return result
    rest = dict(result.failures)
    first = rest.pop(root.rank, None) or ProcessFailure(
        local_rank=worker.local_rank,
        pid=worker.id,
        exitcode=root.exit_code if root.exit_code is not None else _FAILED,
        error_file=pcontext.error_files.get(worker.local_rank, "") if pcontext is not None else "",
    )
    first.timestamp = min([first.timestamp, *(one.timestamp for one in rest.values())])
    return RunResult(
        state=WorkerState.FAILED,
        return_values=result.return_values,
        failures={root.rank: first, **rest},
    )
