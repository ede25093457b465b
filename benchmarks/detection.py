"""Row about noticing (NUMBERS.md): seconds from the last progress to the confirmed verdict, 100 ms steps.

Real 2-rank training jobs under ``diag run`` with default settings, each with another fault, side by side; a
job's own record says how long its ranks had been silent when the verdict was stored. The peers cannot be run
here: NVRx and LM-Resiliency need GPUs, torch and AIMaster wait for a fixed time-out.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from pathlib import Path
from typing import Final

from tests.jobs import Job, diag_run

from benchmarks.row import Row

FAULTS: Final = {"data_loading": 1, "lock": 0, "frozen": 1}
"""Fault and the rank that is given it."""
BAR: Final = 15.0
_STEP: Final = 30


def rows() -> list[Row]:
    """Measure: about 30 s."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        jobs = [
            stack.enter_context(
                diag_run(
                    Path(folder) / fault,
                    ranks=2,
                    environ={"TMPDIR": folder},
                    fault=fault,
                    fault_rank=rank,
                    fault_step=_STEP,
                    steps=2 * _STEP,
                )
            )
            for fault, rank in FAULTS.items()
        ]
        silences = [_silence(job) for job in jobs]
    median = statistics.median(silences)
    return [
        Row(
            "last progress to confirmed verdict, 100 ms steps",
            f"{median:.1f} s, longest {max(silences):.1f} s of {len(silences)}",
            "not run; others say 31-600 s",
            0.0,
            f"<= {BAR:.0f} s",
            median <= BAR,
        )
    ]


def _silence(job: Job) -> float:
    seconds = job.wait_for_event("incident.confirmed").data["seconds"]
    assert isinstance(seconds, float)
    return seconds
