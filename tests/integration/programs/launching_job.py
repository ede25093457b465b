"""A program that launches workers itself: ``launching_job.py MODE``, by ``rankscope.agent.launch``.

``restart`` has the function fail once, ``lost`` makes torch lose track of a worker. Prints what came of it as
one line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerGroup
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent import DiagElasticAgent, launch
from rankscope.agent.launcher import launch_agent

HANDLED = (signal.SIGTERM, signal.SIGUSR2)


def work(factor: int) -> int:
    """One worker; rank 1 fails in its first life."""
    rank = int(os.environ["RANK"])
    if rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ConnectionError("a peer reset the connection")
    return factor * rank


class LosingAgent(DiagElasticAgent):
    """An agent that takes another process for its worker."""

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        ids = super()._start_workers(worker_group)
        return {**ids, 0: os.getpid()}


def main() -> None:
    """Launch, and say what came of it."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id=os.environ["TEST_RUN_ID"],
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=1,
        monitor_interval=0.05,
        start_method="fork",
    )
    if hasattr(config, "signals_to_handle"):
        config.signals_to_handle = "SIGTERM,SIGUSR2"
    before = [signal.getsignal(number) for number in HANDLED]
    said: object = None
    try:
        if sys.argv[1] == "lost":
            launch_agent(config, "sleep", ["60"], make_agent=LosingAgent)
        said = launch(config, work)(10)
    except ChildFailedError as error:
        said = f"failed: {sorted(error.failures)}"
    except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to see it
        said = f"{type(error).__name__}: {error}"
    same_handlers = [signal.getsignal(number) for number in HANDLED] == before
    print(json.dumps({"said": said, "same_handlers": same_handlers}))


if __name__ == "__main__":
    main()
