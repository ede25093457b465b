"""Looks at the workers of a job that is not ours: the page where there is one, else their pulse.

It adds to the agent's observer what takes the place of steps: the pulse, fed with log sizes and looks at the
stacks. Looks run in a thread of their own, so that ticks go on.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from rankscope.agent.beside.log_files import LogFiles
from rankscope.agent.beside.looks import look
from rankscope.agent.beside.pulse import Pulse, Seen, Standings, Wanted
from rankscope.agent.beside.standings import PERIOD, read_standings
from rankscope.agent.observing.observer import Observer, Slots
from rankscope.agent.watching.collector import Collector
from rankscope.agent.workers.model import Launch
from rankscope.diag.capture import Target
from rankscope.diag.classify import Catalogue
from rankscope.watchdog.observations import RankObservation

logger = logging.getLogger(__name__)
TRIES: Final = 3
RARELY: Final = 60.0
"""Seconds until ranks that gave no record in some tries are asked again."""
CAPTURE_ECHO: Final = 1.0
"""Seconds after a capture in which its targets may still wake from it."""


class BesideObserver(Observer):
    """Observes one launch. ``observe`` in the watch thread, ``capturing`` in any.

    Args:
        launch: the workers.
        page: their progress page, ``None`` for a job without probes.
        logs: the job's log files.
        looker: the thread for looks at the stacks; its owner ends it.
        catalogue: tells which frames are communication.
        node: this host.
    """

    def __init__(
        self,
        launch: Launch,
        page: Slots | None,
        *,
        logs: LogFiles,
        looker: Collector,
        catalogue: Callable[[], Catalogue],
        node: str,
    ) -> None:
        super().__init__(launch, page, timer_calls=dict, log_sizes=dict)
        self._logs = logs
        self._looker = looker
        self._catalogue = catalogue
        self._node = node
        self._pulse = Pulse()
        self._answers: queue.SimpleQueue[Seen] = queue.SimpleQueue()
        self._records: queue.SimpleQueue[Standings] = queue.SimpleQueue()
        self._next_question = 0.0
        self._in_vain = 0
        self._lock = threading.Lock()
        self._capturing = 0
        self._captured_at = float("-inf")

    def observe(self, now: float, *, with_children: bool) -> tuple[RankObservation, ...]:
        """Look at every worker; see ``Observer.observe``."""
        ranks = super().observe(now, with_children=with_children)
        touched = self._capturing > 0 or now - self._captured_at <= CAPTURE_ECHO
        if any(rank.probed for rank in ranks):
            return ranks
        pulse = self._pulse
        while not self._answers.empty():
            pulse.seen(now, self._answers.get())
        if touched:
            pulse.captured(now)
        while not self._records.empty():
            pulse.recorded(now, self._records.get())
        if now >= self._next_question:
            self._next_question = float("inf")  # until this one is answered
            self._looker.put(self._ask)
        felt = pulse.take(now, ranks, logged=self._logs.bytes_by_rank)
        wanted = pulse.wanted(now)
        if wanted is not None:
            self._looker.put(lambda: self._look(wanted))
        return felt

    @contextmanager
    def capturing(self) -> Generator[None]:
        """While a tool looks at the workers: it stops and wakes them."""
        with self._lock:
            self._capturing += 1
        try:
            yield
        finally:
            with self._lock:
                self._captured_at = time.monotonic()
                self._capturing -= 1

    def _look(self, wanted: Wanted) -> None:
        seen = Seen(wanted, blind=True)
        try:
            with self.capturing():
                seen = look(wanted, self._targets(), catalogue=self._catalogue(), pause=self._looker.pause)
        except Exception:  # a job's edge; the watch waits for an answer
            logger.exception("rankscope could not look at the ranks")
        finally:
            self._answers.put(seen)

    def _ask(self) -> None:
        standings: Standings = {}
        try:
            standings = read_standings(self._targets())
        except Exception:  # a job's edge; the watch waits for an answer
            logger.exception("rankscope could not ask the ranks for their records")
        finally:
            self._records.put(standings)
            # A group may not have been made yet: who has no record is asked again, but more rarely.
            self._in_vain = 0 if standings else self._in_vain + 1
            self._next_question = time.monotonic() + (PERIOD if self._in_vain < TRIES else RARELY)

    def _targets(self) -> dict[int, Target]:
        return {
            worker.rank: Target(worker.rank, *self.process(worker), node=self._node)
            for worker in self._launch.workers
        }
