"""The job's own pace: seconds an optimizer step takes, and whether they have become more for good.

Pure: observations in, a ``Slowdown`` out. Evaluations, checkpoints and warm-up are no slowdown: single steps
are long then, most are as ever, and it is the quick ones among the newest that are compared. Why steps take
longer is not known here, nor whether anybody is to blame: a model that grows takes longer too.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.diag.classify import Slowdown
from rankscope.watchdog.observations import RankObservation

_WORSE: Final = 1.2
"""Times the usual step: the design's "worsens by 20 %"."""
_WELL: Final = 1.1
"""Times the usual step up to which it is as usual again."""
_LEAST_BASELINE: Final = (5, 15)
"""Observations and steps from which the usual step is known."""
_RECENT_SECONDS: Final = 8.0
"""Of the newest steps that are compared: a checkpoint of some seconds must not be half of them."""
_RECENT_LEAST: Final = (12, 12)
"""Observations and steps that the newest must be: by chance, three quarters of 12 are above the upper
quartile of what is usual once in 2,500 times."""
_FEW: Final = 20
"""Observations of the usual pace up to which a quarter of them says little: then nearly all must be below."""
_REMEMBERED: Final = 2_000
"""Observations, one a second at most."""
_QUICK, _LONG, _NEARLY_ALL = 0.25, 0.75, 0.9


@dataclass(frozen=True, slots=True)
class _Observed:
    """Some steps in a row.

    Attributes:
        first: number of the first of them.
        steps: how many.
        each: seconds that one took on average.
        ended: when the last ended, monotonic seconds.
    """

    first: int
    steps: int
    each: float
    ended: float


class StepPace:
    """Follows the steps of one launch."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """The workers are new."""
        self._rank = -1
        self._last: tuple[int, float] | None = None
        self._usual: deque[_Observed] = deque(maxlen=_REMEMBERED)
        self._newest: deque[_Observed] = deque()
        self._slower: tuple[float, int, float] | None = None

    def note(self, ranks: Sequence[RankObservation], step_times: Mapping[int, float]) -> None:
        """Take in what the pages say now.

        Args:
            ranks: all local ranks.
            step_times: when each rank's last step ended, monotonic seconds.
        """
        rank = self._followed(ranks)
        ended = step_times.get(rank.rank, 0.0) if rank is not None else 0.0
        if rank is None or ended <= 0:
            return
        last, self._last = self._last, (rank.step, ended)
        if last is None or rank.step <= last[0] or ended <= last[1]:
            if last is not None and rank.step == last[0]:
                self._last = last
            return
        steps = rank.step - last[0]
        self._take(_Observed(last[0] + 1, steps, (ended - last[1]) / steps, ended))

    def _followed(self, ranks: Sequence[RankObservation]) -> RankObservation | None:
        """One rank of those that step: in a job that trains together all have one pace."""
        stepping = [rank for rank in ranks if rank.alive and rank.step > 0]
        same = next((rank for rank in stepping if rank.rank == self._rank), None)
        if same is None and stepping:
            same = stepping[0]
            self._rank, self._last = same.rank, None
        return same

    def _take(self, observed: _Observed) -> None:
        self._newest.append(observed)
        if self._slower is None:
            while len(self._newest) > 1 and self._is_enough(list(self._newest)[1:]):
                self._usual.append(self._newest.popleft())
        else:
            while len(self._newest) > 1 and self._is_enough(list(self._newest)[1:]):
                self._newest.popleft()
        self._judge()

    @staticmethod
    def _is_enough(some: Sequence[_Observed]) -> bool:
        steps = sum(one.steps for one in some)
        return (
            len(some) >= _RECENT_LEAST[0]
            and steps >= _RECENT_LEAST[1]
            and sum(one.each * one.steps for one in some) >= _RECENT_SECONDS
        )

    @property
    def before(self) -> float | None:
        """Seconds a step usually takes, ``None`` while too little is known."""
        enough = len(self._usual) >= _LEAST_BASELINE[0]
        if not enough or sum(one.steps for one in self._usual) < _LEAST_BASELINE[1]:
            return None
        return statistics.median(one.each for one in self._usual)

    @property
    def slowdown(self) -> Slowdown | None:
        """How much longer steps take than usual, ``None`` when they do not."""
        if self._slower is None or not self._newest:
            return None
        before, since, _ = self._slower
        return Slowdown(before, statistics.median(one.each for one in self._newest), since)

    @property
    def slower_since(self) -> float | None:
        """When the first of the longer steps began, monotonic seconds; ``None`` when there is no slowdown."""
        return self._slower[2] if self._slower is not None else None

    def _judge(self) -> None:
        newest = list(self._newest)
        if not self._is_enough(newest):
            return
        if self._slower is not None:
            if _quantile(newest, _LONG) <= _WELL * self._slower[0]:
                self._slower = None
            return
        before = self.before
        if before is None:
            return
        # Most of the newest are long: the quick ones too, and longer than the long ones used to be.
        usually = _LONG if len(self._usual) >= _FEW else _NEARLY_ALL
        limit = max(_WORSE * before, _quantile(self._usual, usually))
        if _quantile(newest, _QUICK) >= limit:
            first = self._onset(limit)
            self._slower = (before, first.first, first.ended - first.each * first.steps)

    def _onset(self, limit: float) -> _Observed:
        """The first of the long steps: back from the newest until two in a row are not."""
        begin = self._newest[0]
        quick = 0
        for one in reversed((*self._usual, *self._newest)):
            quick = 0 if one.each >= limit else quick + 1
            if quick > 1:
                break
            if not quick:
                begin = one
        return begin


def _quantile(some: Sequence[_Observed] | deque[_Observed], share: float) -> float:
    """The step time below which that share of the observations lies."""
    ordered = sorted(one.each for one in some)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
