"""Looks at the ranks because somebody asks: a pair of snapshots now, judged, and nothing done about it.

Where the job has several nodes they are all asked; if that comes to nothing, the own ranks are looked at.
Lives in the watch thread; looks and judgement are jobs of the collector's, each put only while no suspicion
is open, so that evidence of a hang goes first. It must not know who asks, nor how the answer travels.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from rankscope.agent.evidence.looker import Samples
from rankscope.agent.evidence.taker import EvidenceTaker, Incident
from rankscope.agent.observing.observer import Observer
from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.joint import JointInquiry
from rankscope.agent.watching.questions import Question
from rankscope.agent.workers.model import Launch
from rankscope.diag.look_times import INTERVAL
from rankscope.diag.model import Diagnosis, ExitFacts, JobSnapshot

logger = logging.getLogger(__name__)
LOOK_TIMEOUT: Final = 12.0
"""Seconds that one look may take."""
START_TIMEOUT: Final = 30.0
"""Seconds after which no look is begun any more: evidence of a suspicion had to come first for so long."""
_USUAL: Final = 8.0
"""Seconds that it takes as a rule: two looks and what is between them."""

Why = Literal["busy", "unavailable", "failed"]


class NotLookedError(Exception):
    """There is no diagnosis.

    Args:
        why: busy: another one is under way; unavailable: not now; failed: it went wrong.
        detail: one line for a person.
        retry_after: seconds, ``None`` when that is not known.
    """

    def __init__(self, why: Why, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.why: Why = why
        self.retry_after = retry_after


Answer = Callable[[Diagnosis | NotLookedError], None]
"""Called once, in the watch thread or in the collector's."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How the watch sees the job just now.

    Attributes:
        calm: whether no evidence of a suspicion is being taken.
        samples_of: working ranks that others wait for.
        silent: seconds without progress, ``None`` when nobody counts them.
        known: what is published of the present silence.
    """

    calm: bool
    samples_of: tuple[int, ...] = ()
    silent: float | None = None
    known: Diagnosis | None = None


class _Asked:
    """What was asked for, and what has been seen so far."""

    def __init__(self, answer: Answer, now: float, over: Callable[[], None]) -> None:
        self._answer = answer
        self._over = over
        self._unanswered = threading.Lock()
        self.until = now + START_TIMEOUT
        self.not_before = now
        self.first: JobSnapshot | None = None
        self.samples = Samples()
        self.is_looking = False
        self.is_alone = False

    def answer(self, answer: Diagnosis | NotLookedError) -> None:
        """Answer; what comes after the first answer is void. Whoever has it may ask again at once."""
        if self._unanswered.acquire(blocking=False):
            self._over()
            self._answer(answer)


class OnDemand:
    """One analysis at a time.

    Args:
        evidence: looks and judges.
        collector: does the jobs.
        post: runs a function in the watch thread.
        new_incident: makes an incident's id.
        ended: ranks that have ended, and how.
        joint: asks the other nodes of the job, where there are some.
    """

    def __init__(
        self,
        *,
        evidence: EvidenceTaker,
        collector: Collector,
        post: Callable[[Callable[[], None]], None],
        new_incident: Callable[[], str],
        ended: Callable[[], dict[int, ExitFacts]],
        joint: JointInquiry,
    ) -> None:
        self._evidence = evidence
        self._joint = joint
        self._collector = collector
        self._post = post
        self._new_incident = new_incident
        self._ended = ended
        self._give_way = threading.Event()
        self._one = threading.Lock()
        self._begun = 0.0
        self._workers: tuple[Launch, Observer] | None = None
        self._asked: _Asked | None = None
        self._is_over = False
        self._last: tuple[Diagnosis, float] | None = None

    # Any thread.

    def ask(self, answer: Answer) -> None:
        """Have the ranks looked at; returns at once.

        Args:
            answer: gets the diagnosis, or why there is none.

        Raises:
            NotLookedError: another analysis is under way.
        """
        now = time.monotonic()
        if not self._one.acquire(blocking=False):
            left = max(1, math.ceil(self._begun + _USUAL - now))
            raise NotLookedError("busy", "another analysis of this job is under way", retry_after=left)
        self._begun = now
        self._post(lambda: self._take(answer))

    # The watch thread.

    @property
    def is_looking(self) -> bool:
        """Whether one is under way: other looks that can wait should."""
        return self._asked is not None

    def begin(self, launch: Launch, observer: Observer) -> None:
        """New workers run: what was seen of others is void."""
        self._refuse(NotLookedError("unavailable", "the workers were started anew meanwhile", retry_after=5))
        self._workers = launch, observer

    def end(self) -> None:
        """The workers are being stopped."""
        self._refuse(NotLookedError("unavailable", "the workers were stopped meanwhile", retry_after=5))
        self._workers = None

    def close(self) -> None:
        """The watch ends."""
        self._is_over = True
        self.give_way()
        self._refuse(NotLookedError("unavailable", "the agent ends"))

    def give_way(self) -> None:
        """Evidence of a hang is wanted: a look that has not begun waits, one that samples ends."""
        self._give_way.set()

    def tick(self, now: float, standing: Callable[[], Standing]) -> None:
        """Go on with what was asked for, if it is time.

        Args:
            now: ``time.monotonic()``.
            standing: tells how the job stands.
        """
        asked, workers = self._asked, self._workers
        if asked is None or workers is None or asked.is_looking or now < asked.not_before:
            return
        seen = standing()
        if now > asked.until:
            detail = "evidence of a suspicion comes first, and took too long"
            self._refuse(NotLookedError("unavailable", detail, retry_after=5))
        elif seen.calm:
            asked.is_looking = True
            self._give_way.clear()
            if not asked.is_alone and self._ask_all(asked, seen):
                return
            take = self._first if asked.first is None else self._second
            self._collector.put(lambda: self._job(asked, lambda: take(asked, *workers, seen)))

    def _ask_all(self, asked: _Asked, seen: Standing) -> bool:
        """Have all nodes look; ``False`` where there are no others."""
        if not self._joint.is_here:
            return False
        if seen.known is not None and self._joint.is_judged:  # of all nodes, and none has moved since
            self._judged(asked, seen.known)
            return True
        silent = seen.silent or 0.0
        return self._joint.wish(
            Question(
                self._joint.opening(self._new_incident(), "an analysis was asked for", silent, asked=True),
                judged=lambda found: self._judged(asked, found),
                goes_on=lambda _reason: self._again(asked),
                here=lambda: self._go_alone(asked),
            )
        )

    def _judged(self, asked: _Asked, found: Diagnosis) -> None:
        self._over(asked)
        # It is recorded: a slow disk must not keep the watch.
        self._collector.put(lambda: asked.answer(found))

    def _go_alone(self, asked: _Asked) -> None:
        asked.is_alone = True
        self._again(asked)

    def _take(self, answer: Answer) -> None:
        self._asked = _Asked(answer, time.monotonic(), self._one.release)
        if self._is_over:
            self._refuse(NotLookedError("unavailable", "the agent ends"))
        elif self._workers is None:
            self._refuse(NotLookedError("unavailable", "no workers run now", retry_after=5))

    def _refuse(self, error: NotLookedError) -> None:
        if self._asked is not None:
            self._asked.answer(error)
            self._over(self._asked)

    def _over(self, asked: _Asked) -> None:
        if self._asked is asked:
            self._asked = None

    # The collector's thread.

    def _job(self, asked: _Asked, take: Callable[[], None]) -> None:
        if self._give_way.is_set():
            # A suspicion came while this waited for its turn.
            self._post(lambda: self._again(asked))
            return
        try:
            take()
        except Exception as error:  # a job's edge; whoever asked must hear of it
            logger.exception("rankscope could not analyse what it was asked to; training is untouched")
            asked.answer(NotLookedError("failed", f"the analysis failed: {error!r}"))
            self._post(lambda: self._over(asked))

    def _first(self, asked: _Asked, launch: Launch, observer: Observer, seen: Standing) -> None:
        snapshot, samples = self._snapshot(launch, observer), Samples()
        if seen.samples_of:
            samples = self._evidence.samples(
                launch,
                observer,
                seen.samples_of,
                pause=lambda seconds: self._collector.pause(seconds, self._give_way),
            )
        self._post(lambda: self._taken(asked, snapshot, samples))

    def _second(self, asked: _Asked, launch: Launch, observer: Observer, seen: Standing) -> None:
        if asked.first is not None:
            second = self._evidence.closer(self._snapshot(launch, observer))
            looks = asked.samples.looks
            incident = Incident(self._new_incident(), asked.first, second, seen.silent, samples=looks)
            found = self._evidence.judge_asked(incident, known=seen.known or self._told(seen.silent))
            self._last = found, time.monotonic()
            asked.answer(found)
        self._post(lambda: self._over(asked))

    def _told(self, silent: float | None) -> Diagnosis | None:
        """What was answered last, if nothing has moved since."""
        if self._last is None or silent is None or time.monotonic() - self._last[1] > silent:
            return None
        return self._last[0]

    def _snapshot(self, launch: Launch, observer: Observer) -> JobSnapshot:
        return self._evidence.snapshot(launch, observer, timeout=LOOK_TIMEOUT, exits=self._ended())

    # The watch thread again.

    def _again(self, asked: _Asked) -> None:
        asked.is_looking = False

    def _taken(self, asked: _Asked, snapshot: JobSnapshot, samples: Samples) -> None:
        asked.first, asked.samples = snapshot, samples
        asked.not_before = time.monotonic() + INTERVAL
        asked.is_looking = False
