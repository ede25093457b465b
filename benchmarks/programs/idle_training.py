"""A worker that makes an optimizer step every 100 ms, without collectives, until it is ended.

After a few steps it leaves a file named after its rank in the folder that it is given.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

import torch

STEP_TIME: Final = 0.1
_SETTLED: Final = 3


def main(folder: Path) -> None:
    """Train for ever."""
    folder.mkdir(exist_ok=True)
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    step = 0
    while True:
        optimizer.zero_grad()
        torch.autograd.backward(weight.sum())
        optimizer.step()
        step += 1
        if step == _SETTLED:
            (folder / os.environ["RANK"]).touch()
        time.sleep(STEP_TIME)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
