"""Row 4 on the device: everyone called a collective, it runs on most devices and has not begun on others.

A NCCL collective runs on a rank's GPU when what was queued there before is done, and ends when it runs on
all of them: who has not begun holds up those who have. Where the call itself has not returned, the rank is
inside of NCCL (a communicator is set up at the first collective of a group). Records tell the start only
where torch measures times (``TORCH_NCCL_ENABLE_TIMING``), and gloo's never do: no start counts as "not yet"
unless the same collective was seen to run on another rank. Source: torch's ``FlightRecorderDetail.hpp``
(2.13; a dump asks the device of each open entry).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.diag.classify.blame import Finding, calls, pair_evidence, victim_evidence
from rankscope.diag.classify.kinds import recorded_location
from rankscope.diag.classify.view import JobView, RankView, away_ranks
from rankscope.diag.classify.waits import OpenCollective
from rankscope.diag.classify.wording import join, name_ranks, verb, wait_phrase
from rankscope.diag.model import Collective, Evidence


@dataclass(frozen=True, slots=True)
class _Held:
    """A collective that everyone called and that does not run everywhere.

    Attributes:
        behind: the ranks that hold it up.
        begun: those on whose devices it runs.
    """

    one: OpenCollective
    behind: tuple[RankView, ...]
    begun: tuple[RankView, ...]

    @property
    def is_inside(self) -> bool:
        """Whether the calls of those who hold it up have not returned."""
        return all(_is_inside(view, self.one) for view in self.behind)


def not_begun_on_the_device(job: JobView) -> Finding | None:
    """Row 4. Fires where no number shows a rank missing, and fewer have not begun than have."""
    if job.entered_new or job.waits.edges or job.peers or away_ranks(job):
        return None
    if any(view.gone or view.frozen for view in job.ranks):
        return None
    held = next((found for one in job.waits.open if (found := _held(job, one)) is not None), None)
    return _finding(job, held) if held is not None else None


def _held(job: JobView, one: OpenCollective) -> _Held | None:
    if one.absent or one.done or not one.complete:
        return None
    recorded = job.told.entries.get(one.key, {})
    entries = {rank: recorded.get(rank, {}).get(one.seq) for rank in one.waiting}
    begun = job.of(rank for rank, entry in entries.items() if entry is not None and entry.is_started)
    queued = job.of(
        rank for rank, entry in entries.items() if entry is not None and entry.is_started is False
    )
    # Who is in something older is held up by that.
    behind = tuple(view for view in queued if view.inside is entries[view.rank])
    if not behind or len(behind) < len(queued) or len(behind) > len(begun):
        return None
    return _Held(one, behind, begun)


def _is_inside(view: RankView, called: OpenCollective) -> bool:
    groups = view.latest.record.groups if view.latest.record is not None else ()
    return any((one.name, one.inside) == (called.key[0], called.seq) for one in groups)


def _finding(job: JobView, held: _Held) -> Finding:
    ranks = tuple(view.rank for view in held.behind)
    waiting = [view for view in job.ranks if view.waits and view.rank not in ranks]
    open_calls: Sequence[Collective] = [view.inside for view in held.behind if view.inside is not None]
    places = [
        recorded_location(call, rank, job.catalogue) for rank, call in zip(ranks, open_calls, strict=True)
    ]
    behind, begun = _how_far(held, open_calls[0].op), name_ranks(view.rank for view in held.begun)
    return Finding(
        verdict="RankCommHang" if held.is_inside else "RankNonCommHang",
        kind="network" if held.is_inside else "none",
        severity="error" if held.is_inside else "warning",
        confidence="medium" if job.numbered_twice else "low",
        rule="4",
        summary=join(
            f"{name_ranks(ranks)} {behind}",
            f"{wait_phrase(calls(waiting), for_whom=ranks)}, which runs there",
        ),
        culprits=ranks,
        victims=dict.fromkeys((view.rank for view in waiting), ranks),
        location=next((place for place in places if place is not None), None),
        evidence=(
            Evidence("flight record", f"{name_ranks(ranks)} {behind}, it runs on {begun}"),
            *victim_evidence(waiting),
            *pair_evidence(job),
        ),
    )


def _how_far(held: _Held, op: str) -> str:
    one, ranks = held.one, [view.rank for view in held.behind]
    which = f"{op}, collective {one.seq} of group {one.group}"
    if held.is_inside:
        first = ", which sets up a communicator" if one.seq == 1 else ""
        return f"{verb(ranks, 'is', 'are')} still inside of the call of {which}{first}"
    whose = verb(ranks, "its GPU has", "their GPUs have")
    called = f"{verb(ranks, 'has', 'have')} called {which}"
    return f"{called}, and {whose} not begun it (earlier work there does not end)"
