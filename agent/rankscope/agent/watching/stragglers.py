"""Finds out what is slow while the job goes on: looks when steps take longer than usual, or every so often.

Where the job has several nodes they all look at the same time and are compared; where that comes to nothing,
the ranks here are. Lives in the watch thread; looks and judgement are jobs of the collector's, which give way
at once to a suspicion. What is found is stored, and told once for as long as it lasts; nothing is ever done
about it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, ParamSpec

from rankscope.agent.evidence.taker import EvidenceTaker
from rankscope.agent.observing.observer import Observer
from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.joint import JointInquiry
from rankscope.agent.watching.pace import StepPace
from rankscope.agent.watching.questions import Question
from rankscope.agent.watching.reporter import Reporter
from rankscope.agent.workers.model import Launch
from rankscope.diag.classify import Slowdown, SlowLook
from rankscope.diag.model import SLOW, Diagnosis
from rankscope.watchdog.observations import RankObservation

logger = logging.getLogger(__name__)
P = ParamSpec("P")
_WANTED: Final = "what is slow is looked for"
AGAIN_AFTER: Final = 300.0
"""Seconds after which a slowdown that nobody could explain, or that goes on, is looked at again; then twice
as long each time."""
_MUCH_WORSE: Final = 1.2
"""Times the slow step that was looked at, from which it is looked at again at once."""
_LONGEST_SILENCE: Final = 5.0
"""Seconds without progress from which a job is not looked at: it may be about to hang."""
_AS_BEFORE: Final = "steps take as long as before"
_NOBODY: Final = "no rank and no link is slow by far any more"
_OTHERWISE: Final = "a newer look finds another cause"
_CLEAN_LOOKS: Final = 2
"""Looks in a row that find nobody slow, after which nobody is: one rank near the limit comes and goes."""

Post = Callable[[Callable[[], None]], None]


class Stragglers:
    """What is known of the pace of the present launch.

    Args:
        interval: seconds between two looks at a job that is as fast as ever; ``None`` for looking only when
            steps take longer.
        evidence: looks and judges.
        reporter: is told.
        collector: does the jobs.
        joint: asks the other nodes of the job, where there are some.
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
        joint: JointInquiry,
        post: Post,
        new_incident: Callable[[], str],
    ) -> None:
        self._interval = interval
        self._evidence = evidence
        self._reporter = reporter
        self._collector = collector
        self._joint = joint
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
        self._named: frozenset[int] = frozenset()
        self._open: Diagnosis | None = None
        self._clean_looks = 0

    def look_every(self, interval: float | None, now: float) -> None:
        """Look so often from now on; ``None`` for only when steps take longer."""
        self._interval = interval
        self._next = now + (interval or 0.0)

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
            self._looked_at, self._wait, self._named = None, AGAIN_AFTER, frozenset()
            self._recovered()
        if calm and silent < _LONGEST_SILENCE and not self._looking and self._is_due(now, slowdown):
            self._look(*self._workers, now, slowdown)

    def _is_due(self, now: float, slowdown: Slowdown | None) -> bool:
        if slowdown is None:  # one agent asks for all then
            return self._interval is not None and now >= self._next and self._joint.leads
        if self._looked_at is None:
            return True
        return now >= self._next or slowdown.now >= _MUCH_WORSE * self._looked_at

    def _look(self, launch: Launch, observer: Observer, now: float, slowdown: Slowdown | None) -> None:
        since = self._pace.slower_since
        self._looking = True
        self._give_way.clear()
        if slowdown is not None:
            self._looked_at = slowdown.now
            self._next, self._wait = now + self._wait, 2 * self._wait
        if self._interval is not None:
            self._next = now + self._interval
        slow = SlowLook(slowdown, self._named)
        opening = self._joint.opening(self._new_incident(), _WANTED, 0.0, asked=True, slow=slow)
        here = partial(self._look_here, launch, observer, slow, since)
        question = Question(
            opening,
            judged=self._in_this_cycle(lambda found: self._answered(found, slowdown, since)),
            goes_on=self._in_this_cycle(lambda _reason: self._gave_way()),
            here=self._in_this_cycle(here),
        )
        if not self._joint.wish(question):
            here()

    def _look_here(self, launch: Launch, observer: Observer, slow: SlowLook, since: float | None) -> None:
        """Look at the ranks of this node alone."""
        answered, gave_way = self._in_this_cycle(self._answered), self._in_this_cycle(self._gave_way)

        def take() -> None:
            diagnosis: Diagnosis | None = None
            try:
                looks = self._evidence.slow_looks(
                    launch, observer, pause=lambda seconds: self._collector.pause(seconds, self._give_way)
                )
                if not looks:
                    self._post(gave_way)
                    return
                looks = self._evidence.with_ranks_elsewhere(launch, looks)
                diagnosis = self._evidence.judge_slow(self._new_incident(), looks, slow)
            except Exception:  # a job's edge; the watch must hear that it is done
                logger.exception("rankscope could not find out what is slow; training is untouched")
            self._post(lambda: answered(diagnosis, slow.slowdown, since))

        self._collector.put(take)

    def _in_this_cycle(self, message: Callable[P, None]) -> Callable[P, None]:
        cycle = self._cycle

        def told(*args: P.args, **kwargs: P.kwargs) -> None:
            if cycle == self._cycle:
                message(*args, **kwargs)

        return told

    def _gave_way(self) -> None:
        """Something else came first: the same slowdown may be looked at again when all is calm."""
        self._looking = False
        self._looked_at = None

    def _answered(self, diagnosis: Diagnosis | None, slowdown: Slowdown | None, since: float | None) -> None:
        self._looking = False
        if diagnosis is None:
            return
        is_slow = diagnosis.verdict in SLOW
        if is_slow:
            self._slow(diagnosis, named=slowdown is not None)
        elif diagnosis.verdict == "Healthy":
            self._clean_looks += 1
            if self._clean_looks >= _CLEAN_LOOKS:
                self._end(_NOBODY)
        if _what(diagnosis) in self._told or not (is_slow or slowdown is not None):
            return
        self._told.add(_what(diagnosis))
        seconds = time.monotonic() - since if since is not None else 0.0
        self._reporter.on_slow(diagnosis, slowdown, seconds=seconds)

    def _slow(self, diagnosis: Diagnosis, *, named: bool) -> None:
        self._clean_looks = 0
        if named:
            self._named |= set(diagnosis.culprits)
        if self._open is None or _what(self._open) != _what(diagnosis):
            self._end(_OTHERWISE)
            self._open = diagnosis

    def _recovered(self) -> None:
        if self._open is not None and self._pace.before is not None and self._interval is None:
            self._end(_AS_BEFORE)
            self._told.clear()

    def _end(self, reason: str) -> None:
        """Tell that what was slow is so no more, and why (a phrase); if it comes again, it is told again."""
        over, self._open = self._open, None
        if over is not None:
            self._told.discard(_what(over))
            self._reporter.on_slow_no_more(over, reason)


def _what(diagnosis: Diagnosis) -> tuple[object, ...]:
    return diagnosis.verdict, diagnosis.kind, diagnosis.culprits


def _step_times(observer: Observer) -> Mapping[int, float]:
    return {rank: slot.step_ns / 1e9 for rank, slot in observer.slots.items()}
