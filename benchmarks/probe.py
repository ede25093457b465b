"""Rows about the probe (NUMBERS.md): what a step, a batch and a beat cost a rank, and the start.

The parts are measured one by one in a real rank (programs/probed_rank.py) and added up as a share of a
training step. The floor of a step is reading the clock and packing into a map, nothing else. With and without
the probe are measured in turn. End to end, beside torchrun, the same is measured by ``training``.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.row import Row
from rankscope.watchdog import environment, probe
from rankscope.watchdog.page import create_page

GROUPS: Final = 8
"""As in programs/probed_rank.py."""
STEP_SECONDS: Final = 0.1
"""Length of the training step that costs are set against."""
BEATS_A_SECOND: Final = 1.0
BAR: Final = 0.001
FLOORS: Final = 3
START_BAR: Final = 0.3
_STARTS: Final = 15
_BATCH_ROUNDS: Final = 3
_DEADLINE: Final = 120.0
_RANK: Final = str(Path(__file__).parent / "programs" / "probed_rank.py")
_LOADED_BY_TORCH: Final = "import dataclasses, inspect, mmap, pathlib, threading, traceback, typing"
"""What torch imports as well: a worker that imports torch pays only once for it."""


class Parts(msgspec.Struct, frozen=True):
    """Seconds that a rank spends on the probe, each part alone.

    Attributes:
        floor: the clock and ``pack_into``, which is what a step cannot cost less than.
        page: the same through ``SlotWriter.step``.
        hook: the optimizer hook, with the page's part in it.
        monitor: ``Monitor.step``, which only scripts call that want to.
        beat: one beat of the probe's thread.
        record: the status of the flight recorder, a part of the beat.
    """

    floor: float
    page: float
    hook: float
    monitor: float
    beat: float
    record: float

    def share(self, batch: float) -> float:
        """Part of the training that one hook and one batch a step and a beat a second take."""
        return (self.hook + max(0.0, batch)) / STEP_SECONDS + self.beat * BEATS_A_SECOND


class _Batch(msgspec.Struct):
    batch: float


def rows() -> list[Row]:
    """Measure everything: about 40 s on two cores."""
    with _environ("0") as bare:
        parts = msgspec.json.decode(_output([_RANK, "parts"], _probed(bare)), type=Parts)
    batch, plain = _batch_seconds()
    return [
        _step_row("progress beat per step", parts.page, parts.floor),
        _step_row("the same, through the optimizer hook", parts.hook, parts.floor),
        _step_row("the same, Monitor.step", parts.monitor, parts.floor),
        *cost_rows(parts, batch, plain),
        _start_row("interpreter start, a rank", "pass", rank="0"),
        _start_row("interpreter start, a rank with torch's imports", _LOADED_BY_TORCH, rank="0"),
        _start_row("interpreter start, no rank", "pass", rank=None),
    ]


def cost_rows(parts: Parts, batch: float, plain: float) -> list[Row]:
    """The sum of the parts and those without a row; ``batch`` is with, ``plain`` without the probe."""
    more = batch - plain
    share = parts.share(more)
    return [
        Row(
            f"cost of the probe to training, {STEP_SECONDS * 1e3:.0f} ms steps, {GROUPS} groups",
            f"{share:.4%}, hook + batch + beat",
            "others claim 0.4-0.5 %",
            0.0,
            f"<= {BAR:.1%}",
            share <= BAR,
        ),
        Row(
            "its part: a batch of a data loader",
            f"{more * 1e6:+.2f} us",
            f"{plain * 1e6:.2f} us a batch without the probe",
            batch / plain,
            "none",
            ok=True,
        ),
        Row(
            "its part: a beat, once a second",
            f"{parts.beat * 1e6:.0f} us",
            f"{parts.record * 1e6:.0f} us, the record's status alone",
            0.0,
            "none",
            ok=True,
        ),
    ]


def _step_row(name: str, ours: float, floor: float) -> Row:
    return Row(
        name,
        f"{ours * 1e6:.2f} us",
        f"{floor * 1e6:.2f} us (clock, pack_into)",
        ours / floor,
        f"<= {FLOORS}x the floor",
        ours <= FLOORS * floor,
    )


def _batch_seconds() -> tuple[float, float]:
    """Medians of a batch in a process with the probe and in one without, in turn."""
    pairs: list[tuple[float, float]] = []
    for _ in range(_BATCH_ROUNDS):
        with _environ("0") as bare:
            with_and_without = [_output([_RANK, "batches"], env) for env in (_probed(bare), bare)]
        ours, plain = (msgspec.json.decode(text, type=_Batch).batch for text in with_and_without)
        pairs.append((ours, plain))
    ours, plain = (statistics.median(column) for column in zip(*pairs, strict=True))
    return ours, plain


def _start_row(name: str, code: str, *, rank: str | None) -> Row:
    with _environ(rank) as bare:
        probed = _probed(bare)
        _start_seconds(code, probed)  # fills the caches
        pairs = [(_start_seconds(code, probed), _start_seconds(code, bare)) for _ in range(_STARTS)]
    ours, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row(
        name,
        f"{ours * 1e3:.1f} ms",
        f"{peer * 1e3:.1f} ms without",
        ours / peer,
        f"<= {START_BAR * 1e3:.0f} ms more",
        ours - peer <= START_BAR,
    )


def _start_seconds(code: str, environ: Mapping[str, str]) -> float:
    start = time.perf_counter()
    _output(["-c", code], environ)
    return time.perf_counter() - start


@contextlib.contextmanager
def _environ(rank: str | None) -> Generator[dict[str, str]]:
    """What an agent's worker has in its environment, but without the probe; its page lives as long."""
    with tempfile.TemporaryDirectory() as folder:
        create_page(f"{folder}/page", 1)
        (Path(folder) / "answers").mkdir()
        yield {
            **os.environ,
            environment.PAGE: f"{folder}/page",
            environment.SLOT: "0",
            environment.ANSWERS: f"{folder}/answers",
            environment.AGENT_PID: str(os.getpid()),
            **({"RANK": rank} if rank is not None else {}),
        }


def _probed(environ: Mapping[str, str]) -> dict[str, str]:
    return {**environ, "PYTHONPATH": probe.pythonpath(environ.get("PYTHONPATH"))}


def _output(arguments: Sequence[str], environ: Mapping[str, str]) -> bytes:
    done = subprocess.run(
        [sys.executable, *arguments], env=environ, stdout=subprocess.PIPE, check=True, timeout=_DEADLINE
    )
    return done.stdout
