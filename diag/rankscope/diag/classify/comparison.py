"""Who is compared with whom, and how: the places of ranks that should be in the same one.

Equal place = equal call and function path first, line second. Ranks of two pipeline stages or roles stand in
different places by right: where groups are known, a rank that stands together with a whole group of its own
is nobody's odd one. Source: DIAGNOSIS.md, "Merging". It looks at places and numbers and names nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.position import Position
from rankscope.diag.classify.records import GroupKey
from rankscope.diag.classify.view import JobView, RankView
from rankscope.diag.classify.wording import name_ranks
from rankscope.diag.merge.normalise import bare_function, show_frame
from rankscope.diag.model import Evidence, Frame

Site = tuple[str, object, int]
"""The call, the function path, and the user's line, 0 where the paths already differ."""


_UNNUMBERED: Final = frozenset({"monitored_barrier"})


@dataclass(frozen=True, slots=True)
class Minority:
    """Ranks that stand elsewhere than those they are compared with.

    Attributes:
        odd: the minority, or every side of a tie; rest the others that were compared.
        sites: where each of both stands.
        among: of which group they were compared, ``None`` for the whole job.
    """

    odd: tuple[RankView, ...]
    rest: tuple[RankView, ...]
    sites: dict[int, Site]
    is_tie: bool
    among: GroupKey | None = None


def site(view: RankView) -> Site:
    """Where a rank stands."""
    position = view.position
    if position is None:
        return "", (), 0
    return position.call, position.path, position.user_frame.line if position.user_frame else 0


def _sites(views: Sequence[RankView]) -> dict[int, Site]:
    """Where ranks stand: lines only count where all are in one call by one path."""
    found = {view.rank: site(view) for view in views}
    if len({one[:2] for one in found.values()}) > 1:
        return {rank: (call, path, 0) for rank, (call, path, _line) in found.items()}
    return found


def minority(job: JobView, waiting: Sequence[RankView]) -> Minority | None:
    """The odd ones among ranks that all wait, ``None`` where there are none.

    Those inside one open collective are compared with each other when numbers tell who is; else those of the
    job that do not stand together with a whole group.
    """
    if any(one.done for one in job.waits.open):
        return None  # some are past what others are in: that they stand elsewhere says nothing
    inside = entered_together(job, waiting)
    if inside is not None:
        found = (_split(members, among=key) for key, members in inside)
        return next((one for one in found if one is not None), None)
    compared = _without_a_group(job, waiting)
    return _split(compared) if compared else None


def entered_together(
    job: JobView, waiting: Sequence[RankView]
) -> list[tuple[GroupKey, tuple[RankView, ...]]] | None:
    """The members of each open collective, ``None`` where numbers do not place every rank in a whole one."""
    if not job.numbered_twice or job.entered_new:
        return None
    held: dict[int, set[int]] = {}
    for at, one in enumerate(job.waits.open):
        if not one.complete or one.absent or one.done:
            return None
        for rank in one.waiting:
            held.setdefault(rank, set()).add(at)
    if any(len(held.get(view.rank, ())) != 1 or not _is_numbered(view) for view in waiting):
        return None
    return [(one.key, tuple(view for view in waiting if view.rank in one.waiting)) for one in job.waits.open]


def awaited(job: JobView, waiting: Sequence[RankView], away: Sequence[RankView]) -> list[RankView]:
    """Of the ranks outside of all waits, those that one that waits may lack.

    Numbers of both looks that show every member of a collective inside of it take the others out. A wait
    without a number (messages, the store) may be for anybody.
    """
    if not job.numbered_twice or job.entered_new:
        return list(away)
    lacked: set[int] = set()
    for view in waiting:
        holds = [one for one in job.waits.open if view.rank in one.waiting]
        if not _is_numbered(view) or not holds or not all(one.complete for one in holds):
            return list(away)
        lacked.update(rank for one in holds for rank in one.absent)
    return [view for view in away if view.rank in lacked]


def _is_numbered(view: RankView) -> bool:
    """Whether what it waits in has a number: messages of gloo, the store and monitored barriers have none."""
    position = view.position
    if position is None or view.waiting != "communication":
        return False
    return position.label != "p2p" and position.call not in _UNNUMBERED


def known_groups(job: JobView) -> list[frozenset[int]]:
    """Groups of the job smaller than the job of which every member is known."""
    found = {
        frozenset(members)
        for members in job.told.groups.values()
        if 1 < len(members) < job.latest.world_size
        and all(one.size == len(members) for one in members.values())
    }
    return sorted(found, key=sorted)


def _without_a_group(job: JobView, waiting: Sequence[RankView]) -> list[RankView]:
    """The ranks that stand together with no whole group of theirs; all, where no group is known."""
    places = _sites(waiting)
    together: set[int] = set()
    for group in known_groups(job):
        if group.issubset(places) and len({places[rank] for rank in group}) == 1:
            together |= group
    return [view for view in waiting if view.rank not in together]


def _split(views: Sequence[RankView], *, among: GroupKey | None = None) -> Minority | None:
    places = _sites(views)
    counted = Counter(places.values()).most_common()
    if len(counted) < 2:  # noqa: PLR2004 - one site is no difference
        return None
    tie = counted[0][1] == counted[1][1]
    odd = tuple(view for view in views if tie or places[view.rank] != counted[0][0])
    rest = tuple(view for view in views if view not in odd)
    return Minority(odd, rest, places, tie, among)


def parting_evidence(job: JobView, odd: Sequence[RankView], rest: Sequence[RankView]) -> list[Evidence]:
    """Where the ways of ranks part: work of one rank alone shows as a call that the others do not make."""
    text = _parting(job, odd, rest)
    if not text:
        return []
    ranks = [view.rank for view in odd]
    return [Evidence("stacks", text, ranks[0] if len(ranks) == 1 else None)]


def _parting(job: JobView, odd: Sequence[RankView], rest: Sequence[RankView]) -> str:
    """Where the way of the first odd rank parts from that of the first other, ``""`` where it does not."""
    if not odd or not rest:
        return ""
    mine, theirs = (_calls(views[0].position, job.catalogue) for views in (odd, rest))
    at = next((at for at, (one, other) in enumerate(zip(mine, theirs, strict=False)) if one != other), -1)
    if at < 0 or at >= min(len(mine), len(theirs)):
        return ""
    who = name_ranks(view.rank for view in odd)
    others = name_ranks(view.rank for view in rest)
    if _name(mine[at]) == _name(theirs[at]):
        return f"{who} went on from {_onward(mine, at)}, {others} from {_onward(theirs, at)}"
    return f"{who} went into {show_frame(mine[at])}, {others} into {show_frame(theirs[at])}"


def _onward(calls: Sequence[Frame], at: int) -> str:
    """``train (train.py:36) into evaluate``."""
    into = f" into {bare_function(calls[at + 1].function)}" if at + 1 < len(calls) else ""
    return f"{show_frame(calls[at])}{into}"


def _calls(position: Position | None, catalogue: Catalogue) -> list[Frame]:
    """The Python frames, outermost first, without those that only decorate a call."""
    frames = position.thread.frames if position is not None else ()
    return [
        frame
        for frame in reversed(frames)
        if frame.kind == "python" and frame.file and not catalogue.is_decorator(frame)
    ]


def _name(frame: Frame) -> tuple[str, str]:
    return bare_function(frame.function), frame.file.rpartition("/")[2]
