"""Gives every dump, record and log line its rank.

Which rank a piece belongs to is told, in this order, by the prefix of its lines, by the name, by a process
number that something else gives a rank, by the titles of the processes, by bare numbers that all names have,
by the command line, by local variables, by what stands before the lines, and in the end by the order of the
process numbers, with a warning. This module is pure: it is given names and contents.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Final

from rankscope.diag.dumps.agents import agents_placed
from rankscope.diag.dumps.bystanders import forked, other_programs, with_orphans
from rankscope.diag.dumps.crashes import crashes_placed
from rankscope.diag.dumps.interrupted import without_doubles
from rankscope.diag.dumps.names import NameFacts, are_ranks, natural
from rankscope.diag.dumps.numbers import numbered_on_nodes
from rankscope.diag.dumps.pieces import Piece, Pieces, Process, Source, cut, process_of, with_folder_samples
from rankscope.diag.dumps.speakers import BY_CHANNEL, numbers_before_lines, speakers_placed, with_rank_of_name
from rankscope.diag.dumps.tasks import tasks_placed
from rankscope.diag.dumps.titles import no_ranks, numbered_by_titles, shown_title
from rankscope.diag.dumps.told import (
    bare_channel,
    is_launcher,
    parent_of,
    rank_in_title,
    rank_in_variables,
    runs_child_code,
)
from rankscope.diag.model import FlightRecord
from rankscope.diag.read import LogFact, StackDump

_ORDERED: Final = "ranks are not named anywhere: numbered in the order of the process numbers"
_ORDERED_CHANNELS: Final = (
    "ranks are not named anywhere: numbered in the order of what stands before the lines"
)
_ORDERED_FILES: Final = "ranks are not named anywhere: numbered in the order of the files"
_BY_TITLE: Final = "ranks are taken from the titles of their processes"
_LIKE_RANK: Final = re.compile(r"rank[ _.=-]?\d", re.IGNORECASE)
"""A name that seems to tell the rank, and does not (``tp_rank0``, a number that no job has)."""


def place(sources: Sequence[Source]) -> Pieces:
    """Give every dump, record and fact its rank.

    Args:
        sources: every input, with the ranks that their names together tell (``settled``).
    """
    notes: list[str] = []
    unplaced: Counter[str] = Counter()
    pieces = [piece for at, source in enumerate(sources) for piece in cut(at, source)]
    pieces, others = _without_servers(pieces)
    said = [
        (at, with_rank_of_name(fact, source.name))
        for at, source in enumerate(sources)
        for fact in source.contents.facts
    ]
    records = [(source.name, record) for source in sources for record in source.contents.records]

    ranks = _ranks_of_pids(pieces, [fact for _, fact in said])
    pieces = [
        replace(piece, rank=ranks[piece.dump.pid])
        if piece.rank is None and piece.dump.pid in ranks
        else piece
        for piece in pieces
    ]
    said = [
        (at, replace(fact, rank=ranks[fact.pid]) if fact.rank is None and fact.pid in ranks else fact)
        for at, fact in said
    ]
    written = {rank for source in sources for rank in source.contents.ranks}
    known = {piece.rank for piece in pieces} | {fact.rank for _, fact in said} | written
    said = agents_placed(said, ranks, {rank for rank in known if rank is not None})
    started = _started_by_ranks(pieces)
    pieces = _by_titles(pieces, started, notes)
    by_number = _bare_numbers(sources, pieces, records, notes)
    pieces = [_numbered(piece, by_number) for piece in pieces]
    by_rank = _place_records(records, by_number, notes, unplaced)
    named = {*by_rank, *(fact.rank for _, fact in said if fact.rank is not None)}
    spoken = numbers_before_lines(
        said, pieces, sources, named | {piece.rank for piece in pieces if piece.rank is not None}
    )
    is_guessed = _BY_TITLE in notes
    if all(piece.rank is None for piece in pieces):
        is_guessed = True
        pieces, started = _of_the_job(pieces, started, unplaced)
        least = max(spoken.values(), default=-1) + 1
        pieces = _without_names(pieces, started, notes, taken=bool(named), least=least)
    said = crashes_placed(said, pieces)
    said = tasks_placed(said, {one.rank for one in pieces if one.rank is not None and one.dump.threads})
    facts = speakers_placed(said, pieces, spoken, notes)
    pieces = with_orphans(_find_children(pieces, started), started, notes)
    for piece in pieces:
        if piece.rank is None:
            what = "launcher" if is_launcher(piece.dump) else "process"
            unplaced[f"stacks of a {what} that is no rank ({piece.dump.source})"] += 1
    placed = without_doubles([piece for piece in pieces if piece.rank is not None])
    return Pieces(
        tuple(with_folder_samples(placed)),
        by_rank,
        tuple(facts),
        tuple(notes),
        unplaced,
        others=tuple(piece.dump for piece in others),
        titles=_titles(placed) if is_guessed else {},
    )


def _without_servers(pieces: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
    """The dumps that may be of ranks, and those of processes that only serve them."""
    serving = no_ranks([piece.dump for piece in pieces])
    kept = [piece for piece, serves in zip(pieces, serving, strict=True) if not serves]
    return kept, [piece for piece, serves in zip(pieces, serving, strict=True) if serves]


def _of_the_job(
    pieces: list[Piece], started: list[bool], unplaced: Counter[str]
) -> tuple[list[Piece], list[bool]]:
    """The pieces without those of other programs than the ranks', and which of them ranks have started."""
    started = [one or other for one, other in zip(started, forked(pieces), strict=True)]
    programs = other_programs(pieces, started)
    for piece in pieces:
        if name := programs.get(process_of(piece)):
            unplaced[f"stacks of another program than the ranks': {name} ({piece.dump.source})"] += 1
    stay = [process_of(piece) not in programs for piece in pieces]
    return list(compress(pieces, stay)), list(compress(started, stay))


