"""The workers of the present launch, and who can be asked about them. It decides nothing.

One place for what the main thread replaces and the other threads read. Where a worker launches the ranks
itself (``ranks.nested``), its ranks are what is watched and looked at, and the worker is what is stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from rankscope.agent.observing.observer import Observer
from rankscope.agent.observing.trained import Trained, trained
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag import proc
from rankscope.watchdog.page import SlotView


class CurrentWorkers:
    """Who runs now.

    Args:
        exit_times: tells when local ranks ended, monotonic seconds.

    Attributes:
        launch: torch's workers, ``None`` before the first.
        ranks: those who are watched: the same, unless a worker launches ranks.
        observer: reads their page and processes.
        are_starting: whether torch is starting some whose pids it has not told yet.
    """

    def __init__(self, exit_times: Callable[[], Mapping[int, float]]) -> None:
        self._exit_times = exit_times
        self.launch: Launch | None = None
        self.ranks: Launch | None = None
        self.observer: Observer | None = None
        self.are_starting = False

    def replace(self, launch: Launch, observer: Observer) -> None:
        """Others run now."""
        self.ranks, self.observer = launch, observer
        self.launch, self.are_starting = launch, False

    def watch_instead(self, ranks: Launch, observer: Observer) -> None:
        """The same workers run, and these are the ranks (watch thread)."""
        self.ranks, self.observer = ranks, observer

    @property
    def are_nested(self) -> bool:
        """Whether the ranks are processes below the workers."""
        return self.ranks is not self.launch

    def both(self) -> tuple[Launch, Observer] | None:
        """The ranks and their observer, ``None`` before the first workers."""
        ranks, observer = self.ranks, self.observer
        return None if ranks is None or observer is None else (ranks, observer)

    def speaker(self, worker: WorkerRef) -> WorkerRef:
        """The rank that a worker's end is about: itself; of nested ranks the first that raised, or ended."""
        ranks = self.ranks
        if ranks is None or not self.are_nested:
            return worker
        raised = [
            (view.raised_ns, one) for one in ranks.workers if (view := self.slot(one)) and view.raised_ns
        ]
        if raised:
            return min(raised, key=lambda each: each[0])[1]
        ended = self.exit_times()
        gone = [one for one in ranks.workers if one.rank in ended]
        return min(gone, key=lambda one: ended[one.rank], default=worker)

    def slot(self, worker: WorkerRef) -> SlotView | None:
        """What a worker's slot of the page says, ``None`` when it has none."""
        return self.observer.slot(worker) if self.observer is not None else None

    def exit_times(self) -> Mapping[int, float]:
        """When local ranks ended, monotonic seconds."""
        return self._exit_times()

    def trained(self) -> Trained:
        """What they have got done."""
        views = [self.slot(worker) for worker in (self.ranks.workers if self.ranks is not None else ())]
        return trained(view for view in views if view is not None)

    def is_rank(self, pid: int) -> bool:
        """Whether a process is a rank, and no child of one."""
        return self.ranks is not None and any(worker.pid == pid for worker in self.ranks.workers)

    def own(self, pid: int) -> bool:
        """Whether a process is one of them, or descends from one."""
        # Workers speak before torch has told their pids: until then whatever descends from the agent.
        workers = (worker.pid for worker in (self.launch.workers if self.launch else ()))
        return proc.descends_from(pid, {os.getpid()} if self.are_starting else set(workers))
