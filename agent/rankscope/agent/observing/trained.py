"""What the workers of a launch have got done, as their progress page says. Pure: slots in, figures out.

Steps are an optimizer's or the script's own; a job that makes none is known by its collectives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rankscope.watchdog.page import SlotView


@dataclass(frozen=True, slots=True)
class Trained:
    """Progress of one launch on one node.

    Attributes:
        steps: optimizer steps of the rank that made most.
        step: the largest number that the script gave a step, ``None`` when it gives none.
        collectives: completed ones of the rank and group with most.
        is_known: whether a probe speaks for any rank: without one, no step says nothing.
        sets_interval: whether a rank has set the interval of hangs itself.
    """

    steps: int = 0
    step: int | None = None
    collectives: int = 0
    is_known: bool = False
    sets_interval: bool = False

    @property
    def has_stepped(self) -> bool:
        """Whether there was a step."""
        return self.steps > 0 or self.step is not None

    @property
    def has_moved(self) -> bool:
        """Whether there was a step or a completed collective."""
        return self.has_stepped or self.collectives > 0


def trained(slots: Iterable[SlotView]) -> Trained:
    """Sum up the slots of a node's workers; those that nobody has claimed say nothing."""
    claimed = [slot for slot in slots if slot.rank >= 0]
    return Trained(
        steps=max((slot.step for slot in claimed), default=0),
        step=max((slot.user_step for slot in claimed if slot.user_step_ns), default=None),
        # Sequence numbers begin at 0 or 1 with the backend: a group that has only just begun has done none.
        collectives=max((group.completed for slot in claimed for group in slot.groups), default=0),
        is_known=bool(claimed),
        sets_interval=any(slot.interval is not None and slot.interval > 0 for slot in claimed),
    )
