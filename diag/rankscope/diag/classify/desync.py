"""Row 3: members of one group called different collectives under one number.

Source: DIAGNOSIS.md, "Naming the culprit". The numbers are those of flight records; what must be equal is
said in ``demands``. The order of the ranks decides nothing: the minority is named, a tie names both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankscope.diag.classify.blame import Finding, pair_evidence, unseen_phrase
from rankscope.diag.classify.comparison import parting_evidence
from rankscope.diag.classify.demands import Signature, describe, differ, signature
from rankscope.diag.classify.kinds import recorded_location
from rankscope.diag.classify.records import GroupKey, group_name
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.wording import KIND_WORDS, join, name_ranks
from rankscope.diag.model import Collective, Confidence, Evidence, Location


@dataclass(frozen=True, slots=True)
class _Split:
    """One number under which members called different things.

    Attributes:
        sides: the ranks of each different call, most ranks first, then by the lowest rank.
        calls: what each rank called.
    """

    seq: int
    sides: tuple[tuple[int, ...], ...]
    calls: Mapping[int, Collective]

    @property
    def is_tie(self) -> bool:
        """Whether no side is larger than all others."""
        return len(self.sides[0]) == len(self.sides[1])

    @property
    def odd(self) -> tuple[int, ...]:
        """The minority, or every side of a tie."""
        sides = self.sides if self.is_tie else self.sides[1:]
        return tuple(sorted(rank for side in sides for rank in side))


def different_collectives(job: JobView) -> Finding | None:
    """Row 3. Fires where somebody is blocked in the group: what all members left behind was legal."""
    if job.entered_new:
        return None
    blocked = {one.key for one in job.waits.open}
    splits = [
        (_began(split), key, split)
        for key in sorted(blocked)
        if (split := _first_split(job.told.entries.get(key, {}), after=_left_behind(job, key))) is not None
    ]
    if not splits:
        return None
    _, key, split = min(splits, key=lambda one: one[:2])
    of_group = f" of group {job.told.title(key)}" if group_name(key) != "?" else ""
    group = f"collective {split.seq}{of_group}"
    sides = [f"{name_ranks(side)} called {describe(split.calls[side[0]])}" for side in split.sides]
    waiting = [
        view.rank
        for view in job.ranks
        if view.rank not in split.odd and (view.waits or view.rank in job.waits.edges)
    ]
    confidence: Confidence = "high" if job.paired and job.rhythm_known and not job.unseen else "medium"
    if split.is_tie:
        confidence = "low"
    odd = split.odd
    places = [_place(job, rank, split.calls[rank]) for rank in odd]
    return Finding(
        verdict="RankNonCommHang",
        kind="desync",
        severity="warning",
        confidence=confidence,
        rule="3",
        summary=join(
            "a tie: " * split.is_tie + f"as {group} " + "; ".join(reversed(sides)),
            KIND_WORDS["desync"],
            unseen_phrase(job),
        ),
        culprits=odd,
        victims=dict.fromkeys(waiting, odd),
        location=next((place for place in places if place is not None), None),
        evidence=(
            *(Evidence(job.told_by(split.calls), f"{side}, as {group}") for side in sides),
            *parting_evidence(job, job.of(odd), job.of(waiting)),
            *pair_evidence(job),
        ),
        is_tie=split.is_tie,
    )


def _place(job: JobView, rank: int, call: Collective) -> Location | None:
    """Where the call was made; gloo's records do not tell, but the rank's stack is at it, or near."""
    recorded = recorded_location(call, rank, job.catalogue)
    if recorded is not None:
        return recorded
    return next((job.cause(view).location for view in job.of((rank,)) if view.seen), None)


def _left_behind(job: JobView, key: GroupKey) -> int:
    """The last collective of a group that every member who is seen has ended."""
    return min((one.completed for one in job.told.groups.get(key, {}).values()), default=-1)


def _first_split(members: Mapping[int, Mapping[int, Collective]], *, after: int = -1) -> _Split | None:
    """The lowest number of one group under which the records of its members differ.

    Args:
        members: the recorded calls of each member, by number.
        after: numbers up to this one are not compared.

    Returns:
        ``None`` when all agree. The group is left for the caller to say.
    """
    by_seq: dict[int, dict[int, Collective]] = {}
    for rank, calls in members.items():
        for seq, call in calls.items():
            if seq > after:
                by_seq.setdefault(seq, {})[rank] = call
    for seq in sorted(by_seq):
        sides = _sides({rank: signature(call) for rank, call in by_seq[seq].items()})
        if len(sides) > 1:
            return _Split(seq, sides, by_seq[seq])
    return None


def _sides(signatures: Mapping[int, Signature]) -> tuple[tuple[int, ...], ...]:
    """Ranks by what they called; a call that recorded no sizes joins the only side it fits, or none."""
    sides: dict[Signature, list[int]] = {}
    for rank in sorted(signatures):
        sides.setdefault(signatures[rank], []).append(rank)
    for bare in [one for one in sides if not one[1]]:
        fitting = [one for one in sides if one != bare and not differ(one, bare)]
        if fitting:
            ranks = sides.pop(bare)
            if len(fitting) == 1:
                sides[fitting[0]].extend(ranks)
    return tuple(tuple(sorted(ranks)) for ranks in sorted(sides.values(), key=_by_size))


def _by_size(ranks: Sequence[int]) -> tuple[int, int]:
    return -len(ranks), min(ranks)


def _began(split: _Split) -> int:
    return min(call.created_ns for call in split.calls.values())
