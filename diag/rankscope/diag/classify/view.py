"""What the rules look at: every rank's place, activity and waits over the pair, worked out once.

It judges nothing; it puts the two snapshots of each rank side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rankscope.diag.classify.activity import SILENT, Activity, frozen_state
from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.deciding import Reader
from rankscope.diag.classify.kinds import Cause, Suspect, cause_of
from rankscope.diag.classify.loops import Loop
from rankscope.diag.classify.position import (
    Position,
    SourceLine,
    Waiting,
)
from rankscope.diag.classify.records import Told
from rankscope.diag.classify.slow_limits import Slowdown, SlowLook
from rankscope.diag.classify.stretch import Stretch
from rankscope.diag.classify.troubles import proves_gone, proves_stopped
from rankscope.diag.classify.waits import OpenCollective, Waits
from rankscope.diag.model import Collective, JobSnapshot, RankSnapshot


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank over the pair.

    Attributes:
        latest: its newest snapshot; earlier the first of the pair, ``None`` without one of the same
            process.
        position: where it stands, ``None`` without a stack.
        before: where it stood in the first snapshot.
        activity: what it did in between.
        waiting: what it waits in; a ``perhaps`` is settled by the company it keeps.
        inside: the operation that its record says it is inside of, ``None`` without one.
        strayed: whether a look between the pair's shows it in another function.
        gone: whether its process has ended; frozen the state letter of a rank that cannot run.
    """

    latest: RankSnapshot
    earlier: RankSnapshot | None
    position: Position | None
    before: Position | None
    activity: Activity
    waiting: Waiting | None
    inside: Collective | None = None
    strayed: bool = False
    gone: bool = False
    frozen: str | None = None

    @property
    def rank(self) -> int:
        """Global rank."""
        return self.latest.rank

    @property
    def seen(self) -> bool:
        """Whether its stack is known."""
        return self.position is not None

    @property
    def observed(self) -> bool:
        """Whether its stack or its flight record is known."""
        return self.seen or self.latest.record is not None

    @property
    def alive(self) -> bool:
        """Whether anything was read from its process, which has not ended."""
        known = self.seen or self.latest.facts is not None or self.latest.record is not None
        return known and not self.gone

    @property
    def waits(self) -> bool:
        """Whether it waits for others: by its stack, or without one by its record."""
        return self.waiting is not None or (self.position is None and self.inside is not None)

    @property
    def call(self) -> str:
        """The call it stands in: the stack's, else the one its record leaves open."""
        if self.position is not None:
            return self.position.call
        return self.inside.op if self.inside is not None else ""

    @property
    def moved(self) -> bool:
        """Whether it stood in another function in the first snapshot, or in between."""
        return self.strayed or (
            self.before is not None and self.position is not None and self.before.path != self.position.path
        )

    @property
    def suspect(self) -> Suspect:
        """The rank as ``cause_of`` takes it."""
        return Suspect(self.latest, self.earlier, self.position, self.activity)


def has_ended(rank: RankSnapshot) -> bool:
    """Whether its process has ended.

    A message from a log file, without an exit code, does not say when: a stack that was read is newer or
    older, and shows the process alive.
    """
    facts = rank.facts
    if facts is not None and (facts.state == "X" or (facts.state == "Z" and facts.thread_count <= 1)):
        return True
    end = rank.exit
    if end is None:
        return facts is None and proves_gone(rank)
    return not (end.code is None and end.message and rank.threads)


def cannot_run(earlier: RankSnapshot | None, latest: RankSnapshot, activity: Activity) -> str | None:
    """The state letter of a rank that has not ended and cannot run, ``None`` for any other.

    Torch's server needs neither the GIL nor the main thread: twice no answer is a stopped process.
    """
    if has_ended(latest):
        return None
    if latest.facts is None and proves_stopped(latest):
        return "T"
    twice = [one.server_answers for one in (earlier, latest) if one is not None]
    silent = twice == [False, False] and activity.level in ("quiet", "unknown")
    return frozen_state(earlier, latest) or (SILENT if silent else None)


