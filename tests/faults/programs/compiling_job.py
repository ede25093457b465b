"""Training one rank of which compiles its model at one step, with a compiler that never comes to an end.

It knows nothing of Rankscope.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch._inductor import config as inductor

FEATURES = 20
COMPILER = "#!/bin/sh\nexec sleep 3600\n"


def choose_compiler(folder: Path) -> None:
    """The site's own compiler, which asks a licence server first."""
    compiler = folder / "site-c++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o700)
    inductor.cpp.cxx = (None, str(compiler))
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "kernels")


def forward(model: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
    """The loss of a batch."""
    return model(batch).square().mean()  # stuck here


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--at", type=int, default=30)
    parser.add_argument("--step-time", type=float, default=0.1)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model: nn.Module = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    faster: Callable[[torch.Tensor], torch.Tensor] = model
    for step in range(3 * options.at):
        if step == options.at and rank == options.rank:
            choose_compiler(options.folder)
            faster = torch.compile(model)
        loss = forward(faster, torch.rand(8, FEATURES))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(options.step_time)
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