def _by_titles(pieces: list[Piece], started: Sequence[bool], notes: list[str]) -> list[Piece]:
    """Ranks of processes that no name and no prefix tells, by the place in the job that their titles tell."""
    candidates = [
        piece
        for piece, is_started in zip(pieces, started, strict=True)
        if not is_started and not is_launcher(piece.dump)
    ]
    if any(piece.rank is not None for piece in pieces):
        return pieces
    number = numbered_by_titles({process_of(piece): piece.dump.title for piece in candidates})
    if not number:
        return pieces
    notes.append(_BY_TITLE)
    ours = {id(piece) for piece in candidates}
    return [
        replace(piece, rank=number[process_of(piece)]) if id(piece) in ours else piece for piece in pieces
    ]


def _titles(placed: Sequence[Piece]) -> dict[int, str]:
    """The title and the number of the process that each rank is."""
    return {
        piece.rank: f"{title} (process {piece.dump.pid})" if piece.dump.pid else title
        for piece in placed
        if piece.rank is not None and not piece.is_child and (title := shown_title(piece.dump))
    }


def _ranks_of_pids(pieces: Sequence[Piece], facts: Sequence[LogFact]) -> dict[int, int]:
    """Ranks of process numbers, where everything that names both agrees."""
    told: dict[int, set[int]] = defaultdict(set)
    for fact in facts:
        if fact.pid and fact.rank is not None:
            told[fact.pid].add(fact.rank)
    for piece in pieces:
        if piece.dump.pid and piece.rank is not None and not piece.is_child:
            told[piece.dump.pid].add(piece.rank)
    return {pid: next(iter(ranks)) for pid, ranks in told.items() if len(ranks) == 1}


