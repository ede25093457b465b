"""One node's agent of a small gloo job whose workers write down, in every round, whom they met and where.

``--train failing``: the last rank exits with 5 while its peers wait for it, until its agent has restarted it
``--failures`` times. ``--train until-told``: all train until the file ``finish`` appears in the folder.
Prints what the launch returned as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig

from rankscope.agent.launcher import launch_agent

GROUP_TIMEOUT = timedelta(seconds=60)


def train(name: str, folder: str, agent: str, failures: int) -> int:
    """One worker: meet the others, write that down, then what ``name`` asks for; returns the world's size."""
    dist.init_process_group("gloo", timeout=GROUP_TIMEOUT)
    total = torch.ones(1)
    dist.all_reduce(total)
    _write_down(Path(folder), agent, int(total.item()))
    dist.barrier()  # every rank of a round that formed has written
    if name == "failing":
        _fail_if_due(failures)
    else:
        _train_until_told(Path(folder) / "finish")
    dist.barrier()
    dist.destroy_process_group()
    return int(total.item())


def _write_down(folder: Path, agent: str, total: int) -> None:
    meeting = {
        "agent": agent,
        "store": f"{os.environ['MASTER_ADDR']} {os.environ['MASTER_PORT']}",
        "agent_store": os.environ["TORCHELASTIC_USE_AGENT_STORE"],
        "group_rank": int(os.environ["GROUP_RANK"]),
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
        "sum": total,
    }
    # One writer a file, renamed when whole: a killed worker leaves no half of a line.
    part = folder / f"{os.getpid()}.part"
    part.write_text(json.dumps(meeting))
    part.rename(part.with_suffix(".json"))


def _fail_if_due(failures: int) -> None:
    last = dist.get_rank() == dist.get_world_size() - 1
    if last and int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < failures:
        os._exit(5)


def _train_until_told(finish: Path) -> None:
    while True:
        told = torch.tensor([int(finish.exists())])
        dist.all_reduce(told)
        if int(told.item()) == dist.get_world_size():
            return
        time.sleep(0.02)


def main() -> None:
    """Run the agent that the command line describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--train", choices=["failing", "until-told"], default="failing")
    parser.add_argument("--agent", default="a")
    parser.add_argument("--failures", type=int, default=10)
    parser.add_argument("--nnodes", default="1:1")
    parser.add_argument("--backend", default="c10d")
    parser.add_argument("--endpoint", default="localhost:0")
    parser.add_argument("--conf", type=json.loads, default={})
    parser.add_argument("--script", action="store_true", help="workers are commands, not functions")
    flags = parser.parse_args()
    low, high = map(int, flags.nnodes.split(":"))
    config = LaunchConfig(
        min_nodes=low,
        max_nodes=high,
        nproc_per_node=2,
        run_id="rounds",
        rdzv_backend=flags.backend,
        rdzv_endpoint=flags.endpoint,
        rdzv_configs=flags.conf,
        max_restarts=3 * flags.failures,  # each node counts, and a node may count its peers' failures too
        monitor_interval=0.05,
        start_method="forkserver",
    )
    # Workers are forked from a server that has imported torch: 0.1 s instead of 2 s each.
    multiprocessing.set_forkserver_preload(["torch.distributed"])
    arguments = (flags.train, flags.folder, flags.agent, flags.failures)
    if flags.script:
        result = launch_agent(config, sys.executable, [__file__, "--worker", *map(str, arguments)])
    else:
        result = launch_agent(config, train, arguments)
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        train(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main()
