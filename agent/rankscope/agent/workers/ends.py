"""How the workers of the present launch ended, from everything that knows something of it.

Exit codes are torch's or the kernel's, times are those of pidfds, last words are the probe's or those of
torch's error files. It reads; it decides nothing and touches no worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from torch.distributed.elastic.multiprocessing import PContext

from rankscope.agent.failures import WorkerEnd
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.agent.workers.process_context import exit_codes, log_files, noted_exit_codes
from rankscope.agent.workers.torch_files import error_message
from rankscope.diag import proc
from rankscope.diag.model import ExitFacts, Frame
from rankscope.watchdog.page import SlotView

_UNSEEN: Final = 1.0
"""Seconds by which the end of a worker whose pidfd told nothing may have been another time."""


class Roster(Protocol):
    """Who the workers are, and what is known of them beside torch's process context."""

    @property
    def launch(self) -> Launch | None:
        """The present launch."""
        ...

    def slot(self, worker: WorkerRef) -> SlotView | None:
        """What a worker's slot of the page says, ``None`` when it has none."""
        ...

    def exit_times(self) -> Mapping[int, float]:
        """When local ranks ended, monotonic seconds."""
        ...

    def speaker(self, worker: WorkerRef) -> WorkerRef:
        """The rank that a worker's end is about: itself, or one below it."""
        ...


class WorkerEnds:
    """Tells how the workers ended.

    Args:
        roster: who they are.
        pcontext: torch's context of the present launch, ``None`` before the first.
        node: this agent's node.
        role: torch's role of its workers.
    """

    def __init__(
        self, roster: Roster, pcontext: Callable[[], PContext | None], *, node: str, role: str
    ) -> None:
        self._roster = roster
        self._pcontext = pcontext
        self._node = node
        self._role = role

    def reaped(self) -> dict[int, int]:
        """Exit codes of ranks that torch has reaped; looks at what it noted and waits for nobody."""
        launch, pcontext = self._roster.launch, self._pcontext()
        if launch is None or pcontext is None:
            return {}
        codes = noted_exit_codes(pcontext)
        return {
            worker.rank: code
            for worker in launch.workers
            if (code := codes.get(worker.local_rank)) is not None
        }

    def are_all_done(self) -> bool:
        """Whether all workers have ended with 0; one of which that is not known has not."""
        launch = self._roster.launch
        if launch is None:
            return True
        codes = {worker.rank: code for worker, code, _pcontext in self._ended()}
        return all(codes.get(worker.rank) == 0 for worker in launch.workers)

    def is_any_alive(self) -> bool:
        """Whether any worker has not ended."""
        launch = self._roster.launch
        if launch is None:
            return False
        now = time.monotonic()
        return any(
            (facts := proc.read_facts(worker.pid, now=now)) is not None
            and facts.start_ticks == worker.start_ticks
            and facts.state not in "ZX"
            for worker in launch.workers
        )

    def has_raised(self) -> bool:
        """Whether a worker has reported an uncaught exception through its probe."""
        launch = self._roster.launch
        workers = launch.workers if launch is not None else ()
        views = (self._roster.slot(self._roster.speaker(worker)) for worker in workers)
        return any(view is not None and view.raised_ns for view in views)

    def facts(self) -> dict[int, ExitFacts]:
        """The ranks that have ended, with exit code, message and age; reaps as torch's poll does."""
        now = time.monotonic()
        times = self._roster.exit_times()
        found: dict[int, ExitFacts] = {}
        for worker, code, pcontext in self._ended():
            rank = self._roster.speaker(worker)
            text, frame = self._last_words(rank)
            found[rank.rank] = ExitFacts(
                code=code,
                message=text or error_message(pcontext.error_files.get(worker.local_rank, "")),
                seconds_ago=now - times.get(rank.rank, now),
                frame=frame,
            )
        return found

    def ends(self) -> tuple[WorkerEnd, ...]:
        """The same with all that the root failure is told by."""
        times = self._roster.exit_times()
        return tuple(self._end(worker, code, pcontext, times) for worker, code, pcontext in self._ended())

    def _ended(self) -> list[tuple[WorkerRef, int, PContext]]:
        launch, pcontext = self._roster.launch, self._pcontext()
        if launch is None or pcontext is None:
            return []
        codes = exit_codes(pcontext)
        return [
            (worker, code, pcontext)
            for worker in launch.workers
            if (code := codes.get(worker.local_rank)) is not None
        ]

    def _end(self, worker: WorkerRef, code: int, pcontext: PContext, times: Mapping[int, float]) -> WorkerEnd:
        # Times of the monotonic clock on the axis of the wall clock.
        offset = time.time() - time.monotonic()
        rank = self._roster.speaker(worker)
        view = self._roster.slot(rank)
        raised = view is not None and view.raised_ns > 0
        return WorkerEnd(
            rank=rank.rank,
            local_rank=worker.local_rank,
            node=self._node,
            role=self._role,
            exit_code=code,
            at=times.get(rank.rank, time.monotonic()) + offset,
            # One that nobody saw end may have ended at any time since the last look.
            uncertainty=0.0 if rank.rank in times else _UNSEEN,
            said=view.raised_text if view is not None and raised else "",
            said_at=view.raised_ns / 1e9 + offset if view is not None and raised else None,
            frame=self._last_words(rank)[1],
            error_file=pcontext.error_files.get(worker.local_rank, ""),
            logs=log_files(pcontext, worker.local_rank),
        )

    def _last_words(self, worker: WorkerRef) -> tuple[str, Frame | None]:
        """What a worker's probe reported of its uncaught exception: its last line, and where it came from."""
        view = self._roster.slot(worker)
        if view is None or view.raised_at is None:
            return (view.raised_text if view is not None else ""), None
        function, file, line = view.raised_at
        return view.raised_text, Frame(function=function, file=file, line=line)