def _bare_numbers(
    sources: Sequence[Source],
    pieces: Sequence[Piece],
    records: Sequence[tuple[NameFacts, FlightRecord]],
    notes: list[str],
) -> dict[tuple[str, ...], int]:
    """Ranks of files by a bare number in their names, where every file without a rank has one.

    A number that is the process's own, and numbers of files that show one process, are no ranks.
    """
    nameless = {_key(piece.name): piece.name for piece in pieces if piece.rank is None}
    nameless |= {_key(name): name for name, record in records if name.rank is None and record.rank is None}
    for source in sources:
        has_nothing = not (source.contents.dumps or source.contents.records or source.contents.facts)
        if has_nothing and source.name.rank is None and source.name.bare is not None and source.name.tool:
            nameless[_key(source.name)] = source.name  # an empty dump is a rank without a stack
    if any(source.name.rank is not None for source in sources):
        return {}
    if not are_ranks([name.bare for name in nameless.values()]):
        return {}
    if not _are_of_one_process_each([piece for piece in pieces if piece.rank is None]):
        return {}
    first = min(nameless.values(), key=lambda name: name.bare or 0)
    notes.append(f"ranks are taken from the numbers in the names: {first.name} is rank {first.bare}")
    return {key: name.bare for key, name in nameless.items() if name.bare is not None}


def _are_of_one_process_each(pieces: Sequence[Piece]) -> bool:
    """Whether no two processes share a bare number, no process has two, and none is the process's own."""
    numbers: dict[int, set[int]] = defaultdict(set)
    owners: dict[tuple[object, ...], set[int | str]] = defaultdict(set)
    for piece in pieces:
        dump, bare = piece.dump, piece.name.bare
        if bare is None or not dump.threads or is_launcher(dump):
            continue
        if dump.pid:
            numbers[dump.pid].add(bare)
        if not runs_child_code(dump):
            tool = "" if dump.pid else f"{dump.source} {dump.is_native} {dump.has_variables}"
            owners[bare, tool].add(dump.pid or "/".join(_key(piece.name)))
    return all(len(of) == 1 for of in owners.values()) and all(
        len(of) == 1 and pid not in of for pid, of in numbers.items()
    )


def _key(name: NameFacts) -> tuple[str, ...]:
    return (*name.folder, name.name)


def _numbered(piece: Piece, by_number: Mapping[tuple[str, ...], int]) -> Piece:
    rank = by_number.get(_key(piece.name))
    return replace(piece, rank=rank) if piece.rank is None and rank is not None else piece


def _place_records(
    records: Sequence[tuple[NameFacts, FlightRecord]],
    by_number: Mapping[tuple[str, ...], int],
    notes: list[str],
    unplaced: Counter[str],
) -> dict[int, tuple[tuple[NameFacts, FlightRecord], ...]]:
    found: dict[int, list[tuple[NameFacts, FlightRecord]]] = defaultdict(list)
    nameless: list[tuple[NameFacts, FlightRecord]] = []
    for name, record in records:
        rank = name.rank
        if rank is None:
            rank = record.rank if record.rank is not None else by_number.get(_key(name))
        if rank is None:
            nameless.append((name, record))
        else:
            found[rank].append((name, record))
    if nameless and not found:
        for rank, one in enumerate(nameless):
            found[rank].append(one)
        notes.append(_ORDERED_FILES)
    elif nameless:
        unplaced["flight record of an unknown rank"] += len(nameless)
    return {rank: tuple(found[rank]) for rank in sorted(found)}


def _without_names(
    pieces: list[Piece], started: list[bool], notes: list[str], *, taken: bool, least: int
) -> list[Piece]:
    """Ranks of processes that no name and no prefix tells.

    Args:
        pieces: all dumps.
        started: of each, whether a rank started it.
        notes: told what was assumed.
        taken: whether other evidence has ranks of its own.
        least: how many ranks the prefixes of a log tell of; fewer processes are not all of the job, so that
            their order tells nothing.
    """
    candidates = [
        piece
        for piece, is_started in zip(pieces, started, strict=True)
        if not is_started and not is_launcher(piece.dump)
    ]
    processes = list(dict.fromkeys(process_of(piece) for piece in candidates))
    number = _numbers_told(candidates, processes, (rank_in_title, rank_in_variables))
    if not number and not taken:
        number = _numbers_of_channels(candidates, processes)
        if number:
            notes.append(BY_CHANNEL)
    if not number and not taken and len(processes) >= least:
        note = _in_order(processes, candidates)
        if len(processes) > 1 or any(_LIKE_RANK.search(piece.name.name) for piece in candidates):
            notes.append(note)
        number = {process: rank for rank, process in enumerate(processes)}
    return [
        piece if is_started or is_launcher(piece.dump) else replace(piece, rank=number.get(process_of(piece)))
        for piece, is_started in zip(pieces, started, strict=True)
    ]


