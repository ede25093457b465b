"""Row about the command line (NUMBERS.md): what `diag --help` takes beyond a bare interpreter start."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.row import Row

BAR: Final = 0.150
_ROUNDS: Final = 15
_DEADLINE: Final = 60.0


def rows() -> list[Row]:
    """Measure: about 5 s."""
    diag = [str(Path(sys.executable).parent / "diag"), "--help"]
    bare = [sys.executable, "-c", "pass"]
    _seconds(diag)  # fills the caches
    pairs = [(_seconds(diag), _seconds(bare)) for _ in range(_ROUNDS)]
    ours, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    more = statistics.median(our - other for our, other in pairs)
    return [
        Row(
            "start of diag --help",
            f"{ours * 1e3:.0f} ms, {more * 1e3:.0f} ms more",
            f"{peer * 1e3:.0f} ms (python -c pass)",
            ours / peer,
            f"<= {BAR * 1e3:.0f} ms more",
            more <= BAR,
        )
    ]


def _seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=_DEADLINE)
    return time.perf_counter() - begin
