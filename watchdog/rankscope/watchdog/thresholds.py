"""Which limit the present silence has passed: the learned clocks, the ranks' own limits, the exit interval.

Pure, and without a state of its own: it reads the clocks and the silence. What follows from a limit that
was passed is the detector's to say.
"""

from __future__ import annotations

import math

from rankscope.watchdog.intervals import OwnLimits, own_limits
from rankscope.watchdog.limits import TICKING_LIMIT, WINDOW, Clocks
from rankscope.watchdog.observations import Clock, Suspected
from rankscope.watchdog.silence import LIVELY, Silence


class Thresholds:
    """Compares the silence with what it is allowed.

    Args:
        clocks: the learned limits and the user's settings.
        silence: what was seen of the ranks.

    Attributes:
        ranks_elsewhere: whether there are ranks that nobody here observes.
        window: seconds between the two snapshots.
    """

    def __init__(self, clocks: Clocks, silence: Silence) -> None:
        self._clocks = clocks
        self._silence = silence
        self.ranks_elsewhere = False
        self.window = WINDOW

    @property
    def own(self) -> OwnLimits:
        """The limits that the ranks in question have set for themselves."""
        return own_limits(self._silence.ranks, self._silence.situation)

    def passed(self, now: float, *, patience: float) -> Suspected | None:
        """The limit that has been passed, ``None`` when there is none.

        Args:
            now: the present.
            patience: seconds that an earlier look has granted.
        """
        own = self.own
        if own.off or not self._silence.window_is_full(now):
            return None
        if own.staged:
            return self._stage_passed(now, own)
        return (
            self.quiet_passed(now, patience)
            or self._ticking_passed(now, patience)
            or self._busy_passed(now, patience)
        )

    def samples_due(self, now: float) -> bool:
        """Whether others have waited for a working rank so long that it may be in an endless loop."""
        own, situation = self.own, self._silence.situation
        if own.off or own.staged or not situation.waiting or situation.sink_class != "busy":
            return False
        limit = own.diagnose_after(self._clocks.loop_limit())
        return self._silence.window_is_full(now) and self._silence.seconds(now) >= limit

    def suspected(self, reason: str, clock: Clock, now: float, limit: float) -> Suspected:
        """The suspicion that a limit was passed for nothing good."""
        situation = self._silence.situation
        return Suspected(
            reason=reason,
            clock=clock,
            seconds=self._silence.seconds(now),
            limit=limit,
            suspects=situation.sinks,
            waiting=situation.waiting,
            sink_class=situation.sink_class,
        )

    def quiet_passed(self, now: float, patience: float) -> Suspected | None:
        """Nobody who is waited for has worked for too long."""
        limit = self._quiet_limit(patience)
        if self._silence.situation.sink_class in LIVELY or self._silence.quiet_for(now) < limit:
            return None
        if self._exit_passed(now):
            return self._lingers(now)
        reason = f"no progress for {self._silence.seconds(now):.0f} s and nobody is working"
        return self.suspected(reason, "quiet", now, limit)

    @property
    def waits_for_elsewhere(self) -> bool:
        """Whether all ranks here wait, so that who is waited for is one that nobody here observes."""
        situation = self._silence.situation
        return self.ranks_elsewhere and bool(situation.waiting) and not situation.sinks

    def busy_limit(self, patience: float) -> float:
        """Seconds of silence that working ranks are given."""
        limit = self.own.diagnose_after(max(self._clocks.busy_limit(), patience))
        return min(limit, self.exit_limit) if self._only_lingers else limit

    @property
    def exit_limit(self) -> float:
        """Seconds of silence that ranks are given after others have ended."""
        after = self._clocks.settings.exit_after
        return math.inf if after is None else self._clocks.within_interval(after)

    @property
    def _only_lingers(self) -> bool:
        return self._silence.some_are_done and not self._silence.situation.waiting

    def _exit_passed(self, now: float) -> bool:
        return self._only_lingers and self._silence.seconds(now) >= self.exit_limit

    def _lingers(self, now: float) -> Suspected:
        """Some ranks have ended, or run their script to the end, and the rest is still there."""
        silent, limit = self._silence.seconds(now), self.exit_limit
        return self.suspected(f"no progress for {silent:.0f} s since some ranks ended", "exit", now, limit)

    def _stage_passed(self, now: float, own: OwnLimits) -> Suspected | None:
        lively = self._silence.situation.sink_class in LIVELY
        limit = own.diagnose_after(self._clocks.busy_limit() if lively else self._quiet_limit(0.0))
        silent = self._silence.seconds(now)
        where = f" in stage {own.stage}" if own.stage else ""
        reason = f"no progress for {silent:.0f} s{where}"
        return self.suspected(reason, "stage", now, limit) if silent >= limit else None

    def _quiet_limit(self, patience: float) -> float:
        limit = self._clocks.quiet_limit(patient=self._silence.children_are_young)
        if self.waits_for_elsewhere:
            limit = max(limit, self._clocks.busy_limit())  # those may be working
        limit = self.own.diagnose_after(max(limit, patience))
        return min(limit, self.exit_limit) if self._only_lingers else limit

    def _ticking_passed(self, now: float, patience: float) -> Suspected | None:
        limit = self.own.diagnose_after(max(TICKING_LIMIT, self._quiet_limit(patience)))
        situation = self._silence.situation
        waited_for = situation.sink_class == "ticking" and bool(situation.waiting)
        if not waited_for or self._silence.idle_for(now) < limit:
            return None
        silent = self._silence.seconds(now)
        reason = f"no progress for {silent:.0f} s while others wait for a rank that polls"
        return self.suspected(reason, "ticking", now, limit)

    def _busy_passed(self, now: float, patience: float) -> Suspected | None:
        limit = self.busy_limit(patience)
        silent = self._silence.seconds(now)
        if self._silence.situation.sink_class not in LIVELY or silent < limit:
            return None
        if self._exit_passed(now):
            return self._lingers(now)
        return self.suspected(f"no progress for {silent:.0f} s", "busy", now, limit)
