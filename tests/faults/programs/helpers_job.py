"""A DDP job one rank of which uses other processes or tools, and one of them lets it down (``--fault``).

``child``: a command that it runs never ends. ``pool``: a process of its pool is killed, and what that had to
do is never done. ``stopped``: the rank is stopped by a signal. ``spawn``: a command's output goes to a pipe
that nobody reads, so that its start never ends and the kernel does not let go of the rank. ``build``: the
lock of a build that was killed is still there. It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import subprocess
import time
from multiprocessing.pool import Pool
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = 20
OPERATOR = "#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"


def convert(command: list[str]) -> None:
    """Run a command to its end."""
    subprocess.run(command, check=True)  # stuck here: child


def count(text: str) -> int:
    """Count letters; an empty text is the end of the process, as with the OOM killer."""
    if not text:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(text)


def count_all(pool: Pool, texts: list[str]) -> list[int]:
    """Count in several processes."""
    return pool.map(count, texts)  # stuck here: pool


def pause() -> None:
    """Stop as by a debugger or a batch system."""
    os.kill(os.getpid(), signal.SIGSTOP)  # stuck here: stopped


def start_command(pipe: Path) -> int:
    """Start a command whose output goes to a pipe."""
    output = [(os.POSIX_SPAWN_OPEN, 1, str(pipe), os.O_WRONLY, 0o600)]
    return os.posix_spawn("/bin/echo", ["echo", "done"], os.environ, file_actions=output)  # stuck here: spawn


def build_operator(folder: Path) -> object:
    """Build an operator and load it."""
    from torch.utils.cpp_extension import load

    source = folder / "operator.cpp"
    source.write_text(OPERATOR)
    return load("operator", [str(source)], build_directory=str(folder))  # stuck here: build


def use_helper(fault: str, folder: Path) -> None:
    """What the one rank does."""
    if fault == "child":
        convert(["sleep", "600"])
    elif fault == "pool":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            count_all(pool, ["some", "", "words"])
    elif fault == "stopped":
        pause()
    elif fault == "spawn":
        os.mkfifo(folder / "output")
        start_command(folder / "output")
    elif fault == "build":
        (folder / "lock").touch()  # left by a build that was killed
        build_operator(folder)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["child", "pool", "stopped", "spawn", "build"], required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=1, help="-1: every rank")
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step in range(2 * options.at):
        if step == options.at and options.rank in (rank, -1):
            options.folder.mkdir(parents=True, exist_ok=True)
            use_helper(options.fault, options.folder)
        loss = model(torch.rand(8, FEATURES)).square().mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
