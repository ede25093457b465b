"""The row about folding (NUMBERS.md): 1,024 ranks x 103 KB of py-spy JSON, 40 threads x 25 frames each.

From the files of one job to its folded stacks and their prefix tree. The peer is sysom-hang-analyzer's
``stack_processor``: ``json.load`` of each file, every frame into a trie, the trie into a text file (its flame
graph is left out). Each runs in a process of its own; imports do not count. Run as a program this module is
one of the two: ``ours FOLDER`` or ``peer FOLDER``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

RANKS: Final = 1_024
THREADS: Final = 40
DEPTH: Final = 25
BAR: Final = 15
PEER: Final = "sysom-hang-analyzer==1.0.17"
_VARIANTS: Final = 3
_ROUNDS: Final = 5
_NAME: Final = "fold 1,024 ranks x {size:.0f} KB of py-spy JSON"


def rows() -> list[Any]:
    """Measure: about 20 s, and once half a minute for the peer's environment."""
    from benchmarks.peers import peer_python
    from benchmarks.row import Row

    peer = peer_python(PEER)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = _write(folder)
        pairs = [
            (_run(Path(sys.executable), "ours", folder), _run(peer, "peer", folder) if peer else 0.0)
            for _ in range(_ROUNDS)
        ]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return [
        Row(
            _NAME.format(size=size / 1e3),
            f"{ours:.2f} s",
            f"{theirs:.2f} s, {PEER.partition('==')[0]}" if peer else f"{PEER}: cannot be had (known: 2.2 s)",
            theirs / ours,
            f">= {BAR}x faster",
            theirs >= BAR * ours,
        )
    ]


def _run(python: Path, side: str, folder: Path) -> float:
    """CPU seconds that one side takes, as it says itself."""
    root = Path(__file__).parent.parent
    # What the peer calls besides (a flame graph) is not to be found.
    environ = {**os.environ, "PYTHONPATH": str(root) if side == "ours" else "", "PATH": "/nowhere"}
    command = [str(python), str(Path(__file__).resolve()), side, str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=folder, env=environ, timeout=60
    )
    return float(done.stdout.splitlines()[-1])


def _write(folder: Path) -> int:
    """The same dumps for both; the size of one, bytes."""
    (folder / "ours").mkdir()
    (folder / "peer").mkdir()
    size = 0
    for rank in range(RANKS):
        threads = [_thread(rank, number) for number in range(THREADS)]
        dump = json.dumps(threads, separators=(",", ":"))
        size = len(dump)
        (folder / "ours" / f"rank{rank}.json").write_text(dump)
        facts = f'"rank":{rank},"world_size":{RANKS},"process_state":"S"'
        (folder / "peer" / f"{rank:05}.stackdata").write_text(f'{{{facts},"stack_data":{dump}}}')
    return size


def _thread(rank: int, number: int) -> dict[str, Any]:
    """As py-spy 0.4 writes it: main threads in one of three places, others part below the third call."""
    leaf = _frame(DEPTH, rank % _VARIANTS if number == 0 else 0)
    calls = [_frame(depth, number if depth >= 3 else 0) for depth in range(DEPTH - 1)]
    pid = 1_000 + 64 * rank
    return {
        "pid": pid,
        "thread_id": 140_000_000_000 + rank * THREADS + number,
        "thread_name": "MainThread" if number == 0 else f"Thread-{number}",
        "os_thread_id": pid + number,
        "active": False,
        "owns_gil": False,
        "frames": [leaf, *reversed(calls)],
        "process_info": None,
    }


def _frame(depth: int, variant: int) -> dict[str, Any]:
    return {
        "name": f"f{depth}_{variant}",
        "filename": f"/m{depth}.py",
        "module": None,
        "short_filename": "m.py",
        "line": 10 + depth,
        "locals": None,
    }


def _ours() -> Callable[[Path], None]:
    from rankscope.diag.merge import fold_others, fold_stacks, prefix_tree
    from rankscope.diag.model import RankSnapshot
    from rankscope.diag.read.pyspy import parse_pyspy_json

    def fold(folder: Path) -> None:
        dumps = (parse_pyspy_json((folder / f"rank{rank}.json").read_bytes(), pid=0) for rank in range(RANKS))
        ranks = [RankSnapshot(rank, threads=dump.threads) for rank, dump in enumerate(dumps)]
        groups = [*fold_stacks(ranks), *fold_others(ranks)]
        if sum(group.count for group in groups) != RANKS * THREADS:
            raise RuntimeError("threads were lost")
        prefix_tree(groups)

    return fold


def _peer() -> Callable[[Path], None]:
    # Only the peer's environment has it.
    from cluster.stack_processor import process_combined_stacks  # type: ignore[import-not-found]

    return lambda folder: process_combined_stacks(sorted(folder.glob("*.stackdata")), str(folder))


if __name__ == "__main__":
    _side = sys.argv[1]
    _fold = {"ours": _ours, "peer": _peer}[_side]()  # imports what it needs
    _begin = time.process_time()
    _fold(Path(sys.argv[2]) / _side)
    print(time.process_time() - _begin)
