"""What the rules look at: every rank's place, activity and waits over the pair, worked out once.

It judges nothing; it puts the two snapshots of each rank side by side.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rankscope.diag.classify.activity import SILENT, Activity, frozen_state, measure, same_process
from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.kinds import Cause, Suspect, cause_of
from rankscope.diag.classify.loops import Loop, looping_ranks
from rankscope.diag.classify.peers import peer_of, recorded_peers
from rankscope.diag.classify.position import (
    Position,
    Root,
    SourceLine,
    Waiting,
    program_root,
    read_position,
)
from rankscope.diag.classify.records import Told, open_call, read_groups
from rankscope.diag.classify.stretch import Stretch, newest_stretch
from rankscope.diag.classify.troubles import proves_gone, proves_stopped
from rankscope.diag.classify.waits import OpenCollective, Waits, advanced, entered, read_waits
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
    """

    latest: RankSnapshot
    earlier: RankSnapshot | None
    position: Position | None
    before: Position | None
    activity: Activity
    waiting: Waiting | None
    inside: Collective | None = None
    strayed: bool = False

    @property
    def rank(self) -> int:
        """Global rank."""
        return self.latest.rank

    @property
    def gone(self) -> bool:
        """Whether its process has ended.

        A message from a log file, without an exit code, does not say when: a stack that was read is newer or
        older, and shows the process alive.
        """
        facts = self.latest.facts
        if facts is not None and (facts.state == "X" or (facts.state == "Z" and facts.thread_count <= 1)):
            return True
        end = self.latest.exit
        if end is None:
            return facts is None and proves_gone(self.latest)
        return not (end.code is None and end.message and self.latest.threads)

    @property
    def frozen(self) -> str | None:
        """The state letter of a rank that cannot run."""
        if self.gone:
            return None
        if self.latest.facts is None and proves_stopped(self.latest):
            return "T"
        return frozen_state(self.earlier, self.latest) or self._unanswering

    @property
    def _unanswering(self) -> str | None:
        """Torch's server needs neither the GIL nor the main thread: twice no answer is a stopped process."""
        twice = [one.server_answers for one in (self.earlier, self.latest) if one is not None]
        still = self.activity.level in ("quiet", "unknown")
        return SILENT if twice == [False, False] and still else None

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
        samples: looks between the pair's, in quick succession.
        loops: ranks that quick samples show in a Python loop, and in which sort.
        silent_seconds: how long a watcher has seen no progress, ``None`` when nobody watched.
        overdue: whether that is ten times what the watcher gives to working ranks.
        stretch: which looks were chosen for the pair, of how many.
    """

    latest: JobSnapshot
    earlier: JobSnapshot | None
    ranks: tuple[RankView, ...]
    told: Told
    waits: Waits
    peers: Mapping[int, frozenset[int]]
    catalogue: Catalogue
    source_line: SourceLine
    loops: Mapping[int, Loop]
    samples: tuple[JobSnapshot, ...] = ()
    silent_seconds: float | None = None
    overdue: bool = False
    stretch: Stretch = field(kw_only=True)

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

        Where there are flight records only, ranks without one.
        """
        stacks = any(view.seen for view in self.ranks)
        known = {view.rank for view in self.ranks if view.seen or view.gone or view.frozen}
        if not stacks:
            known |= {view.rank for view in self.ranks if view.latest.record is not None}
        return tuple(rank for rank in range(self.latest.world_size) if rank not in known)

    def of(self, ranks: Iterable[int]) -> tuple[RankView, ...]:
        """The views of some ranks."""
        wanted = set(ranks)
        return tuple(view for view in self.ranks if view.rank in wanted)

    def cause(self, view: RankView) -> Cause:
        """What a rank is doing."""
        return cause_of(view.suspect, catalogue=self.catalogue, source_line=self.source_line)

    @property
    def progress(self) -> tuple[int, str] | None:
        """Who made progress in the pair, and how."""
        return advanced(self.earlier.ranks, self.latest.ranks) if self.earlier else None

    @property
    def entered_new(self) -> bool:
        """Whether some rank entered another collective in between."""
        return entered(self.earlier.ranks, self.latest.ranks) if self.earlier else False


