"""Which of the ranks that others wait for are called hung, and how sure that is.

A sink is a rank that others wait for and that waits for nobody. Only sinks are judged: spinning victims look
busy. A busy sink is never called a hang at once: an evaluation on one rank looks the same. Source:
DIAGNOSIS.md, "Noticing" (class of a sink, decisions 4 to 8). It names ranks and writes no sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rankscope.diag.classify.activity import beat_is_stale
from rankscope.diag.classify.loops import gil_keepers
from rankscope.diag.classify.position import same_place
from rankscope.diag.classify.running import Running, running
from rankscope.diag.classify.view import JobView, RankView
from rankscope.diag.model import Confidence
from rankscope.watchdog.limits import BUSY_FLOOR, LIBRARY_LOOP_LIMIT

# NCCL's default time-out: who spins in a wait for its GPU that long waits for something that does not come.
_DEVICE_LIMIT: Final = 600.0

Manner = Literal["still", "loops", "ticking", "caught", "gil", "device", "overdue"]
"""``caught``: by a single look; ``gil``: at work in C without letting go of the GIL; ``device``: spinning for
a GPU; ``overdue``: working ten times too long."""


@dataclass(frozen=True, slots=True)
class Named:
    """The sinks that are called hung.

    Attributes:
        ranks: at least one.
        manner: what they were seen at.
        confidence: what their activity carries, before the evidence that says they are waited for.
    """

    ranks: tuple[RankView, ...]
    manner: Manner
    confidence: Confidence

    @property
    def is_at_work(self) -> bool:
        """Whether they do something in C that may end yet, for all that can be seen."""
        return self.manner == "gil"

    @property
    def is_alive(self) -> bool:
        """Whether they run: they may be at honest work yet."""
        return self.manner in ("loops", "ticking")


def named_sinks(
    job: JobView, sinks: Sequence[RankView], *, excused: bool, proven: bool = False
) -> Named | None:
    """The sinks that are called hung, ``None`` when all may come back by themselves.

    Args:
        job: the job.
        sinks: the ranks waited for.
        excused: whether the victims' waits may have ended and begun again: a sink that ticks is then a slow
            data loader, not a hang.
        proven: whether records show that it is they who are missing: of a dump, one that ran is named, too.
    """
    found = _by_manner(job, sinks, excused=excused, proven=proven)
    if found is None:
        return None
    manner, ranks = found
    confidence: Confidence = "high" if manner == "still" and len(ranks) == len(sinks) else "medium"
    if manner in ("overdue", "device"):
        confidence = "low"  # it works, or waits for work on its GPU, but longer than it ever did
    if manner == "caught" and any(_running(job, view) != "asleep" for view in ranks):
        confidence = "low"
    return Named(tuple(ranks), manner, confidence)


def _by_manner(
    job: JobView, sinks: Sequence[RankView], *, excused: bool, proven: bool
) -> tuple[Manner, list[RankView]] | None:
    busy = [view for view in sinks if view.activity.level == "busy"]
    still = [view for view in sinks if view.activity.level in ("quiet", "frozen")]
    if still:
        return "still", still
    looping = _loops_in_python(job) if busy else frozenset[int]()
    loops = [view for view in busy if view.rank in looping]
    if loops:
        return "loops", loops
    silent = job.silent_seconds or 0.0
    keepers = gil_keepers(job.samples) if busy else frozenset[int]()
    in_c = [view for view in busy if view.rank in keepers and _keeps_the_gil(view)]
    if in_c and silent >= BUSY_FLOOR:
        return "gil", in_c
    ticking = [view for view in sinks if view.activity.level == "ticking"]
    if ticking and not excused:
        return "ticking", ticking
    unknown = [view for view in sinks if view.activity.level == "unknown"]
    caught = [view for view in unknown if proven or _running(job, view) != "computes"]
    if caught:
        return None if any(view.moved for view in caught) else ("caught", caught)
    on_device = [view for view in busy if waits_for_device(view)]
    if on_device and silent >= _DEVICE_LIMIT:
        return "device", on_device
    return ("overdue", busy) if busy and job.overdue else None


def _keeps_the_gil(view: RankView) -> bool:
    """Whether its probe could not run at either look (decision 8).

    Whoever collects garbage looks the same: the caller asks, and leaves such ranks out of the samples.
    """
    return view.earlier is not None and beat_is_stale(view.latest, view.earlier)


def waits_for_device(view: RankView) -> bool:
    """Whether it stood in one wait for its GPU at both looks: CUDA's spin, its CPU time says nothing."""
    before, now = view.before, view.position
    if before is None or now is None or now.label != "gpu_wait":
        return False
    return same_place(before, now) and not view.strayed


def _loops_in_python(job: JobView) -> frozenset[int]:
    """Ranks that quick samples show in one endless Python loop (DIAGNOSIS.md, decision 8)."""
    silent = job.silent_seconds or 0.0
    return frozenset(
        rank for rank, loop in job.loops.items() if loop == "user" or silent >= LIBRARY_LOOP_LIMIT
    )


def _running(job: JobView, view: RankView) -> Running:
    """What the only look at the rank caught it at: running, it may simply compute."""
    facts, position = view.latest.facts, view.position
    if facts is not None:
        return "python" if facts.state == "R" or bool(position and position.thread.active) else "asleep"
    if position is None:
        return "asleep"
    return running(position, source=view.latest.source, catalogue=job.catalogue, source_line=job.source_line)
