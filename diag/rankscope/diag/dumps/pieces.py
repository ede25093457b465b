"""What was read from all inputs, cut into pieces of one process each. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rankscope.diag.dumps.names import NameFacts, natural
from rankscope.diag.dumps.told import bare_channel
from rankscope.diag.model import FlightRecord
from rankscope.diag.read import Contents, LogFact, StackDump

Process = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Source:
    """One input and what was read from it.

    Attributes:
        shown: how messages name it.
        name: what its name says.
        contents: what was found in it.
    """

    shown: str
    name: NameFacts
    contents: Contents


@dataclass(frozen=True, slots=True)
class Piece:
    """One dump of one process.

    Attributes:
        source: index of its input.
        order: its place among that input's dumps of the same process, tool and sort.
        rank: the rank it belongs to, ``None`` while unknown.
        is_child: whether it is a child process of that rank.
        sample: which look it belongs to, ``None`` when nothing says so.
    """

    source: int
    order: int
    dump: StackDump
    name: NameFacts
    rank: int | None = None
    is_child: bool = False
    sample: int | None = None


@dataclass(frozen=True, slots=True)
class Pieces:
    """All pieces with a rank, and what could not be placed.

    Attributes:
        dumps: those that belong to a rank.
        records: flight records by rank, with what the name of their file says, in order of the names.
        facts: log lines, those about a process with a known rank carry it.
        notes: one line for each assumption made.
        unplaced: what belongs to no rank, with how often.
        others: dumps of processes that are no ranks and serve them: engines, front ends, drivers.
        titles: of ranks that were numbered by a guess, what their processes are called.
    """

    dumps: tuple[Piece, ...]
    records: Mapping[int, tuple[tuple[NameFacts, FlightRecord], ...]]
    facts: tuple[LogFact, ...]
    notes: tuple[str, ...]
    unplaced: Mapping[str, int]
    others: tuple[StackDump, ...] = ()
    titles: Mapping[int, str] = field(default_factory=dict[int, str])


def cut(at: int, source: Source) -> list[Piece]:
    """A source's dumps; the k-th of one process by one tool is its k-th look."""
    seen: Counter[tuple[object, ...]] = Counter()
    found: list[Piece] = []
    for dump in source.contents.dumps:
        rank = dump.rank if dump.rank is not None else source.name.rank
        ids = dump.pid or tuple(thread.thread_id for thread in dump.threads if thread.is_main)
        key = (rank, ids, dump.channel, dump.source, dump.is_native, dump.has_variables, bool(dump.threads))
        found.append(
            Piece(at, seen[key], dump, source.name, rank, bool(source.name.child), source.name.sample)
        )
        seen[key] += 1
    return found


def process_of(piece: Piece) -> Process:
    """What tells the process from others: its number, else its input and whose lines or main thread it is."""
    dump = piece.dump
    if dump.pid:  # containers count their processes from 1: one number, several processes
        return dump.pid, 0, f"{piece.name.node} {bare_channel(dump.channel)}".strip()
    main = next((thread.thread_id for thread in dump.threads if thread.is_main), 0)
    return 0, piece.source, dump.channel or str(main)


def with_folder_samples(pieces: list[Piece]) -> list[Piece]:
    """Files of one name and one process in several folders are looks, in order of the folders."""
    by_file: dict[tuple[object, ...], set[tuple[str, ...]]] = defaultdict(set)
    for piece in pieces:
        if piece.sample is None:
            by_file[piece.rank, piece.dump.pid, piece.name.name].add(piece.name.folder)
    found: list[Piece] = []
    for piece in pieces:
        folders = by_file.get((piece.rank, piece.dump.pid, piece.name.name), set())
        if piece.sample is None and len(folders) > 1:
            ordered = sorted(folders, key=lambda parts: natural("/".join(parts)))
            found.append(replace(piece, sample=ordered.index(piece.name.folder)))
        else:
            found.append(piece)
    return found
