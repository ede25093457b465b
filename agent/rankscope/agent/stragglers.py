"""Finds out what is slow while the job goes on: looks when steps take longer than usual, or every so often.

Lives in the watch thread; looks and judgement are jobs of the collector's, which give way at once to a
suspicion. What is found is stored and told once; nothing is ever done about it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rankscope.agent.collector import Collector
from rankscope.agent.evidence import EvidenceTaker
from rankscope.agent.observe import Observer
from rankscope.agent.pace import StepPace
from rankscope.agent.reporter import Reporter
from rankscope.agent.workers import Launch
from rankscope.diag.classify import Slowdown, SlowLook
from rankscope.diag.model import Diagnosis, JobSnapshot
from rankscope.watchdog.observations import RankObservation

logger = logging.getLogger(__name__)
SLOW: Final = frozenset({"RankCommSlow", "RankNonCommSlow"})
AGAIN_AFTER: Final = 300.0
"""Seconds after which a slowdown that nobody could explain, or that goes on, is looked at again; then twice
as long each time."""
MUCH_WORSE: Final = 1.2
"""Times the slow step that was looked at, from which it is looked at again at once."""
LONGEST_SILENCE: Final = 5.0
"""Seconds without progress from which a job is not looked at: it may be about to hang."""
_PAUSE: Final = 0.1

Post = Callable[[Callable[[], None]], None]


class Stragglers:
    """What is known of the pace of the present launch.

    Args:
        interval: seconds between two looks at a job that is as fast as ever; ``None`` for looking only when
            steps take longer.
        evidence: looks and judges.
        reporter: is told.
        collector: does the jobs.
        post: runs a function in the watch thread.
        new_incident: makes an incident's id.
    """

    def __init__(
        self,
        interval: float | None,
        *,
        evidence: EvidenceTaker,
        reporter: Reporter,
        collector: Collector,
        post: Post,
        new_incident: Callable[[], str],
    ) -> None:
        self._interval = interval
        self._evidence = evidence
        self._reporter = reporter
        self._collector = collector
        self._post = post
        self._new_incident = new_incident
        self._give_way = threading.Event()
        self._workers: tuple[Launch, Observer] | None = None
        self._cycle = 0
        self._pace = StepPace()
        self._forget(0.0)

    def _forget(self, now: float) -> None:
        self._pace.restart()
        self._looking = False
        self._looked_at: float | None = None
        self._next = now + (self._interval or 0.0)
        self._wait = AGAIN_AFTER
        self._told: set[tuple[object, ...]] = set()
        self._open: Diagnosis | None = None

    def begin(self, launch: Launch, observer: Observer, now: float) -> None:
        """New workers run: all before is void."""
        self._cycle += 1
        self._give_way.set()
        self._workers = launch, observer
        self._forget(now)

    def end(self) -> None:
        """The workers are being stopped."""
        self._cycle += 1
        self._give_way.set()
        self._workers = None

    def give_way(self) -> None:
        """Evidence of a hang is wanted: a look under way ends at once."""
        self._give_way.set()

    def tick(self, now: float, ranks: Sequence[RankObservation], *, silent: float, calm: bool) -> None:
        """Take in what was observed, and look if it is time.

        Args:
            now: ``time.monotonic()``.
            ranks: all local ranks.
            silent: seconds without progress.
            calm: whether there is no suspicion of a hang.
        """
        if self._workers is None:
            return
        self._pace.note(ranks, _step_times(self._workers[1]))
        slowdown = self._pace.slowdown
        if slowdown is None:
            self._looked_at, self._wait = None, AGAIN_AFTER
            self._recovered()
        if calm and silent < LONGEST_SILENCE and not self._looking and self._is_due(now, slowdown):
            self._look(*self._workers, now, slowdown)

    def _is_due(self, now: float, slowdown: Slowdown | None) -> bool:
        if slowdown is None:
            return self._interval is not None and now >= self._next
        if self._looked_at is None:
            return True
        return now >= self._next or slowdown.now >= MUCH_WORSE * self._looked_at

    def _look(self, launch: Launch, observer: Observer, now: float, slowdown: Slowdown | None) -> None:
        cycle, since = self._cycle, self._pace.slower_since
        self._looking = True
        self._give_way.clear()
        if slowdown is not None:
            self._looked_at = slowdown.now
            self._next, self._wait = now + self._wait, 2 * self._wait
        if self._interval is not None:
            self._next = now + self._interval

        def take() -> None:
            diagnosis: Diagnosis | None = None
            looks: tuple[JobSnapshot, ...] = ()
            try:
                looks = self._evidence.slow_looks(launch, observer, pause=self._pause)
                if looks:
                    slow = SlowLook(slowdown)
                    diagnosis = self._evidence.judge_slow(self._new_incident(), looks, slow)
            except Exception:
                logger.exception("rankscope could not find out what is slow; training is untouched")
            done = lambda: self._answered(diagnosis, slowdown, since)  # noqa: E731 - one argument less
            gave_way = not looks
            self._post(lambda: self._take_in(cycle, done, gave_way=gave_way))

        self._collector.put(take)

    def _pause(self, seconds: float) -> bool:
        """Wait inside of a look; whether to stop here."""
        until = time.monotonic() + seconds
        while not self._give_way.is_set():
            left = until - time.monotonic()
            if self._collector.pause(max(0.0, min(left, _PAUSE))):
                return True
            if left <= _PAUSE:
                return False
        return True

    def _take_in(self, cycle: int, done: Callable[[], None], *, gave_way: bool) -> None:
        if cycle != self._cycle:
            return
        self._looking = False
        if gave_way:
            # The same slowdown may be looked at again when all is calm.
            self._looked_at = None
        else:
            done()

    def _answered(self, diagnosis: Diagnosis | None, slowdown: Slowdown | None, since: float | None) -> None:
        if diagnosis is None:
            return
        what = (diagnosis.verdict, diagnosis.kind, diagnosis.culprits)
        if what in self._told:
            return
        if diagnosis.verdict in SLOW:
            self._open = diagnosis
        elif slowdown is None:
            return
        self._told.add(what)
        seconds = time.monotonic() - since if since is not None else 0.0
        self._reporter.on_slow(diagnosis, slowdown, seconds=seconds)

    def _recovered(self) -> None:
        opened, self._open = self._open, None
        if opened is not None and self._pace.before is not None and self._interval is None:
            self._told.clear()
            self._reporter.on_pace_recovered(opened)


def _step_times(observer: Observer) -> Mapping[int, float]:
    return {rank: slot.step_ns / 1e9 for rank, slot in observer.slots.items()}
