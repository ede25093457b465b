"""The limits that ranks set for themselves, and what they come to for the job. Pure.

A rank's *interval* (``Monitor``'s config) is when silence is acted on; what is learned still says when it is
diagnosed. A *stage* (``hang_detect``) takes the place of both while it lasts. Where some ranks wait for
others, the awaited ranks' own values hold; for silence of the whole job the largest of all ranks holds, and
off on any of them is off (AIMaster's rule, FAULT_TOLERANCE.md "Worker SDK").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.watchdog.limits import before
from rankscope.watchdog.observations import RankObservation, Situation

_OFF = -1.0


@dataclass(frozen=True, slots=True)
class OwnLimits:
    """What the ranks in question have set.

    Attributes:
        ranks: those whose values hold now.
    """

    ranks: tuple[RankObservation, ...]

    @property
    def off(self) -> bool:
        """Whether one of them has switched hang detection off."""
        return any(_set_by(rank) == _OFF for rank in self.ranks)

    @property
    def staged(self) -> bool:
        """Whether one of them is in a stage with a limit of its own."""
        return any(rank.stage_limit is not None for rank in self.ranks)

    @property
    def stage(self) -> str:
        """Name of the stage with the largest limit."""
        staged = [(rank.stage_limit, rank.stage) for rank in self.ranks if rank.stage_limit is not None]
        return max(staged, default=(0.0, ""))[1]

    def diagnose_after(self, learned: float) -> float:
        """Seconds of silence after which evidence is taken, where ``learned`` holds for the others."""
        return max((_diagnose_after(rank, learned) for rank in self.ranks), default=learned)

    def act_after(self, default: float | None) -> float | None:
        """Seconds of silence after which it is acted on, ``None`` for never."""
        if self.off:
            return None
        limits = [default if (own := _set_by(rank)) is None else own for rank in self.ranks] or [default]
        known = [limit for limit in limits if limit is not None]
        return max(known) if len(known) == len(limits) else None


def own_limits(ranks: Sequence[RankObservation], situation: Situation) -> OwnLimits:
    """Whose values hold: the awaited ranks', or everybody's where nobody waits for anybody."""
    alive = tuple(rank for rank in ranks if rank.alive)
    awaited = tuple(rank for rank in alive if rank.rank in situation.sinks)
    return OwnLimits(awaited if situation.waiting and awaited else alive)


def _set_by(rank: RankObservation) -> float | None:
    return rank.interval if rank.stage_limit is None else rank.stage_limit


def _diagnose_after(rank: RankObservation, learned: float) -> float:
    if rank.stage_limit is not None:
        return before(rank.stage_limit)
    return learned if rank.interval is None else min(learned, before(rank.interval))
