"""Jobs one rank of which is alone but alive for a minute: all comes right by itself, and nothing is done.

What may be published on the way: that a rank works, polls or loops, as ``info``; that a rank waits quietly,
which cannot be told from a hang while it lasts (DIAGNOSIS.md, "Noticing"), as ``warning``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Literal

from tests.faults.draw import Draw
from tests.faults.outside import LONGEST_HOLD, feed_late, hold_start, with_converter, with_pipe
from tests.faults.rows import Command, Passing, Row, program
from tests.jobs import Job

_BUSY: Final = "is busy"


def _row(
    name: str,
    what: str,
    command: Command,
    *,
    ranks: int = 2,
    at_most: Literal["info", "warning"] = "info",
    during: Callable[[Job, Draw], None] | None = None,
) -> Row:
    return Row(
        name,
        "alone",
        what,
        Passing(at_most),
        command,
        least_ranks=ranks,
        most_ranks=ranks,
        zero=False,
        modes=("run",),
        during=during,
        patience=200.0,
    )


def _occupied(spell: str, *flags: str) -> Command:
    return program("occupied_job.py", f"--spell={spell}", *flags)


ROWS: Final[tuple[Row, ...]] = (
    _row(
        "alone_evaluates",
        "rank 0 evaluates on the CPU for a minute, the others wait in a barrier",
        program("evaluating_job.py", "--alone", "--seconds=60", "--meet=barrier", "--steps=40", "--every=30"),
        ranks=3,
    ),
    _row(
        "alone_device",
        "rank 0 waits for its device's evaluation for a minute, the others for the next step",
        program(
            "evaluating_job.py",
            "--alone",
            "--seconds=60",
            "--on=device",
            "--step-time=0.2",
            "--steps=30",
            "--every=20",
        ),
    ),
    _row(
        "alone_saves",
        "rank 0 saves a checkpoint to a busy disk for a minute, the others wait in the next step",
        program("checkpoint_job.py", "--folder={folder}/saved", "--seconds=60"),
        ranks=3,
    ),
    _row(
        "alone_uploads",
        "rank 0 saves to a store that limits the rate for a minute, the others wait in the next step",
        program("checkpoint_job.py", "--folder={folder}/saved", "--seconds=60", "--wait=quota"),
        ranks=4,
    ),
    _row(
        "alone_builds",
        "rank 0 builds kernels in a child process for a minute, the others wait in a barrier",
        program("building_job.py", "--seconds=60", "--who=0", "--build-at=30"),
    ),
    _row(
        "alone_python", "rank 1 works in Python for a minute, its memory grows", _occupied("python"), ranks=3
    ),
    _row(
        "alone_searches",
        "rank 1 works in Python in place for a minute: no different from an endless loop while it lasts",
        _occupied("search"),
    ),
    _row("native_gil", "rank 1 is in C for a minute and keeps the GIL", _occupied("native_gil"), ranks=3),
    _row("native_free", "rank 1 is in C for a minute, without the GIL", _occupied("native_free")),
    _row(
        "share_stalls",
        "rank 1 reads from a pipe that gets its data after a minute",
        partial(with_pipe, _occupied("read", "--source={folder}/source")),
        ranks=3,
        at_most="warning",
        during=partial(feed_late, after=_BUSY, seconds=60.0),
    ),
    _row(
        "kernel_stalls",
        "rank 1 starts a command that the kernel holds up for 40 s: uninterruptible sleep",
        partial(with_converter, _occupied("convert", "--source={folder}/source")),
        at_most="warning",
        during=partial(hold_start, after=_BUSY, seconds=LONGEST_HOLD),
    ),
    _row(
        "loader_sleeps",
        "rank 1's loader workers wait for a server for 90 s in the second epoch",
        program("loader_job.py", "--prepare=sleep", "--seconds=90", "--rank=1", "--slow-from=1"),
        at_most="warning",
    ),
)
