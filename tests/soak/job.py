"""The two jobs of a soak, the same ranks under ``diag run`` and torchrun; and how the ranks are read."""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path
from typing import Final

from tests.chaos.onlooker import MARK
from tests.faults.ranks_of import pids_of
from tests.jobs import Job, until
from tests.soak.plan import Plan
from tests.soak.programs.stepping_rank import FORM
from tests.soak.samples import RankLook

from rankscope.watchdog.page import PageReader, SlotView

_PROGRAM: Final = Path(__file__).parent / "programs" / "stepping_rank.py"
_MODULES: Final = {"ours": "rankscope.agent", "torchrun": "torch.distributed.run"}
_NS: Final = 1_000_000_000
_TRIES: Final = 100


class SoakJob(Job):
    """One of the two jobs.

    Args:
        folder: for its output and its ranks' numbers; made.
        launcher: ``ours`` or ``torchrun``.
        ranks: so many.
        mark: that all processes of the soak carry.
    """

    def __init__(self, folder: Path, *, launcher: str, ranks: int, mark: str) -> None:
        super().__init__(folder, f"{mark}-{launcher}")
        self.launcher = launcher
        self.ranks = ranks
        self.mark = mark
        self.stop_file = folder / "stop"
        self.numbers = folder / "numbers"
        self.pids: dict[int, int] = {}
        self._maps: dict[int, mmap.mmap] = {}

    def launch(self, plan: Plan, *flags: str, environ: dict[str, str]) -> None:
        """Start it; ``flags`` are the launcher's."""
        self.numbers.mkdir(parents=True)
        own = [f"--folder={self.numbers}", f"--stop={self.stop_file}", f"--kind={plan.kind}"]
        words = [f"--nproc-per-node={self.ranks}", f"--rdzv-id={self.run_id}", *flags, str(_PROGRAM)]
        pace = [f"--step-time={plan.step_time}", f"--message-every={plan.message_every}"]
        self.start(
            [sys.executable, "-m", _MODULES[self.launcher], *words, *own, *pace],
            {MARK: self.mark, **environ},
        )

    def wait_until_it_trains(self) -> None:
        """All ranks make steps; from now on they can be read.

        Raises:
            AssertionError: they do not, in time.
        """
        until(lambda: len(self.pids_now()) == self.ranks and self._all_step(), f"{self.launcher} to train")
        self.pids = self.pids_now()

    def pids_now(self) -> dict[int, int]:
        """The ranks' processes.

        Raises:
            AssertionError: the launcher has ended.
        """
        assert self.process is not None
        assert self.process.poll() is None, f"{self.launcher} ended:\n{self.stderr[-2000:]}"
        return pids_of(self)

    def _all_step(self) -> bool:
        for rank in range(self.ranks):
            if rank not in self._maps and (self.numbers / str(rank)).exists():
                with (self.numbers / str(rank)).open("rb") as file:
                    self._maps[rank] = mmap.mmap(file.fileno(), FORM.size, prot=mmap.PROT_READ)
        return len(self._maps) == self.ranks and all(self.own(rank)[0] > 1 for rank in self._maps)

    def own(self, rank: int) -> tuple[int, ...]:
        """The rank's own numbers: steps, wall and CPU nanoseconds in them, messages, whether it is over."""
        before = b""
        for _ in range(_TRIES):
            raw = self._maps[rank][:]
            if raw == before:
                break
            before = raw
        return FORM.unpack(before)

    def look(self, rank: int, view: SlotView | None = None) -> RankLook:
        """A rank's own numbers; see ``look_beside`` for those on the page."""
        count, wall, cpu, *_ = self.own(rank)
        page = _count(view) if view is not None else 0
        beat = max(0.0, (time.monotonic_ns() - view.beat_ns) / _NS) if view is not None else 0.0
        return RankLook(count, count, wall, cpu, page, beat)

    def look_beside(self, rank: int, page: PageReader) -> RankLook:
        """A rank's own numbers before and after what the page says."""
        before, wall, cpu, *_ = self.own(rank)
        view = page.read(rank)
        beat = max(0.0, (time.monotonic_ns() - view.beat_ns) / _NS)
        return RankLook(before, self.own(rank)[0], wall, cpu, _count(view), beat)

    def let_end(self) -> int:
        """Have the ranks stop; the launcher's exit code."""
        self.stop_file.touch()
        return self.finish()

    def close(self) -> None:
        """End whatever is left of it."""
        self.end()
        for numbers in self._maps.values():
            numbers.close()
        self._maps.clear()


def _count(view: SlotView) -> int:
    """Steps on the page: the optimizer's, or those that the script told."""
    return view.step or view.user_step


def steps_on(page: PageReader, rank: int) -> int:
    """Steps of a rank on the page; on one node a rank's slot is its rank."""
    return _count(page.read(rank))
