"""Rules about what the place of most ranks says where their stacks show no wait (row 8, by single looks).

A wait for the GPU may leave no frame (``loss.item()``), and a lock that all processes share shows nobody who
holds it. Ranks that are all at one such place wait there; whoever is elsewhere is looked at first. Source:
public stacks (mmdetection3d#952, PyMarlin#80, filelock#389). Only for looks without process facts: these tell
who works.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rankscope.diag.classify.blame import Finding, blame, calls, pair_evidence, victim_evidence
from rankscope.diag.classify.comparison import Site, parting_evidence, site
from rankscope.diag.classify.running import running
from rankscope.diag.classify.view import JobView, RankView, away_ranks, waiting_ranks
from rankscope.diag.classify.wording import KIND_WORDS, join, name_ranks, verb, wait_phrase
from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.model import Confidence, Evidence, Frame

_MANY: Final = 3  # two ranks at one line may be there by chance


def beside_a_shared_lock(job: JobView) -> Finding | None:
    """Row 8. Ranks wait for a file's lock and nobody for ranks: one of those elsewhere may hold it."""
    if waiting_ranks(job) or job.unseen:
        return None
    away = away_ranks(job)
    locked = [view for view in away if _lock_of(job, view) is not None]
    rest = [view for view in away if view not in locked]
    if not locked or not rest or len(rest) > len(locked) or any(view.gone for view in job.ranks):
        return None
    under = [view for view in rest if _is_under(job, view, locked)]
    at_most: Confidence = "medium" if under else "low"
    held = under or rest
    ranks = [view.rank for view in locked]
    text = f"{name_ranks(ranks)} {verb(ranks, 'waits', 'wait')} for a file lock"
    if under:
        text += f"; {name_ranks(view.rank for view in under)} went past it in the same function"
    return blame(job, held, locked, rule="8", at_most=at_most, evidence=[Evidence("stacks", text)])


def _lock_of(job: JobView, view: RankView) -> Frame | None:
    """The innermost frame that calls a lock on a file, ``None`` for a rank in none.

    Locks of Python's own are one process's; they are plumbing.
    """
    position = view.position
    if position is None or position.label != "lock":
        return None
    frames = [frame for frame in position.thread.frames if frame.kind == "python"]
    in_lock = [
        at
        for at, frame in enumerate(frames)
        if job.catalogue.label(frame) == "lock" and not job.catalogue.is_plumbing(frame)
    ]
    if not in_lock or in_lock[-1] + 1 >= len(frames):
        return None
    return frames[in_lock[-1] + 1]


def _is_under(job: JobView, view: RankView, locked: Sequence[RankView]) -> bool:
    """Whether it is inside of the function that the others call the lock from."""
    callers = {_name(frame) for one in locked if (frame := _lock_of(job, one)) is not None}
    frames = view.position.thread.frames if view.position is not None else ()
    return any(_name(frame) in callers for frame in frames)


def apart_from_most(job: JobView) -> Finding | None:
    """Row 8. Most ranks run one and the same line of the user's: they may wait there for who is elsewhere."""
    many = _at_one_line(job)
    apart = [view for view in (*away_ranks(job), *waiting_ranks(job)) if view not in many]
    if len(many) < _MANY or not apart or len(apart) * 2 >= len(many) or job.unseen:
        return None
    place = many[0].position.place if many[0].position is not None else ""
    ranks = name_ranks(view.rank for view in many)
    evidence = [
        Evidence("stacks", f"{ranks} are all at {place}: a wait for the GPU, as in .item(), leaves no frame")
    ]
    busy = [view for view in apart if view.waiting is None and _runs(job, view)]
    still = [view for view in apart if view.waiting is None and view not in busy]
    if busy:
        return None  # everybody computes, for all that can be seen
    if still:
        return blame(
            job, still, [*many, *(v for v in apart if v.waiting)], rule="8", at_most="low", evidence=evidence
        )
    return _elsewhere(job, apart, many, place=place, evidence=evidence)


def _elsewhere(
    job: JobView,
    apart: Sequence[RankView],
    many: Sequence[RankView],
    *,
    place: str,
    evidence: Sequence[Evidence],
) -> Finding:
    """Ranks in a wait of their own, beside many that may wait unseen: they may have gone another way."""
    causes = {view.rank: job.cause(view) for view in apart}
    return Finding(
        verdict="Unknown",
        kind="desync",
        severity="info",
        confidence="low",
        rule="8",
        summary="suspected, not confirmed: "
        + join(
            wait_phrase(calls(apart), for_whom=()),
            f"{name_ranks(view.rank for view in many)} are all at {place}, as where they wait for their GPUs",
            KIND_WORDS["desync"],
        ),
        culprits=tuple(causes),
        location=causes[apart[0].rank].location,
        evidence=(
            *victim_evidence(apart),
            *evidence,
            *parting_evidence(job, apart, many),
            *pair_evidence(job),
        ),
    )


def _at_one_line(job: JobView) -> list[RankView]:
    """The ranks that run the line that most run, if it is nothing but a line of the user's own."""
    places: dict[int, Site] = {
        view.rank: site(view) for view in away_ranks(job) if _is_a_plain_line(view) and _runs(job, view)
    }
    if not places:
        return []
    most = Counter(places.values()).most_common(1)[0][0]
    return [view for view in away_ranks(job) if places.get(view.rank) == most]


def _is_a_plain_line(view: RankView) -> bool:
    position = view.position
    if position is None or view.latest.facts is not None or view.moved or not position.thread.is_main:
        return False
    return position.user_frame is not None and position.leaf is position.user_frame and position.label is None


def _runs(job: JobView, view: RankView) -> bool:
    """Whether the tool saw it run: a wait for the GPU spins."""
    position = view.position
    if position is None or view.latest.facts is not None:
        return False
    seen = running(position, source=view.latest.source, catalogue=job.catalogue, source_line=job.source_line)
    return seen == "computes"


def _name(frame: Frame) -> tuple[str, str]:
    return bare_function(frame.function), frame.file.rpartition("/")[2]
