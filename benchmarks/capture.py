"""Rows about capture (NUMBERS.md): eight ranks at once against one after the other, and a worker's pause.

The peer runs ``py-spy dump --json`` on each rank in turn; ours and the peer alternate. The pause is the
longest gap that a rank which does nothing but look at the clock sees while it is captured; beside it
stands the longest gap in a window of the same length without a capture. Run as a program this module is
such a rank: ``wait`` or ``spin``.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from benchmarks.row import Row
from rankscope.diag.capture import Target, capture_ranks
from rankscope.diag.capture.pyspy import find_pyspy

RANKS: Final = 8
RATIO_BAR: Final = 0.6
PAUSE_BAR: Final = 0.005
_THREADS: Final = 4
_ROUNDS: Final = 15
_PAUSES: Final = 40
_TIMEOUT: Final = 30.0


def rows() -> list[Row]:
    """Measure: about 15 s."""
    return [_parallel_row(), _pause_row()]


def _parallel_row() -> Row:
    tool = find_pyspy() or "py-spy"
    with contextlib.ExitStack() as stack:
        pids = [stack.enter_context(_rank("wait")) for _ in range(RANKS)]
        targets = [Target(rank, pid) for rank, pid in enumerate(pids)]
        pairs = [
            (_seconds(lambda: _capture(targets)), _seconds(lambda: _one_by_one(tool, pids)))
            for _ in range(_ROUNDS)
        ]
    ours, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row(
        f"capture of {RANKS} local ranks, Python frames ({len(os.sched_getaffinity(0))} cores)",
        f"{ours * 1e3:.1f} ms",
        f"{peer * 1e3:.1f} ms, one py-spy after another",
        ours / peer,
        f"<= {RATIO_BAR}x of the peer's time",
        ours <= RATIO_BAR * peer,
    )


def _pause_row() -> Row:
    with tempfile.TemporaryDirectory() as folder, _apart() as core:
        page = Path(folder) / "gap"
        page.write_bytes(bytes(8))
        with _rank("spin", str(page), str(core)) as pid, page.open("r+b") as file:
            gap = mmap.mmap(file.fileno(), 8)
            paused, idle = [], []
            for _ in range(_PAUSES):
                begin = time.perf_counter()
                paused.append(_largest_gap(gap, lambda: _capture([Target(0, pid)])))
                window = time.perf_counter() - begin
                idle.append(_largest_gap(gap, lambda: time.sleep(window)))  # noqa: B023 - called at once
            gap.close()
    pause, noise = statistics.median(paused), statistics.median(idle)
    return Row(
        "pause of a worker per capture",
        f"{pause * 1e3:.2f} ms, longest {max(paused) * 1e3:.1f} ms",
        f"{noise * 1e3:.2f} ms, longest gap without",
        0.0,
        "median <= 5 ms",
        pause <= PAUSE_BAR,
    )


def _capture(targets: list[Target]) -> None:
    # Stacks against stacks: py-spy asks nobody for a flight record.
    for snapshot in capture_ranks(targets, timeout=_TIMEOUT, record=False):
        if not snapshot.observed:
            raise RuntimeError(f"rank {snapshot.rank}: {snapshot.reason}")


def _one_by_one(tool: str, pids: list[int]) -> None:
    for pid in pids:
        subprocess.run([tool, "dump", "--json", "--pid", str(pid)], capture_output=True, check=True)


def _seconds(action: Callable[[], None]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _largest_gap(gap: mmap.mmap, action: Callable[[], None]) -> float:
    gap[:] = bytes(8)
    action()
    (nanoseconds,) = struct.unpack("<Q", gap[:])
    return float(nanoseconds) * 1e-9


@contextlib.contextmanager
def _apart() -> Generator[int]:
    """A core for the rank, the others for us, as long as there are two."""
    cores = os.sched_getaffinity(0)
    core = min(cores)
    os.sched_setaffinity(0, cores - {core} or cores)
    try:
        yield core
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def _rank(*arguments: str) -> Generator[int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.capture", *arguments],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    try:
        if process.stdout is not None:
            process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def _wait() -> None:
    def wait_for_gradients() -> None:
        threading.Event().wait()

    for number in range(_THREADS):
        threading.Thread(target=wait_for_gradients, name=f"aux-{number}", daemon=True).start()
    print("ready", flush=True)
    wait_for_gradients()


def _spin(page: str, core: int) -> None:
    os.sched_setaffinity(0, {core})
    with Path(page).open("r+b") as file:
        gap = mmap.mmap(file.fileno(), 8)
    print("ready", flush=True)
    last = time.perf_counter_ns()
    while True:
        now = time.perf_counter_ns()
        if now - last > struct.unpack_from("<Q", gap)[0]:
            struct.pack_into("<Q", gap, 0, now - last)
        last = now


if __name__ == "__main__":
    importlib.import_module("torch")  # a rank has torch's libraries mapped
    if sys.argv[1] == "spin":
        _spin(sys.argv[2], int(sys.argv[3]))
    else:
        _wait()
