"""Snapshots of ours, read back: what ``diag snapshot`` wrote on each host, and incident folders.

The folders of several hosts hold parts of one job: the ranks of each host, and placeholders for those
elsewhere. Of one rank the newest look counts. It knows the files; what a snapshot means is not known here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.diag.dumps.gather import NO_DUMP
from rankscope.diag.errors import StoreError
from rankscope.diag.model import JobSnapshot, RankSnapshot
from rankscope.diag.store.incidents import IncidentFolder

Pair = tuple[JobSnapshot, JobSnapshot | None]
_NAMELESS: Final = re.compile(r"pid-\d+")
"""A job without a run id: its name is the process that launched it on that host."""
_FAR_APART: Final = 60.0
"""Seconds between hosts' snapshots from which on it is worth a word."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """The snapshots of one job from all folders.

    Attributes:
        pair: first and second look.
        notes: assumptions that were made, a line each.
    """

    pair: Pair
    notes: tuple[str, ...] = ()


def read_stored(folders: Sequence[Path]) -> tuple[tuple[StoredJob, ...], dict[str, str]]:
    """Read snapshot folders, and put those of one job together.

    Returns:
        The jobs by name, and a problem by the name of the file that could not be read. A folder without a
        readable first look gives its second as the only one.
    """
    pairs: list[Pair] = []
    problems: dict[str, str] = {}
    for folder in folders:
        looks = [look for which in "ab" if (look := _read(folder, which, problems)) is not None]
        if looks:
            pairs.append((looks[0], looks[1] if len(looks) > 1 else None))
    return tuple(_joined(parts) for parts in _by_job(pairs)), problems


def _read(folder: Path, which: str, problems: dict[str, str]) -> JobSnapshot | None:
    stored = IncidentFolder(folder)
    try:
        return stored.snapshot(which)
    except StoreError as error:
        problems[f"{folder.name}/{stored.snapshot_path(which).name}"] = str(error)
        return None


def _by_job(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs of one job together. Parts of a job without a run id share its size, and no rank."""
    by_name: dict[str, list[Pair]] = defaultdict(list)
    for pair in sorted(pairs, key=lambda pair: pair[0].time):
        name = pair[0].job
        if _NAMELESS.match(name) and name not in by_name:
            name = next((other for other, parts in by_name.items() if _may_join(pair, other, parts)), name)
        by_name[name].append(pair)
    return [by_name[name] for name in sorted(by_name)]


def _may_join(pair: Pair, name: str, parts: Sequence[Pair]) -> bool:
    own = _known_ranks(pair)
    return bool(_NAMELESS.match(name)) and all(
        part[0].world_size == pair[0].world_size and not own & _known_ranks(part) for part in parts
    )


def _known_ranks(pair: Pair) -> set[int]:
    return {rank.rank for rank in (pair[1] or pair[0]).ranks if _is_known(rank)}


def _is_known(rank: RankSnapshot) -> bool:
    """Whether it is more than a placeholder for a rank of another host."""
    return bool(rank.pid or rank.observed or rank.facts or rank.exit or rank.record or rank.progress)


def _joined(parts: Sequence[Pair]) -> StoredJob:
    """One pair of all parts, oldest first: of each rank the newest part that knows it."""
    job = parts[-1][0].job
    owner = {rank: at for at, part in enumerate(parts) for rank in _known_ranks(part)}
    used = [parts[at] for at in sorted(set(owner.values()))] or [parts[-1]]
    size = max((second or first).world_size for first, second in used)
    placeholders = {rank.rank: rank for _, rank in _all_ranks(parts)} if len(parts) == 1 else {}
    absent = {
        rank: placeholders.get(rank, RankSnapshot(rank=rank, observed=False, reason=NO_DUMP))
        for rank in range(size)
        if rank not in owner
    }
    first = {rank.rank: rank for at, rank in _all_ranks(parts, first=True) if owner.get(rank.rank) == at}
    last = {rank.rank: rank for at, rank in _all_ranks(parts) if owner.get(rank.rank) == at}
    notes: list[str] = []
    apart = max(pair[0].time for pair in used) - min(pair[0].time for pair in used)
    if apart >= _FAR_APART:
        notes.append(f"job {job}: its snapshots were taken up to {apart:.0f} s apart")
    if len(used) < len(parts):
        notes.append(f"job {job}: {len(parts) - len(used)} older snapshot(s) of the same ranks left out")
    newest = _snapshot(job, [second or first for first, second in used], {**absent, **last}, size)
    if all(second is None for _, second in used):
        return StoredJob((newest, None), tuple(notes))
    return StoredJob(
        (_snapshot(job, [part[0] for part in used], {**absent, **first}, size), newest), tuple(notes)
    )


def _all_ranks(parts: Sequence[Pair], *, first: bool = False) -> Iterator[tuple[int, RankSnapshot]]:
    """Every rank with the number of its part: of the last looks, or of the first ones that have a second."""
    for at, (one, other) in enumerate(parts):
        look = one if first else other or one
        if not first or other is not None:
            yield from ((at, rank) for rank in look.ranks)


def _snapshot(
    job: str, looks: Sequence[JobSnapshot], ranks: dict[int, RankSnapshot], size: int
) -> JobSnapshot:
    ordered = tuple(ranks[rank] for rank in sorted(ranks))
    return JobSnapshot(job, min(look.time for look in looks), size, ordered)
