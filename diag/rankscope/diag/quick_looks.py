"""Quick looks at ranks of a running job that others wait for and that work: an endless loop, or not?

Two looks some seconds apart cannot tell (DIAGNOSIS.md, decision 8). A few more with C++ frames tell a loop in
Python from one call in C that keeps the GIL. What they mean is not known here.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Final

from rankscope.diag.capture import LONGEST_HOLD, Target, capture_ranks
from rankscope.diag.capture.samples import MAX_SAMPLED, sample_ranks
from rankscope.diag.discover import FoundJob
from rankscope.diag.live import targets_of
from rankscope.diag.model import Diagnosis, JobSnapshot, RankSnapshot

_IN_C: Final = 3
"""Looks with C++ frames; each stops the rank for 0.02-0.4 s, for ``LONGEST_HOLD`` at most."""


def quick_looks(
    job: FoundJob, diagnosis: Diagnosis, *, timeout: float, stop: threading.Event
) -> tuple[JobSnapshot, ...]:
    """Looks at the ranks that a diagnosis suspects and that others wait for, none where there are none.

    Args:
        job: its ranks on this host.
        diagnosis: what two looks gave.
        timeout: seconds that one look with C++ frames may take.
        stop: ends it between two looks.
    """
    suspects = {one.rank for one in diagnosis.ranks if one.state == "suspected"}
    awaited = {rank for one in diagnosis.ranks if one.role == "victim" for rank in one.waits_for}
    targets = [one for one in targets_of(job, socket.gethostname()) if one.rank in suspects & awaited]
    if not targets:
        return ()
    looks = sample_ranks(targets, pause=stop.wait)
    in_c: list[tuple[RankSnapshot, ...]] = []
    while len(in_c) < _IN_C and not stop.is_set():
        in_c.append(_with_native(targets[:MAX_SAMPLED], timeout))
        if any("--native" not in (rank.source or "") for rank in in_c[-1]):
            break  # it would be held again for nothing
    return tuple(JobSnapshot(job.job, look[0].time, job.world_size, look) for look in (*looks, *in_c))


def _with_native(targets: Sequence[Target], timeout: float) -> tuple[RankSnapshot, ...]:
    return capture_ranks(
        targets,
        timeout=timeout,
        children=False,
        native=True,
        longest_hold=LONGEST_HOLD,
        record=False,
        backends=("py-spy",),
    )
