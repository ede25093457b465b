"""Looks at the local workers once a tick: progress page, ``/proc``, children, log sizes.

Reads only; decides nothing (``watchdog.detector`` does).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypedDict

from rankscope.agent.observing.counters import Counters, ProcessCounters
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag import proc
from rankscope.diag.capture import CAPTURE_TOOLS
from rankscope.diag.discover import is_slot_of, progress_from_slot
from rankscope.diag.model import ProcessFacts, Progress
from rankscope.watchdog.observations import RankObservation
from rankscope.watchdog.page import SlotView


class Slots(Protocol):
    """Where the workers' slots are read: a page, or several as one."""

    def read(self, slot: int) -> SlotView:
        """Read the slot of a local rank."""
        ...


_LOADER_WORKER: Final = "pt_data_worker"
"""The kernel's name that torch gives to a loader's worker."""
_SPAWNED: Final = "multiprocessing."
"""In the command line of a child that ``spawn`` or a fork server made."""


@dataclass(slots=True)
class _ChildTotals:
    """Counters of a rank's children that only ever grow: a child seen for the first time adds nothing.

    Attributes:
        youngest_born: when the youngest loader worker, or other child that runs Python for it, was started.
    """

    cpu_seconds: float = 0.0
    io_bytes: int = 0
    youngest_born: float | None = None
    seen: dict[tuple[int, int], ProcessFacts] = field(default_factory=dict)
    workers: dict[tuple[int, int], bool] = field(default_factory=dict)

    def update(self, rank_pid: int, pids: Iterable[int], now: float) -> None:
        found: dict[tuple[int, int], ProcessFacts] = {}
        for pid in pids:
            facts = proc.read_facts(pid, now=now)
            if facts is None:
                continue
            identity = (facts.pid, facts.start_ticks)
            before = self.seen.get(identity)
            if before is not None:
                self.cpu_seconds += max(0.0, _cpu(facts) - _cpu(before))
                self.io_bytes += max(0, facts.io_bytes - before.io_bytes)
            found[identity] = facts
        self.seen = found
        rank_command = proc.command_line(rank_pid) if found else ()
        self.workers = {one: self._is_worker(one, facts, rank_command) for one, facts in found.items()}
        # Unix birth times on the monotonic axis: comparable with the detector's clock.
        offset = time.time() - now
        self.youngest_born = max(
            (facts.started - offset for one, facts in found.items() if self.workers[one]), default=None
        )

    def _is_worker(
        self, identity: tuple[int, int], facts: ProcessFacts, rank_command: tuple[str, ...]
    ) -> bool:
        """Whether a child runs the rank's own code: no compiler, no shell."""
        # Looked at again while it seems so: a fork that will run another program has the rank's command line.
        if not self.workers.get(identity, True):
            return False
        command = proc.command_line(facts.pid)
        if facts.comm == _LOADER_WORKER or command == rank_command:
            return True
        return any(_SPAWNED in argument for argument in command)


def _cpu(facts: ProcessFacts) -> float:
    return facts.main_cpu_seconds + facts.other_cpu_seconds


class _SlotFields(TypedDict, total=False):
    """What an observation takes from the page, beside the groups."""

    returned: bool
    step: int
    user_step_ns: int
    beat_ns: int
    batches: int
    interval: float | None
    stage_limit: float | None
    stage: str


def _of_slot(slot: SlotView | None) -> _SlotFields:
    if slot is None:
        return {}
    return {
        "returned": slot.returned_ns > 0,
        "step": slot.step,
        "user_step_ns": slot.user_step_ns,
        "beat_ns": slot.beat_ns,
        "batches": slot.batches,
        "interval": slot.interval,
        "stage_limit": slot.stage_limit,
        "stage": slot.stage,
    }


def _state(pid: int, state: str) -> str:
    """The state letter; one that a capture tool holds for a moment (0.3 s with C++ frames) is not stopped."""
    return "S" if state == "t" and proc.tracer_name(pid) in CAPTURE_TOOLS else state


def _reports(slot: SlotView) -> bool:
    """Whether the rank's silence in the page says anything: something in it has moved before."""
    return slot.step > 0 or slot.user_step_ns > 0 or slot.batches > 0 or bool(slot.groups)