def look(
    first: JobSnapshot,
    second: JobSnapshot | None,
    *,
    catalogue: Catalogue,
    source_line: SourceLine,
    samples: tuple[JobSnapshot, ...] = (),
    silent_seconds: float | None = None,
    overdue: bool = False,
) -> JobView:
    """Put a pair of snapshots side by side, of whole looks the newest that belong together."""
    stretch = newest_stretch((first, second), samples, catalogue=catalogue, source_line=source_line)
    (first, second), samples = stretch.pair, stretch.samples
    latest, earlier = (second, first) if second is not None else (first, None)
    remembered: dict[tuple[str, int], str | None] = {}

    def line_of(file: str, line: int) -> str | None:
        if (file, line) not in remembered:
            remembered[file, line] = source_line(file, line)
        return remembered[file, line]

    old = {rank.rank: rank for rank in earlier.ranks} if earlier else {}
    ordered = sorted(latest.ranks, key=lambda rank: rank.rank)
    views = [_rank_view(rank, old.get(rank.rank), catalogue, line_of) for rank in ordered]
    programs = _programs(views, catalogue)
    if programs:
        views = [_rank_view(rank, old.get(rank.rank), catalogue, line_of, programs) for rank in ordered]
    if stretch.history:
        views = [_with_looks_between(view, samples, catalogue, line_of) for view in views]
    settled = tuple(_settle(views))
    elsewhere = {view.rank for view in settled if view.gone or _is_elsewhere(view)}
    loops = looping_ranks(samples, catalogue=catalogue, source_line=line_of)
    told = read_groups(latest.ranks, world_size=latest.world_size)
    spinning = {rank for rank in loops if loops[rank] == "user"}
    return JobView(
        latest=latest,
        earlier=earlier,
        ranks=settled,
        told=told,
        waits=_read_waits(told, latest.world_size, settled, elsewhere, loops=spinning),
        peers=_read_peers(latest, settled, catalogue),
        catalogue=catalogue,
        source_line=line_of,
        loops=loops,
        samples=samples,
        silent_seconds=silent_seconds,
        overdue=overdue,
        stretch=stretch,
    )


def _read_peers(
    latest: JobSnapshot, views: Sequence[RankView], catalogue: Catalogue
) -> dict[int, frozenset[int]]:
    """Stacks first: an asynchronous send that a record leaves open does not hold a rank."""
    found = recorded_peers(view.latest for view in views if view.position is None)
    for view in views:
        peer = peer_of(view.position, catalogue) if view.position is not None else None
        if peer is not None and peer != view.rank and peer < latest.world_size:
            found[view.rank] = frozenset({peer})
    return found


def _read_waits(
    told: Told, world_size: int, views: Sequence[RankView], elsewhere: set[int], *, loops: set[int]
) -> Waits:
    """The waits, those of ranks that spin included (``while not work.is_completed()``, NCCL, CUDA).

    A rank at work outside of any call may have started an asynchronous collective and need it later. Where
    those that have not entered it do nothing at all, or run in a loop, it spins for them.
    """
    gone = {view.rank for view in views if view.gone}
    waits = read_waits(told, world_size=world_size, elsewhere=elsewhere, gone=gone)
    spinning = {view.rank for view in views if view.rank in elsewhere and view.activity.level == "busy"}
    if waits.edges or not spinning:
        return waits
    with_spinning = read_waits(told, world_size=world_size, elsewhere=elsewhere - spinning, gone=gone)
    still = {
        view.rank
        for view in views
        if view.waiting is None and not view.gone and view.activity.level in ("quiet", "frozen")
    } | loops
    sinks = with_spinning.sinks()
    return with_spinning if sinks and still.issuperset(sinks) else waits


