"""A rank that measures what the probe costs it: ``parts`` or ``batches``; prints one JSON object, in seconds.

Started as a worker is, with the probe on ``PYTHONPATH`` and a slot in its environment. ``parts`` takes the
probe that runs in it and calls what training would; ``batches`` knows of none and can be run without one.
"""

from __future__ import annotations

import json
import mmap
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

GROUPS: Final = 8
_CALLS: Final = 100_000
_ROUNDS: Final = 9
_BEATS: Final = 200
_BATCHES: Final = 20_000
_LOADERS: Final = 4
"""Iterators that are alive at a beat: training, validation and whatever else a script keeps."""


class _Batches(Dataset[int]):
    """Batches that cost nothing themselves."""

    def __len__(self) -> int:
        return _BATCHES

    def __getitem__(self, index: int) -> int:
        if index >= _BATCHES:
            raise IndexError(index)
        return index


def parts() -> dict[str, float]:
    """Medians: the floor of a step, the page's part, the hook, ``Monitor.step``, a beat, a status read."""
    from rankscope.watchdog.job_monitor import Monitor
    from rankscope.watchdog.probe.boot import running

    probe = running()
    if probe is None:
        raise RuntimeError("no probe runs in this process")
    probe.beat.stop()
    scratch = mmap.mmap(-1, 4096)
    pack_into, clock, record, hook = (
        struct.pack_into,
        time.monotonic_ns,
        probe.writer.step,
        probe.counter.hook,
    )
    step = Monitor().step
    optimizer, arguments, keywords = object(), (), dict[str, object]()
    calls: dict[str, Callable[[], object]] = {
        "floor": lambda: pack_into("<QQ", scratch, 0, 1, clock()),
        "page": lambda: record(1, clock()),
        "hook": lambda: hook(optimizer, arguments, keywords),
        "monitor": lambda: step(1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    empty: list[float] = []
    for _ in range(_ROUNDS):
        empty.append(_seconds(lambda: None))
        for name, call in calls.items():
            seconds[name].append(_seconds(call))
    # The loop and its lambda are everybody's and nobody's cost.
    loop = statistics.median(empty)
    found = {name: statistics.median(taken) - loop for name, taken in seconds.items()}
    scratch.close()
    return {**found, **_beat(probe.beat.once)}


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    for _ in range(_CALLS):
        call()
    return (time.perf_counter() - begin) / _CALLS


def _beat(once: Callable[[], None]) -> dict[str, float]:
    """A beat with live loaders and a collective in each group before it, and the record's status alone."""
    from rankscope.watchdog.probe.recorder import find_recorders

    loaders = [iter(DataLoader(_Batches(), batch_size=None)) for _ in range(_LOADERS)]
    beats: list[float] = []
    reads: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        address = (Path(folder) / "rendezvous").as_uri()
        dist.init_process_group("gloo", init_method=address, rank=0, world_size=1)
        groups = [None, *(dist.new_group([0]) for _ in range(GROUPS - 1))]
        recorders = find_recorders()
        for _ in range(_BEATS):
            for group in groups:
                dist.all_reduce(torch.ones(1), group=group)
            for loader in loaders:
                next(loader)
            begin = time.perf_counter()
            once()
            between = time.perf_counter()
            for recorder in recorders:
                recorder.read()
            reads.append(time.perf_counter() - between)
            beats.append(between - begin)
        dist.destroy_process_group()
    return {"beat": statistics.median(beats), "record": statistics.median(reads)}


def batches() -> dict[str, float]:
    """Least CPU seconds that a data loader takes for a batch: with and without are processes of their own."""
    taken: list[float] = []
    for _ in range(_ROUNDS):
        loader = DataLoader(_Batches(), batch_size=None)
        begin = time.thread_time()
        for _batch in loader:
            pass
        taken.append((time.thread_time() - begin) / _BATCHES)
    return {"batch": min(taken)}


if __name__ == "__main__":
    print(json.dumps({"parts": parts, "batches": batches}[sys.argv[1]]()))
