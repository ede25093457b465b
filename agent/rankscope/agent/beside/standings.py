"""Where each rank stands by torch's own flight record, for jobs whose ranks run torch's server.

A record costs its rank 1-30 ms of a thread that holds no lock of the training's, so it is asked for rarely,
and more rarely where nobody answered. What the numbers mean is ``pulse``'s to say.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from rankscope.agent.beside.pulse import Standings
from rankscope.diag import proc
from rankscope.diag.capture import Target
from rankscope.diag.capture.record import read_recorded

PERIOD: Final = 10.0
"""Seconds between two questions."""
TIMEOUT: Final = 3.0
"""Seconds for the answers of all ranks."""


def read_standings(targets: Mapping[int, Target]) -> Standings:
    """Ask all ranks; empty unless every one of them has answered with numbers."""
    deadline = time.monotonic() + TIMEOUT
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for rank, target in targets.items():
        facts = proc.read_facts(target.pid, now=time.monotonic())
        if facts is None or facts.start_ticks != target.start_ticks:
            return {}
        said = read_recorded(
            facts, rank=rank, folders=(), environ=proc.environ(target.pid), deadline=deadline
        )
        if not said.server_answers or said.record is None:
            return {}
        groups = [(group.enqueued, group.completed) for group in said.record.groups if group.enqueued >= 0]
        if not groups:
            return {}
        found[rank] = tuple(groups)
    return found