def _rank_view(
    rank: RankSnapshot,
    old: RankSnapshot | None,
    catalogue: Catalogue,
    source_line: SourceLine,
    programs: Collection[Root] = (),
) -> RankView:
    if old is not None and not _same(old, rank):
        old = None
    read = functools.partial(read_position, catalogue=catalogue, source_line=source_line, programs=programs)
    position, before = read(rank), read(old) if old is not None else None
    others = any(not thread.is_main and not catalogue.is_auxiliary(thread) for thread in rank.threads)
    activity = measure(old, rank, other_threads=others)
    inside = open_call(rank.record)
    waiting = position.waiting if position else None
    return RankView(rank, old, position, before, activity, waiting, inside)


def _with_looks_between(
    view: RankView, samples: Sequence[JobSnapshot], catalogue: Catalogue, source_line: SourceLine
) -> RankView:
    """What whole looks between the pair's show: a loop comes back to where it was."""
    between = [one for sample in samples for one in sample.ranks if one.rank == view.rank]
    places = (read_position(one, catalogue=catalogue, source_line=source_line) for one in between)
    position = view.position
    return replace(
        view,
        strayed=position is not None and any(one is not None and one.path != position.path for one in places),
    )


def _programs(views: Iterable[RankView], catalogue: Catalogue) -> set[Root]:
    """What threads began in that wait for ranks in place of their main threads."""
    waiting = [view.position for view in views if view.position is not None and view.waiting is not None]
    return {root for position in waiting if (root := program_root(position, catalogue)) is not None}


def _is_elsewhere(view: RankView) -> bool:
    """Whether its stack shows it outside of any wait; one that only waits for a thread does not."""
    return view.position is not None and view.waiting is None and not view.position.for_thread


def _same(old: RankSnapshot, new: RankSnapshot) -> bool:
    if old.facts is not None and new.facts is not None:
        return same_process(old.facts, new.facts)
    return (old.pid, old.start_ticks) == (new.pid, new.start_ticks)


def _settle(views: list[RankView]) -> Iterable[RankView]:
    """Decide what ``perhaps`` means: DDP's backward and waits for the GPU show nothing in Python.

    A rank that computes there waits for nobody. One that is still there waits with the others if somebody is
    away, if it stands where most ranks stand, or if the page shows it inside a collective; otherwise the only
    ranks off the collective are not waiting for it.
    """
    live = [view for view in views if view.seen and not view.gone and not view.frozen]
    perhaps = [view for view in live if view.waiting == "perhaps"]
    sure = [view for view in live if view.waiting in ("communication", "store")]
    away = [view for view in live if view.waiting is None]
    stopped = any(view.gone or view.frozen for view in views)
    waits = bool(away) or stopped or len(perhaps) >= len(sure)
    for view in views:
        if view.waiting != "perhaps":
            yield view
        else:
            inside = (waits or _is_inside(view)) and not _computes(view)
            yield replace(view, waiting="communication" if inside else None)


def _is_inside(view: RankView) -> bool:
    """Whether the page shows the rank in a collective of its own over the whole pair: it went another way."""
    now = view.latest.progress
    before = view.earlier.progress if view.earlier is not None else None
    if now is None or before is None:
        return False
    opened = {group for group in before.groups if group.enqueued > group.completed}
    return any(group in opened for group in now.groups)


def _computes(view: RankView) -> bool:
    """A backward whose thread uses the CPU computes; a wait for the GPU may spin, which means nothing."""
    position = view.position
    if position is None or position.label != "backward":
        return False
    return view.activity.thread_computes(main=position.thread.is_main)


def live_ranks(job: JobView) -> list[RankView]:
    """Ranks with a stack that can run: neither gone nor frozen."""
    return [view for view in job.ranks if view.seen and not view.gone and not view.frozen]


def waiting_ranks(job: JobView) -> list[RankView]:
    """Live ranks that wait for others."""
    return [view for view in live_ranks(job) if view.waiting is not None]


def away_ranks(job: JobView) -> list[RankView]:
    """Live ranks that wait for nobody."""
    return [view for view in live_ranks(job) if view.waiting is None]
