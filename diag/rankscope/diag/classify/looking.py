"""From a pair of snapshots to what the rules look at: every rank's place, activity and waits, side by side.

It judges nothing; what it puts together is described in ``view``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rankscope.diag.classify.activity import beat_is_stale, measure, same_process
from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.deciding import Reader
from rankscope.diag.classify.loops import looping_ranks
from rankscope.diag.classify.peers import peer_of, recorded_peers
from rankscope.diag.classify.position import Position, SourceLine, same_place
from rankscope.diag.classify.readers import reader_of
from rankscope.diag.classify.records import Told, open_call, read_groups
from rankscope.diag.classify.slow_limits import SlowLook
from rankscope.diag.classify.stretch import newest_stretch
from rankscope.diag.classify.view import JobView, RankView, cannot_run, has_ended
from rankscope.diag.classify.waits import Waits, advanced, entered, read_waits
from rankscope.diag.merge.own_frames import without_own_frames
from rankscope.diag.model import JobSnapshot, RankSnapshot


def look(
    first: JobSnapshot,
    second: JobSnapshot | None,
    *,
    catalogue: Catalogue,
    source_line: SourceLine,
    samples: tuple[JobSnapshot, ...] = (),
    silent_seconds: float | None = None,
    overdue: bool = False,
    slow: SlowLook | None = None,
) -> JobView:
    """Put a pair of snapshots side by side, of whole looks the newest that belong together."""
    first = without_own_frames(first)
    second = without_own_frames(second) if second is not None else None
    samples = tuple(map(without_own_frames, samples))
    remembered: dict[tuple[str, int], str | None] = {}

    def line_of(file: str, line: int) -> str | None:
        if (file, line) not in remembered:
            remembered[file, line] = source_line(file, line)
        return remembered[file, line]

    newest = sorted((second or first).ranks, key=lambda rank: rank.rank)
    reader = reader_of(newest, catalogue, line_of)
    stretch = newest_stretch((first, second), samples, reader=reader)
    (first, second), samples = stretch.pair, stretch.samples
    latest, earlier = (second, first) if second is not None else (first, None)
    old = {rank.rank: rank for rank in earlier.ranks} if earlier else {}
    views = [_rank_view(rank, old.get(rank.rank), reader) for rank in newest]
    if stretch.history:
        views = [_with_looks_between(view, samples, reader) for view in views]
    settled = tuple(_settle(views))
    elsewhere = {view.rank for view in settled if view.gone or _is_elsewhere(view)}
    loops = looping_ranks(samples, reader=reader)
    told = read_groups(latest.ranks, world_size=latest.world_size)
    spinning = {rank for rank in loops if loops[rank] == "user"}
    return JobView(
        latest=latest,
        earlier=earlier,
        ranks=settled,
        told=told,
        waits=_read_waits(told, latest.world_size, settled, elsewhere, loops=spinning),
        peers=_read_peers(latest, settled, catalogue),
        reader=reader,
        loops=loops,
        samples=samples,
        silent_seconds=silent_seconds,
        overdue=overdue,
        stretch=stretch,
        progress=advanced(earlier.ranks, latest.ranks) if earlier is not None else None,
        entered_new=entered(earlier.ranks, latest.ranks) if earlier is not None else False,
        slow=slow,
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


def _rank_view(rank: RankSnapshot, old: RankSnapshot | None, reader: Reader) -> RankView:
    if old is not None and not _same(old, rank):
        old = None
    position, before = _positions(rank, old, reader)
    others = any(not thread.is_main and not reader.catalogue.is_auxiliary(thread) for thread in rank.threads)
    idles = all(reader.main_idles(one) for one in (old, rank) if one is not None)
    activity = measure(old, rank, other_threads=others, main_idles=idles)
    inside = open_call(rank.record)
    waiting = position.waiting if position else None
    return RankView(
        rank,
        old,
        position,
        before,
        activity,
        waiting,
        inside,
        gone=has_ended(rank),
        frozen=cannot_run(old, rank, activity),
    )


def _positions(
    rank: RankSnapshot, old: RankSnapshot | None, reader: Reader
) -> tuple[Position | None, Position | None]:
    """Where it stands and stood: in the thread that keeps the GIL at both looks, if there is one.

    Its main thread may stand in a collective: that may be over since, but without the GIL it does not come
    out of it. At one look any thread may have the GIL for a moment, unless the probe has waited for it.
    """
    position, before = reader.position(rank), reader.position(old) if old is not None else None
    if position is None or position.waiting is None:
        return position, before
    holder = reader.holder(rank)
    if holder is None:
        return position, before
    if old is None:
        return (holder if beat_is_stale(rank) else position), None
    earlier = reader.holder(old)
    keeps = earlier is not None and same_place(earlier, holder)
    return (holder, earlier) if keeps else (position, before)


def _with_looks_between(view: RankView, samples: Sequence[JobSnapshot], reader: Reader) -> RankView:
    """What whole looks between the pair's show: a loop comes back to where it was."""
    between = [one for sample in samples for one in sample.ranks if one.rank == view.rank]
    places = map(reader.position, between)
    position = view.position
    return replace(
        view,
        strayed=position is not None and any(one is not None and one.path != position.path for one in places),
    )


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
