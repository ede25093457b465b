"""One job that is watched: its records, its watch thread, and what is told of it. It never touches the job.

The counterpart of the agent's session, without anything that acts: no environment, pipe, signal or decision.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rankscope.agent.beside.evidence import BesideEvidence
from rankscope.agent.beside.launchers import lives, origin_of
from rankscope.agent.beside.log_files import LogFiles
from rankscope.agent.beside.observer import BesideObserver
from rankscope.agent.beside.pages import Pages
from rankscope.agent.beside.records import WatchRecords
from rankscope.agent.records.ledger import Ledger
from rankscope.agent.telling.announcer import Announcer
from rankscope.agent.telling.bulletin import Bulletin
from rankscope.agent.watching.collector import Collector
from rankscope.agent.watching.watch import Watch
from rankscope.agent.workers.model import Launch, WorkerRef
from rankscope.diag import proc
from rankscope.diag.discover import FoundJob
from rankscope.diag.model import Diagnosis
from rankscope.diag.own_catalogue import found_catalogue
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.store.events import Event
from rankscope.diag.store.incidents import new_incident_id
from rankscope.diag.store.job import JobFolder, job_folder
from rankscope.watchdog.limits import HangSettings
from rankscope.watchdog.observations import ActDue, Confirmed, Recovered

SETTLED: Final = 1.0
"""Seconds for which the same new processes must be there: ranks of a restart do not start all at once."""
GRACE: Final = 10.0
"""Seconds for which ranks are waited for whose launcher is gone, or is no launcher."""
RESTART_LOOK: Final = 60.0
"""Seconds after their end for which the next ranks are looked for closely."""
_HANGS: Final = frozenset({"RankCommHang", "RankNonCommHang", "Exited"})
_KEPT_PAGES: Final = 2
"""The page before is still read until the watch thread has heard of the new one."""
_Processes = frozenset[tuple[int, int, int]]


class JobWatch(Announcer):
    """Watches one job from its discovery to its end. ``update`` and ``close`` in one thread.

    Args:
        job: as found.
        settings: the limits.
        logs: its log files.
        say: shows lines to a person.
        on_event: gets each event.
        on_hang: called when a hang was published as more than information.

    Attributes:
        name: of the job.
        is_assumed: whether nothing but the user's word says that its processes are ranks.
        hangs: whether such a hang was published, and has not gone away.
    """

    def __init__(
        self,
        job: FoundJob,
        *,
        settings: HangSettings,
        logs: LogFiles,
        say: Callable[[str], None],
        on_event: Callable[[Event], None],
        on_hang: Callable[[], None],
    ) -> None:
        self.name = job.job
        self.is_assumed = job.assumed
        self.hangs = False
        self._say = say
        self._logs = logs
        self._on_hang = on_hang
        folder = JobFolder(Path(job.job_dir)) if job.job_dir else job_folder(job.job)
        guest = job.job_dir is not None
        self.records = WatchRecords(folder, say, guest=guest, on_event=on_event)
        self.ledger = Ledger(self.records, run_id=job.job, command=_command(job), nodes="")
        self.bulletin = Bulletin(self.records.node, job.job)
        self._catalogue = found_catalogue(folder.path, say=say)
        self._looker = Collector()
        self._evidence = BesideEvidence(job.job, self.records, catalogue=self._catalogue)
        self._watch = Watch(
            settings=settings,
            evidence=self._evidence,
            reporter=self,
            new_incident=lambda: new_incident_id(time.time()),
            exit_codes=dict,
        )
        self._origin = origin_of(job)
        self._processes: _Processes = frozenset()
        self._coming: tuple[_Processes, float] = (frozenset(), 0.0)
        self._gone_since: float | None = None
        self._pages: list[Pages] = []
        self._cycles = self._exits_seen = 0
        self._guest = guest
        self._looker.start()
        self._watch.start()
        if not guest:
            self.ledger.job_started()

    # What the search tells.

    def is_same(self, job: FoundJob) -> bool:
        """Whether a job that was found is this one, restarted perhaps.

        By its processes or its launch; by its name, which others may have too, only when it has ended.
        """
        if _processes(job) & self._processes or self._origin.is_same(origin_of(job)):
            return True
        return job.job == self.name and not self._alive()

    def update(self, job: FoundJob | None, now: float) -> None:
        """Take in what was found of it now; ranks that are new begin a new cycle.

        Args:
            job: its ranks, ``None`` when none was found.
            now: ``time.monotonic()``.
        """
        self._exits_seen = len(self._watch.exit_times())
        found = _processes(job) if job is not None else frozenset[tuple[int, int, int]]()
        if job is None or not found - self._processes:
            self._coming = (frozenset(), now)
        elif found != self._coming[0]:
            self._coming = (found, now)
        elif now - self._coming[1] >= SETTLED:
            self._begin(job)
        if self._gone_since is None and not self._coming[0] and not self._alive():
            self._gone_since = now
            self._watch.cycle_ended()
            if self._cycles:
                self.tell("all ranks here have ended")

    def wants_search(self, now: float) -> bool:
        """Whether something has happened that calls for a search at once."""
        gone_lately = self._gone_since is not None and now - self._gone_since < RESTART_LOOK
        return gone_lately or bool(self._coming[0]) or len(self._watch.exit_times()) != self._exits_seen

    def is_over(self, now: float) -> bool:
        """Whether it has ended, and nobody is left who could start it again."""
        if self._gone_since is None or self._coming[0]:
            return False
        launchers = self._origin.launchers
        waits = any(launcher.lives and launcher.is_known for launcher in launchers)
        lives = any(launcher.lives for launcher in launchers)
        return not waits and (not lives or now - self._gone_since >= GRACE)

    def close(self, *, ended: bool) -> None:
        """Stop watching.

        Args:
            ended: whether the job has ended, and not only our watching.
        """
        self._watch.stop()
        self._looker.stop(5.0)
        if ended:
            self.tell("the job has ended")
        if ended and not self._guest:
            self.ledger.job_ended("ended", None)
        elif not ended:
            self.records.event("message", {"content": "watching was stopped, the job goes on"})
        self.ledger.agent_is("ended", None, address=None, page="")
        self.records.close()
        for pages in self._pages:
            pages.close()

    def _begin(self, job: FoundJob) -> None:
        """Other processes than before: a start, a restart, or ranks that came later."""
        self._processes = _processes(job)
        self._coming = (frozenset(), 0.0)
        self._gone_since = None
        self._origin = origin_of(job)
        self._evidence.found = job
        self.hangs = False
        workers = tuple(
            WorkerRef(rank.rank, index, rank.pid, rank.start_ticks) for index, rank in enumerate(job.ranks)
        )
        launch = Launch(workers, restart_count=self._cycles, world_size=job.world_size)
        self._cycles += 1
        pages = Pages(job.ranks)
        self._pages.append(pages)
        while len(self._pages) > _KEPT_PAGES:
            self._pages.pop(0).close()
        observer = BesideObserver(
            launch,
            pages,
            logs=self._logs,
            looker=self._looker,
            catalogue=lambda: self._catalogue,
            node=self.records.node,
        )
        self._watch.cycle_started(launch, observer, None)
        self.ledger.cycle_started(launch)
        self.ledger.agent_is("running", launch, address=None, page="")
        if launch.restart_count:
            self.tell(f"new processes: {_what(job)}; what was known of those before is forgotten")
        else:
            where = f"records in {self.records.folder.path}" if self.records.usable else "without records"
            self.tell(f"watching {_what(job)}, {where}")

    def _alive(self) -> bool:
        return any(lives(pid, ticks) for _rank, pid, ticks in self._processes)

    def tell(self, text: str) -> None:
        """Say something, with the job's name before it."""
        self._say(f"{self.name}: {text}")

    # What the watch thread reports.

    def on_diagnosed(self, diagnosis: Diagnosis, confirmed: Confirmed) -> None:
        """Record and show a diagnosis, and tell of a hang."""
        super().on_diagnosed(diagnosis, confirmed)
        if diagnosis.verdict in _HANGS and diagnosis.severity in ("warning", "error"):
            self.hangs = True
            self._on_hang()

    def on_recovered(self, diagnosis: Diagnosis, recovered: Recovered) -> None:
        """Say that a published hang is over."""
        self.hangs = False
        super().on_recovered(diagnosis, recovered)

    def on_act_due(self, diagnosis: Diagnosis, due: ActDue, *, progress_seen: bool) -> None:
        """Say that it lasts; a watch does nothing to a job."""
        del progress_seen
        self.tell(f"still no progress after {due.gap:.0f} s; nothing is done to the job. {diagnosis.summary}")


def _processes(job: FoundJob) -> _Processes:
    return frozenset((rank.rank, rank.pid, rank.start_ticks) for rank in job.ranks)


def _command(job: FoundJob) -> tuple[str, ...]:
    return proc.command_line(job.ranks[0].pid)


def _what(job: FoundJob) -> str:
    ranks = [rank.rank for rank in job.ranks]
    count = f"rank{'s' * (len(ranks) > 1)} {fold_ranks(ranks)} of {job.world_size}"
    missing = [rank for rank in range(job.world_size) if rank not in ranks]
    gone = [rank for rank in missing if job.is_here(rank)]
    elsewhere = len(missing) - len(gone)
    notes = [f"no process of {fold_ranks(gone)} here"] if gone else []
    notes += [f"{elsewhere} on other hosts: not observed"] if elsewhere else []
    return f"{count} ({'; '.join(notes)})" if notes else count