@dataclass(frozen=True, slots=True)
class JobView:
    """The job over the pair.

    Attributes:
        latest: the newest snapshot.
        earlier: the first of the pair, ``None`` with a single one.
        ranks: one view a rank that has a snapshot, by rank.
        told: what pages and records tell of process groups.
        waits: by sequence numbers.
        peers: whom each rank in a send or receive waits for, where that is known.
        reader: reads where a rank stands, at any look.
        samples: looks between the pair's, in quick succession.
        loops: ranks that quick samples show in a Python loop, and in which sort.
        silent_seconds: how long a watcher has seen no progress, ``None`` when nobody watched.
        overdue: whether that is ten times what the watcher gives to working ranks.
        stretch: which looks were chosen for the pair, of how many.
        progress: who made progress in the pair, and how, ``None`` when nobody did.
        entered_new: whether some rank entered another collective in between.
        slow: what is known of the job's pace, where the looks were taken to find out what is slow.
    """

    latest: JobSnapshot
    earlier: JobSnapshot | None
    ranks: tuple[RankView, ...]
    told: Told
    waits: Waits
    peers: Mapping[int, frozenset[int]]
    reader: Reader
    loops: Mapping[int, Loop]
    samples: tuple[JobSnapshot, ...] = ()
    silent_seconds: float | None = None
    overdue: bool = False
    stretch: Stretch = field(kw_only=True)
    progress: tuple[int, str] | None = None
    entered_new: bool = False
    slow: SlowLook | None = None

    @property
    def catalogue(self) -> Catalogue:
        """What frames mean."""
        return self.reader.catalogue

    @property
    def source_line(self) -> SourceLine:
        """Text of a line of a file."""
        return self.reader.source_line

    @property
    def slowdown(self) -> Slowdown | None:
        """How much longer steps take than this job's own did, ``None`` when that is not known."""
        return self.slow.slowdown if self.slow is not None else None

    @property
    def rhythm_known(self) -> bool:
        """Whether this launch of the job was seen to move: an optimizer step, or a collective completed.

        Silence alone says nothing, however long: a server that waits for requests, and a job that has not
        begun, look the same.
        """
        pages = (
            snapshot.progress
            for view in self.ranks
            for snapshot in (view.latest, view.earlier)
            if snapshot is not None and snapshot.progress is not None
        )
        if any(page.step > 0 or any(group.completed > 0 for group in page.groups) for page in pages):
            return True
        return any(one.completed > 0 for group in self.told.groups.values() for one in group.values())

    @property
    def by_log(self) -> bool:
        """Whether no more is known of any rank than what lines of logs say."""
        return not any(
            view.seen
            or view.latest.facts is not None
            or view.latest.progress is not None
            or (view.latest.record is not None and not view.latest.record.is_of_log)
            for view in self.ranks
        )

    @property
    def missing(self) -> tuple[OpenCollective, ...]:
        """Open collectives that some member has not entered."""
        return tuple(one for one in self.waits.open if one.absent)

    @property
    def static_open(self) -> OpenCollective | None:
        """A collective that was open over the whole pair: nothing completed, nothing newly entered."""
        if not self.paired or not self.waits.open or self.progress is not None or self.entered_new:
            return None
        return self.waits.open[0]

    @property
    def paired(self) -> bool:
        """Whether two snapshots were taken."""
        return self.earlier is not None

    @property
    def numbered_twice(self) -> bool:
        """Whether both snapshots tell sequence numbers: a record beside two looks at stacks is one look."""
        if self.earlier is None:
            return False
        before = {rank.rank for rank in self.earlier.ranks if rank.record is not None or rank.progress}
        return before.issuperset(view.rank for view in self.ranks if view.rank in self.told.ranks)

    @property
    def unseen(self) -> tuple[int, ...]:
        """Ranks without a stack that nothing else explains: neither gone nor frozen.

        Where there are flight records only, ranks without one that tells where they stand.
        """
        stacks = any(view.seen for view in self.ranks)
        known = {view.rank for view in self.ranks if view.seen or view.gone or view.frozen}
        if not stacks:
            recorded = [view for view in self.ranks if view.latest.record is not None]
            cut = {view.rank for view in recorded if view.latest.record and view.latest.record.is_cut}
            known |= {view.rank for view in recorded} - (cut - self.told.ranks)
        return tuple(rank for rank in range(self.latest.world_size) if rank not in known)

    def told_by(self, ranks: Iterable[int]) -> str:
        """What tells the numbers of some ranks, where no progress page does."""
        sources = {view.latest.record.source for view in self.of(ranks) if view.latest.record is not None}
        return sources.pop() if len(sources) == 1 else "flight record"

    def of(self, ranks: Iterable[int]) -> tuple[RankView, ...]:
        """The views of some ranks."""
        wanted = set(ranks)
        return tuple(view for view in self.ranks if view.rank in wanted)

    def cause(self, view: RankView) -> Cause:
        """What a rank is doing."""
        return cause_of(view.suspect, catalogue=self.catalogue, source_line=self.source_line)


def _live_ranks(job: JobView) -> list[RankView]:
    """Ranks with a stack that can run: neither gone nor frozen."""
    return [view for view in job.ranks if view.seen and not view.gone and not view.frozen]


def waiting_ranks(job: JobView) -> list[RankView]:
    """Live ranks that wait for others."""
    return [view for view in _live_ranks(job) if view.waiting is not None]


def away_ranks(job: JobView) -> list[RankView]:
    """Live ranks that wait for nobody."""
    return [view for view in _live_ranks(job) if view.waiting is None]