class Observer:
    """Turns the workers of one launch into ``RankObservation`` s. ``observe`` and ``close`` in one thread.

    Args:
        launch: the workers.
        page: the node's progress page, ``None`` when there is none.
        timer_calls: tells when each pid last acquired or released a timer.
        log_sizes: tells how many bytes each local rank has written to its logs.

    Attributes:
        slots: what the page said at the last look, by rank.
        ended: ranks whose process was gone at the last look.
    """

    def __init__(
        self,
        launch: Launch,
        page: Slots | None,
        *,
        timer_calls: Callable[[], Mapping[int, float]],
        log_sizes: Callable[[], Mapping[int, int]],
    ) -> None:
        self._launch = launch
        self._page = page
        self._timer_calls = timer_calls
        self._log_sizes = log_sizes
        self._children: dict[int, _ChildTotals] = {}
        self._claims: dict[int, tuple[int, int]] = {}
        self._counters: dict[int, tuple[int, ProcessCounters]] = {}
        self._look_bytes: dict[int, int] = {}
        self.slots: dict[int, SlotView] = {}
        self.ended: frozenset[int] = frozenset()
        self._probed = False

    def observe(self, now: float, *, with_children: bool) -> tuple[RankObservation, ...]:
        """Look at every worker.

        Args:
            now: ``time.monotonic()``.
            with_children: also look for child processes (costs a walk over the workers' threads).
        """
        calls = self._timer_calls()
        # Output counts as life only where no probe reports (watchdog.detector).
        log_bytes = {} if self._probed else self._log_sizes()
        found: list[RankObservation] = []
        for worker in self._launch.workers:
            log = log_bytes.get(worker.local_rank, 0)
            found.append(self._observe(worker, now, calls, log, with_children=with_children))
        self._probed = any(rank.probed for rank in found)
        return tuple(found)

    def close(self) -> None:
        """Close the workers' files; what has been observed stays."""
        for _pid, counters in self._counters.values():
            counters.close()
        self._counters.clear()

    def _observe(
        self,
        worker: WorkerRef,
        now: float,
        calls: Mapping[int, float],
        log_bytes: int,
        *,
        with_children: bool,
    ) -> RankObservation:
        slot = self.slot(worker)
        if slot is not None:
            self.slots[worker.rank] = slot
        probed = slot is not None and _reports(slot)
        pid, counters = self._read_counters(worker)
        self.ended = (self.ended - {worker.rank}) | ({worker.rank} if counters is None else set())
        if counters is None:
            # What it wrote last stays: that it is gone is no progress.
            return RankObservation(rank=worker.rank, alive=False, state="X", probed=probed, **_of_slot(slot))
        children = self._children.setdefault(worker.rank, _ChildTotals())
        if with_children:
            children.update(pid, proc.descendants(pid), now)
        return RankObservation(
            rank=worker.rank,
            alive=counters.state not in "ZX",
            state=_state(pid, counters.state),
            probed=probed,
            groups=slot.groups if slot else (),
            **_of_slot(slot),
            last_timer_call=calls.get(pid, 0.0),
            cpu_seconds=counters.cpu_seconds,
            run_delay_seconds=counters.run_delay_seconds,
            other_cpu_seconds=counters.other_cpu_seconds,
            switches=counters.switches,
            io_bytes=counters.io_bytes - self._look_bytes.get(pid, 0),
            children_cpu_seconds=children.cpu_seconds,
            children_io_bytes=children.io_bytes,
            youngest_child_born=children.youngest_born,
            log_bytes=log_bytes,
        )

    def _read_counters(self, worker: WorkerRef) -> tuple[int, Counters | None]:
        """Of the process that claimed the slot, else of the worker; ``None`` when that one has ended."""
        itself = (worker.pid, worker.start_ticks)
        for pid, ticks in dict.fromkeys((self._claims.get(worker.rank, itself), itself)):
            counters = self._counters_of(worker.rank, pid).read()
            if counters is not None and counters.start_ticks == ticks:
                return pid, counters
        return worker.pid, None

    def _counters_of(self, rank: int, pid: int) -> ProcessCounters:
        known_pid, counters = self._counters.get(rank, (0, None))
        if counters is None or known_pid != pid:
            if counters is not None:
                counters.close()
            counters = ProcessCounters(pid)
            self._counters[rank] = pid, counters
        return counters

    def slot(self, worker: WorkerRef) -> SlotView | None:
        """The worker's slot, ``None`` when no probe of this very process has claimed it."""
        if self._page is None:
            return None
        view = self._page.read(worker.local_rank)
        claim = (view.pid, view.start_ticks)
        if claim != self._claims.get(worker.rank):
            if not is_slot_of(view, worker.pid, worker.start_ticks):
                return None
            self._claims[worker.rank] = claim
        return view

    def process(self, worker: WorkerRef) -> tuple[int, int]:
        """Pid and start time of the rank: the worker, or the process below it that claimed its slot."""
        pid, ticks = self._claims.get(worker.rank, (worker.pid, worker.start_ticks))
        return (pid, ticks) if proc.start_ticks(pid) == ticks else (worker.pid, worker.start_ticks)

    def looked_at(self, pid: int, size_bytes: int) -> None:
        """A look had process ``pid`` write that much: no work of its own. One look at a time."""
        if size_bytes:
            self._look_bytes = {**self._look_bytes, pid: self._look_bytes.get(pid, 0) + size_bytes}

    def rank_above(self, pid: int) -> int:
        """The rank that process ``pid`` is or descends from, -1 for none."""
        ranks = {worker.pid: worker.rank for worker in self._launch.workers}
        return next((rank for above, rank in ranks.items() if proc.descends_from(pid, (above,))), -1)

    def worker_of(self, pid: int) -> WorkerRef | None:
        """The worker whose rank is process ``pid``."""
        return next((worker for worker in self._launch.workers if self.process(worker)[0] == pid), None)

    def progress(self, worker: WorkerRef) -> Progress | None:
        """What the worker's probe last wrote, with ages instead of times."""
        view = self.slot(worker)
        return None if view is None else progress_from_slot(view, now_ns=time.monotonic_ns())
