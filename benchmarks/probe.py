"""Rows about the probe (NUMBERS.md): a step's beat, one beat of its thread with 8 groups, interpreter start.

The floor of a step is reading the clock and packing into a map, nothing else. Starts with and without the
probe are measured in turn. Run as a program this module is a worker with 8 gloo groups that prints
what one beat took.
"""

from __future__ import annotations

import mmap
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.row import Row
from rankscope.watchdog import environment, probe
from rankscope.watchdog.page import SlotWriter, create_page
from rankscope.watchdog.probe.beat import Beat
from rankscope.watchdog.probe.steps import StepCounter

GROUPS: Final = 8
STEP_SECONDS: Final = 0.1
"""Length of the training step that costs are set against."""
_STEPS: Final = 100_000
_BEATS: Final = 200
_ROUNDS: Final = 9
_STARTS: Final = 15
_DEADLINE: Final = 120.0
_LOADED_BY_TORCH: Final = "import dataclasses, inspect, mmap, pathlib, threading, traceback, typing"
"""What torch imports as well: a worker that imports torch pays only once for it."""


def rows() -> list[Row]:
    """Measure everything: about 20 s on two cores."""
    step, floor = _step_seconds()
    beat = _beat_seconds()
    share = step / STEP_SECONDS + beat / 1.0
    return [
        Row(
            "progress beat per step",
            f"{step * 1e6:.2f} us",
            f"{floor * 1e6:.2f} us (clock, pack_into)",
            step / floor,
            "<= 3x the floor",
            step <= 3 * floor,
        ),
        Row(
            f"cost of the probe to training, 100 ms steps, {GROUPS} groups",
            f"{share:.4%}, a beat {beat * 1e6:.0f} us",
            "not run; others claim 0.4-0.5 %",
            0.0,
            "<= 0.1 %",
            share <= 0.001,
        ),
        _start_row("interpreter start, a rank", "pass", rank="0"),
        _start_row("interpreter start, a rank with torch's imports", _LOADED_BY_TORCH, rank="0"),
        _start_row("interpreter start, no rank", "pass", rank=None),
    ]


def _step_seconds() -> tuple[float, float]:
    """Medians: one step through the hook, and the floor."""
    ours: list[float] = []
    floors: list[float] = []
    optimizer, arguments, keywords = object(), (), dict[str, object]()
    scratch = mmap.mmap(-1, 4096)
    with tempfile.TemporaryDirectory() as folder:
        create_page(f"{folder}/page", 1)
        writer = SlotWriter(f"{folder}/page", 0)
        hook = StepCounter(writer.step).hook
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            for _ in range(_STEPS):
                hook(optimizer, arguments, keywords)
            ours.append((time.perf_counter() - start) / _STEPS)
            start = time.perf_counter()
            for _ in range(_STEPS):
                struct.pack_into("<QQ", scratch, 0, 1, time.monotonic_ns())
            floors.append((time.perf_counter() - start) / _STEPS)
        writer.close()
    scratch.close()
    return statistics.median(ours), statistics.median(floors)


def _beat_seconds() -> float:
    """Median of one beat in a worker with real groups."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.probe"],
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return float(done.stdout)


def _start_row(name: str, code: str, *, rank: str | None) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        page = f"{folder}/page"
        create_page(page, 1)
        bare = {
            **os.environ,
            environment.PAGE: page,
            environment.SLOT: "0",
            environment.AGENT_PID: str(os.getpid()),
            **({"RANK": rank} if rank is not None else {}),
        }
        probed = {**bare, "PYTHONPATH": probe.pythonpath(bare.get("PYTHONPATH"))}
        _start_seconds(code, probed)  # fills the caches
        pairs = [(_start_seconds(code, probed), _start_seconds(code, bare)) for _ in range(_STARTS)]
    ours, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row(
        name,
        f"{ours * 1e3:.1f} ms",
        f"{peer * 1e3:.1f} ms without",
        ours / peer,
        "<= 300 ms more",
        ours - peer <= 0.3,
    )


def _start_seconds(code: str, environ: Mapping[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=_DEADLINE)
    return time.perf_counter() - start


def _worker() -> None:
    """One process, 8 groups with collectives in each; prints the median seconds of a beat."""
    import torch
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "gloo", init_method=(Path(folder) / "rendezvous").as_uri(), rank=0, world_size=1
        )
        groups = [None, *(dist.new_group([0]) for _ in range(GROUPS - 1))]
        create_page(f"{folder}/page", 1)
        writer = SlotWriter(f"{folder}/page", 0)
        beat = Beat(writer)
        seconds: list[float] = []
        for _ in range(_BEATS):
            for group in groups:
                dist.all_reduce(torch.ones(1), group=group)
            start = time.perf_counter()
            beat.once()
            seconds.append(time.perf_counter() - start)
        dist.destroy_process_group()
        writer.close()
    print(statistics.median(seconds))


if __name__ == "__main__":
    _worker()