def _in_order(processes: list[Process], candidates: Sequence[Piece]) -> str:
    """Put processes that nothing numbers into an order; the line that says which."""
    if all(piece.dump.pid for piece in candidates) and len({pid for pid, _, _ in processes}) > 1:
        processes.sort(key=lambda process: (process[0], natural(process[2])))
        return _ORDERED
    if all(piece.dump.channel for piece in candidates):
        processes.sort(key=lambda process: (process[1], natural(process[2])))
        return _ORDERED_CHANNELS
    return _ORDERED_FILES


def _numbers_of_channels(candidates: Sequence[Piece], processes: Sequence[Process]) -> dict[Process, int]:
    """Ranks by the numbers in what stands before the lines, on each node or in each file."""
    if not all(bare_channel(piece.dump.channel) for piece in candidates):
        return {}
    keys = {process_of(piece): _channel_key(piece) for piece in candidates}
    numbers = numbered_on_nodes(set(keys.values()))
    if len(numbers) != len(processes):
        return {}
    return {process: numbers[key] for process, key in keys.items()}


def _channel_key(piece: Piece) -> tuple[str, str]:
    return piece.name.node or "/".join(_key(piece.name)), bare_channel(piece.dump.channel)


def _numbers_told(
    candidates: Sequence[Piece],
    processes: Sequence[Process],
    tellers: Sequence[Callable[[StackDump], int | None]],
) -> dict[Process, int]:
    """Ranks that something in the dumps tells, where it gives every process one of its own."""
    for tell in tellers:
        told = {process_of(piece): rank for piece in candidates if (rank := tell(piece.dump)) is not None}
        if set(told) == set(processes) and len(set(told.values())) == len(told):
            return told
    return {}


def _started_by_ranks(pieces: Sequence[Piece]) -> list[bool]:
    """Of each piece, whether it is a process that a rank started: by name, by its parent, by what it runs."""
    parents = {piece.dump.pid for piece in pieces if piece.dump.pid and not is_launcher(piece.dump)}
    return [
        piece.is_child
        or (parent_of(piece.dump) in parents and parent_of(piece.dump) != piece.dump.pid)
        or runs_child_code(piece.dump)
        for piece in pieces
    ]


def _find_children(pieces: list[Piece], started: list[bool]) -> list[Piece]:
    """Of several processes in one rank's file, the rank itself is the one that none of them started.

    Where nothing tells, it is the first. Children found beside nameless ranks go to their parent.
    """
    ranks = {piece.dump.pid: piece.rank for piece in pieces if piece.dump.pid and piece.rank is not None}
    first: dict[tuple[int, int], int] = {}
    for piece, is_started in zip(pieces, started, strict=True):
        if piece.rank is not None and piece.dump.pid and not is_started and not is_launcher(piece.dump):
            first.setdefault((piece.source, piece.rank), piece.dump.pid)
    found: list[Piece] = []
    for piece, is_started in zip(pieces, started, strict=True):
        if piece.rank is None:
            parent = ranks.get(parent_of(piece.dump)) if is_started else None
            found.append(piece if parent is None else replace(piece, rank=parent, is_child=True))
            continue
        main = first.get((piece.source, piece.rank))
        if main is not None and is_launcher(piece.dump):
            found.append(replace(piece, rank=None))
        else:
            other = main is not None and piece.dump.pid not in (0, main)
            found.append(replace(piece, is_child=piece.is_child or is_started or other))
    return found
