"""A link between ranks that is slow, or swallows everything: two network namespaces, the drawn rank alone in
one.

The answers were written from the faults and from DIAGNOSIS.md's rows 7 and S2: the communication layer is at
fault, and the link's own rank is what its pairs share. The kernel's counters of connections are the further
evidence that row 7 asks for; they are there in both modes. Needs root, ``ip``, ``tc`` and ``nsenter``.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.faults.draw import Draw
from tests.faults.netns import limit_link, placed, swallow, two_places
from tests.faults.rows import HERE, Beside, Row, culprit, program
from tests.jobs import Job, until

_PATIENCE: Final = 60.0


def _at_step(job: Job, draw: Draw) -> None:
    until(lambda: f"step {draw.at} " in job.stdout, f"step {draw.at}", seconds=_PATIENCE)


def _swallow(job: Job, draw: Draw) -> None:
    _at_step(job, draw)
    swallow(job.folder)


def _limit(job: Job, draw: Draw) -> None:
    _at_step(job, draw)
    limit_link(job.folder, "20mbit")


ROWS: Final[tuple[Row, ...]] = (
    Row(
        "swallowed_packets",
        "diagnosis",
        "the link of one rank swallows all packets from the middle of a step on",
        culprit("RankCommHang", "network", "share", rule="7", line=HERE),
        partial(placed, program("bulky_job.py", "--step-time=0.05", "--size=1000000")),
        renames=("share",),
        most_ranks=4,
        around=two_places,
        during=_swallow,
        launch=("--no-python",),
    ),
    Row(
        "slow_link",
        "diagnosis",
        "the link of one rank passes 20 Mbit/s from a step on",
        culprit("RankCommSlow", "network", "share", rule="S2", line=HERE),
        partial(placed, program("bulky_job.py")),
        renames=("share",),
        most_ranks=4,
        around=two_places,
        during=_limit,
        launch=("--no-python",),
        beside=Beside(quiet=2.0, after="step {at}", goes_on=True, flags=("--samples=40", "--interval=0.35")),
        by_itself=True,
    ),
)
