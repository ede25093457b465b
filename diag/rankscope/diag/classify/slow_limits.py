"""The limits of the slow rules, in one table, and what is known before the looks are judged.

Source of every limit is beside it: "counted" stands for a count of false alarms over simulated healthy jobs
(``tests/property/test_slowness_property.py`` repeats it with smaller numbers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# ---- S1 from flight records -------------------------------------------------------------------------------

WINDOWS_NS: Final = (20_000_000_000, 10_000_000_000)
"""Newest nanoseconds of a record that are judged; the shorter part finds what has only just begun."""
LEAST_COLLECTIVES: Final = 20
"""Steps of a window, counted by the collectives of one operation and size."""
LEAST_TIMES: Final = 10
"""So often the others waited for it noticeably: ten steps are no accident, and soon there."""
MOST_STEPS: Final = 0.7
"""Of its steps: "most collectives" (counted: without it, two ranks whose steps are drawn from a heavy-tailed
distribution blame one of them in 1-3 of 100 windows)."""
LEAST_GAP_NS: Final = 2_000_000
"""A noticeable wait: most of the noise is below (measured 0.1-0.5 ms between ranks of one host)."""
LEAST_SHARE: Final = 0.15
"""Of the window's time that the others wait for it alone: the design's step that takes 20 % longer loses a
sixth of its time."""
LEAST_OF_ALL: Final = 0.75
"""Of all waiting for a last member: ranks that are late in turn are an uneven load, and fair."""
PARTS: Final = 3
"""Parts of the window in each of which it must be the one that is waited for, and as long as in the others:
what is in one part only is an event (a checkpoint, a spike), not a pace."""
RESYNCED: Final = 0.8
"""Across hosts, of the noticeable waits: so many must be over at the next collective. Ranks that left one
together come to the next together; where they do not, calls are asynchronous and prove no offset (counted:
without it, healthy hosts of a job with asynchronous buckets are named in 1 of 200 windows)."""
RESYNCED_TO: Final = 0.25
"""Times the wait that the next may be."""
ONSET_GAPS: Final = 5
"""Times the usual distance between two noticeable waits after which an earlier one is another story."""

# ---- S1 from stacks ---------------------------------------------------------------------------------------

LEAST_LOOKS: Final = 5
MOST_INSIDE: Final = 0.5
LEAST_INSIDE: Final = 0.75
"""Whole looks of a dump: share of looks that the slow rank is in communication, and each other one. Measured
on a job of 3 ranks, one of which computes long: 6 of 8 looks outside, the others 8 of 8 inside."""
LEAST_DIFFERENCE: Final = 0.3
"""Of a live job: by how much less of the looks the slow rank is in communication than each other one."""
LEAST_SIGMAS: Final = 4.0
"""The same in standard errors of the difference (counted: fair ranks are named in less than 1 of 1000 rounds
of 20 looks at 2-8 ranks)."""
STARVED_SHARE: Final = 0.25
"""Of the time a rank could run and had no core, from which that is the reason."""
STARVED_TIMES: Final = 2.0
"""So many times as much as any other rank: a host that is busy starves all alike."""
STARVED_CPU: Final = 1.5
"""Times the CPU time of the others, at most: else it has more to compute, and that is the reason."""

# ---- S2 and S3 --------------------------------------------------------------------------------------------

LEAST_SLOW_LOOKS: Final = 8
LINK_SHARE: Final = 0.5
"""Of the looks in which bytes were on their way between two ranks and had not arrived. A link as fast as the
others is empty by the time that anybody looks (measured on one host: 0-2 of 20 looks, 16-20 behind
``tbf``)."""
LINK_TIMES: Final = 2.0
"""So many times as often as on the links that are not slow: a job that is bound by a sound network loads
all."""
MOST_WAITING: Final = 0.3
"""Of the time in communication, spent in waiting for whoever comes last: up to this all come together."""
INSIDE_ALL: Final = 0.5
"""Share of its looks that every rank must be in communication for it to be what takes long."""
COMMON_SHARE: Final = 0.3
"""Share of its looks that every rank must be in one kind of place, of a job that has become slower."""
COMMON_ALONE: Final = 0.6
"""The same of a job of which no own pace is known: most of its time goes there, which is all that is said."""
NEARLY: Final = 1.25
"""The kind of place must take as much of the looks as a step takes longer, nearly: looks are few (20 of them
are off by a tenth)."""
OPEN_SHARE: Final = 0.5
"""Of the looks that found a collective open: in one group so often, and in no other, means that group."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Steps take longer than this job's own steps did.

    Attributes:
        before: seconds a step, usually; now: of the newest.
        since_step: the first optimizer step that took as long.
    """

    before: float
    now: float
    since_step: int

    @property
    def extra_share(self) -> float:
        """The part of a step's time that was not there before."""
        return max(0.0, 1 - self.before / self.now) if self.now > 0 else 0.0


@dataclass(frozen=True, slots=True)
class SlowLook:
    """The looks were taken to find out whether something is slow, and what.

    Attributes:
        slowdown: what is known of the job's pace, ``None`` when nobody watched it.
        named: ranks that were found slow already since it began: it began with these.
        clocks_within: the clocks of the hosts were compared, times are of one of them, and the others may be
            off by so much, seconds; ``None`` where they were not.
    """

    slowdown: Slowdown | None = None
    named: frozenset[int] = frozenset()
    clocks_within: float | None = None
