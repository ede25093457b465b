"""All evidence that dumps and logs hold of one job, put together as snapshots.

One rank may come with files of several tools, with several looks, with children, a flight record and a
log. Looks of one process in order of time make the pair (first and last) and the samples between. Nothing is
invented: a rank that must exist and has no dump is there as unobserved, with the reason. Pure: names and
contents in, snapshots out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankscope.diag.dumps.attempts import newest_attempt
from rankscope.diag.dumps.ends import (
    completed,
    crashed,
    ends_that_count,
    exits,
    records_of,
    without_waits,
)
from rankscope.diag.dumps.interrupted import with_tracebacks
from rankscope.diag.dumps.name_ranks import settled
from rankscope.diag.dumps.names import NameFacts
from rankscope.diag.dumps.pieces import Piece, Pieces, Source
from rankscope.diag.dumps.placing import place
from rankscope.diag.dumps.source_texts import SourceTexts
from rankscope.diag.dumps.timelines import EMPTY, NO_STACK, timelines, trouble_of
from rankscope.diag.dumps.told import world_sizes
from rankscope.diag.model import ExitFacts, FlightRecord, JobSnapshot, RankSnapshot
from rankscope.diag.read import LogFact, StackDump
from rankscope.diag.read.vain_waits import waited_in_vain

MOST_RANKS: Final = 1 << 17
"""No job has more; a damaged number must not make a million rows."""
NO_DUMP: Final = "no dump of this rank was given"


@dataclass(frozen=True, slots=True)
class Gathered:
    """What dumps and logs say of a job.

    Attributes:
        snapshots: one a look, in order of time, at least one; the last is the newest.
        facts: what log lines say.
        notes: assumptions that were made, a line each.
        unplaced: what belongs to no rank or was left out, with how often.
        others: dumps of processes that are no ranks and serve them.
        titles: of ranks that were numbered by a guess, what their processes are called.
    """

    snapshots: tuple[JobSnapshot, ...]
    facts: tuple[LogFact, ...]
    notes: tuple[str, ...]
    unplaced: Mapping[str, int]
    others: tuple[StackDump, ...] = ()
    titles: Mapping[int, str] = field(default_factory=dict[int, str])


def gather(sources: Sequence[Source], *, job: str = "", time: float = 0.0) -> Gathered:
    """Put together what was read.

    Args:
        sources: every input.
        job: name for the job.
        time: when it was, unix seconds.
    """
    notes: list[str] = []
    sources = [newest_attempt(source, notes) for source in settled(sources, notes)]
    pieces = place([with_tracebacks(source, notes) for source in sources])
    notes += pieces.notes
    unplaced = Counter(pieces.unplaced)
    texts = SourceTexts(piece.dump.threads for piece in pieces.dumps)
    looks = timelines(pieces.dumps, texts, unplaced)
    causes, vain = without_waits(exits(pieces.facts), waited_in_vain(pieces.facts))
    ends, later = ends_that_count(causes, _with_stacks(looks) - crashed(pieces.facts))
    notes += [note for note in (vain, later) if note]
    lines = records_of(pieces.facts)
    named = {source.name.rank for source in sources if source.name.rank is not None}
    written = {rank for source in sources for rank in source.contents.ranks}
    ranks = {*looks, *ends, *lines, *pieces.records, *named, *written}
    size = _world_size(ranks, pieces, looks)
    beyond = sum(not 0 <= rank < size for rank in ranks)
    if beyond:
        unplaced[f"ranks that no job has (beyond {MOST_RANKS})"] += beyond
    reasons = _reasons(sources, pieces)
    stories = {
        rank: _story(
            looks.get(rank, ()),
            reasons.get(rank, NO_DUMP),
            rank=rank,
            records=pieces.records.get(rank, ()),
            lines=lines.get(rank),
            end=ends.get(rank),
        )
        for rank in range(size)
    }
    snapshots = tuple(
        JobSnapshot(job=job, time=time, world_size=size, ranks=ranks_then)
        for ranks_then in _side_by_side(stories)
    )
    return Gathered(
        snapshots, pieces.facts, tuple(notes), unplaced, others=pieces.others, titles=pieces.titles
    )


def _with_stacks(looks: Mapping[int, Sequence[RankSnapshot]]) -> set[int]:
    return {rank for rank, taken in looks.items() if any(look.observed for look in taken)}


def _world_size(ranks: Iterable[int], pieces: Pieces, looks: Mapping[int, Sequence[RankSnapshot]]) -> int:
    """Ranks of the whole job: as the records, local variables and the highest rank tell."""
    sizes = {rank + 1 for rank in ranks}
    for of_rank in pieces.records.values():
        sizes |= {max(group.members) + 1 for _, record in of_rank for group in record.groups if group.members}
    for taken in looks.values():
        for look in taken:
            sizes |= world_sizes(look.threads)
    sizes |= {fact.rank + 1 for fact in pieces.facts if fact.rank is not None}
    return min(max(sizes, default=0), MOST_RANKS)


def _reasons(sources: Sequence[Source], pieces: Pieces) -> dict[int, str]:
    """Why there is no stack of a rank, of all that something was given of."""
    reasons = {fact.rank: NO_STACK for fact in pieces.facts if fact.rank is not None}
    for source in sources:
        if source.name.rank is not None:
            is_empty = not source.name.is_log and not source.contents.size_bytes
            if is_empty or reasons.get(source.name.rank) != EMPTY:
                reasons[source.name.rank] = EMPTY if is_empty else NO_STACK
    reasons.update(dict.fromkeys(pieces.records, NO_STACK))
    troubled: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces.dumps:
        if piece.rank is not None and not piece.is_child:
            troubled[piece.rank].append(piece)
    reasons.update((rank, trouble_of(own) or NO_STACK) for rank, own in troubled.items())
    return reasons


def _story(
    looks: Sequence[RankSnapshot],
    reason: str,
    *,
    rank: int,
    records: Sequence[tuple[NameFacts, FlightRecord]],
    lines: FlightRecord | None,
    end: ExitFacts | None,
) -> list[RankSnapshot]:
    """A rank's snapshots in order of time, at least one; record and end belong to the last.

    Several records of a rank over time are looks too, where there are no stacks or as many.
    """
    taken = _records_in_time(records)
    known = list(looks)
    if not known:
        bare = RankSnapshot(rank=rank, observed=False, reason=reason)
        known = [msgspec.structs.replace(bare, record=record) for record in taken] or [bare]
    elif len(taken) == len(known):
        known = [
            msgspec.structs.replace(one, record=record) for one, record in zip(known, taken, strict=True)
        ]
    last = known[-1]
    record = completed(taken[-1] if taken else None, lines)
    node = last.node or next((name.node for name, _ in records if name.node), "")
    known[-1] = msgspec.structs.replace(last, record=record, exit=end, node=node)
    return known


def _records_in_time(records: Sequence[tuple[NameFacts, FlightRecord]]) -> list[FlightRecord]:
    """One record a look: of several forms of one dump (JSON, pickle) the one that tells most."""
    looks: dict[tuple[bool, int], FlightRecord] = {}
    for name, record in records:
        look = (name.sample is not None, name.sample or 0)
        rival = looks.get(look)
        if rival is None or _tells(record) > _tells(rival):
            looks[look] = record
    return [looks[look] for look in sorted(looks)]


def _tells(record: FlightRecord) -> tuple[int, int, int]:
    framed = sum(bool(entry.frames) for entry in record.entries)
    members = sum(bool(group.members) for group in record.groups)
    return len(record.entries), framed, members


def _side_by_side(stories: Mapping[int, Sequence[RankSnapshot]]) -> list[tuple[RankSnapshot, ...]]:
    """Looks of all ranks together; the last look of each stands in the newest.

    A rank with fewer looks than another is missing from the earliest: nothing is known of it then.
    """
    most = max((len(story) for story in stories.values()), default=0)
    found = [
        tuple(
            story[back - most + len(story)]
            for _, story in sorted(stories.items())
            if back >= most - len(story)
        )
        for back in range(most)
    ]
    return found or [()]
