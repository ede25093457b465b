"""A rank without torch: works until a file tells it to ``fail`` (in its first life only) or to ``stop``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
FIRST = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

print(f"rank {os.environ['RANK']} lives", flush=True)
while not (FOLDER / "stop").exists():
    sum(range(10_000))
    time.sleep(0.02)
    if FIRST and (FOLDER / "fail").exists():
        sys.exit(5)
