"""Gives what ranks say of themselves in logs its rank: by the file's name, by what stands before the lines.

Pure: facts, dumps and names in, facts with ranks out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from rankscope.diag.dumps.names import NameFacts
from rankscope.diag.dumps.numbers import numbered_on_nodes
from rankscope.diag.dumps.pieces import Piece, Source
from rankscope.diag.dumps.told import bare_channel
from rankscope.diag.read import LogFact

BY_CHANNEL: Final = "ranks are not named: taken from what stands before the lines"
_SPEAKERS: Final = frozenset(
    {
        "raised",
        "handled",
        "interrupted",
        "left",
        "crashed",
        "connection_closed",
        "wait_timeout",
        "watchdog_timeout",
        "watchdog_status",
        "watchdog_stuck",
    }
)
"""Facts that a rank says of itself: the log they stand in tells which."""
_OF_ONE: Final = frozenset({*_SPEAKERS, "failure", "root_failure"})
"""Facts that name one rank: behind a prefix with another number, that number is a node's or a launcher's."""
_TASK: Final = re.compile(r"\d{1,7}:|\[[\w.@-]{0,80},\d{1,7}\]:")
"""What ``srun --label`` and ``mpirun`` put before the lines of one task, without the stream's name."""
_TORCHS_OWN: Final = re.compile(r"\[rank\d{1,7}\]:")
_WORKER: Final = re.compile(r"\[[A-Za-z][\w.-]{0,63}\d\]:$")
_Lines = tuple[int, str]
"""Whose lines: index of their input, and what stands before them."""


def speakers_placed(
    said: Sequence[tuple[int, LogFact]],
    pieces: Sequence[Piece],
    spoken: Mapping[_Lines, int],
    notes: list[str],
) -> list[LogFact]:
    """What ranks say of themselves, with the rank of the dumps that stand behind the same prefix.

    In a file without such dumps, the numbers in the prefixes count (``spoken``).
    """
    told: dict[_Lines, set[int | None]] = defaultdict(set)
    for piece in pieces:
        if channel := bare_channel(piece.dump.channel):
            told[piece.source, channel].add(piece.rank)
    for at, fact in said:
        if fact.rank is not None and (worker := _worker_of(fact)):
            told[at, worker].add(fact.rank)
    known: dict[_Lines, int | None] = {
        key: next(iter(ranks)) for key, ranks in told.items() if len(ranks) == 1
    }
    known |= {key: rank for key, rank in spoken.items() if key not in told}
    if spoken and BY_CHANNEL not in notes:
        notes.append(BY_CHANNEL)
    return [
        replace(fact, rank=known.get((at, bare_channel(fact.channel))))
        if fact.rank is None and fact.kind in _SPEAKERS
        else fact
        for at, fact in said
    ]


def _worker_of(fact: LogFact) -> str:
    """The launcher's name of the worker (``[default4]:``) where it stands before torch's (``[rank12]:``).

    What libraries in C print has only the first of them.
    """
    outer = fact.channel.removesuffix(f"[rank{fact.rank}]:").rstrip()
    return bare_channel(outer) if outer != fact.channel and _WORKER.search(outer) else ""


def numbers_before_lines(
    said: Sequence[tuple[int, LogFact]],
    pieces: Sequence[Piece],
    sources: Sequence[Source],
    known: Collection[int],
) -> dict[_Lines, int]:
    """Ranks of those who speak in files without dumps, by the numbers before their lines.

    Each such file is read by its own prefixes, whatever the other files are. Empty where the lines themselves
    name other ranks than their prefixes do; numbers of pods and of ranks on a node are none where other
    evidence knows higher ranks, for a pod may hold several.

    Args:
        said: facts, those with a rank that is known carry it.
        pieces: all dumps.
        sources: every input.
        known: ranks that other evidence names.
    """
    with_dumps = {piece.source for piece in pieces if piece.dump.channel}
    keys: dict[_Lines, tuple[str, str]] = {}
    for at, fact in said:
        channel = bare_channel(fact.channel)
        if channel and at not in with_dumps and fact.rank is None and fact.kind in _SPEAKERS:
            keys[at, channel] = (sources[at].name.node or sources[at].shown, channel)
    numbers = numbered_on_nodes(set(keys.values()))
    found = {line: numbers[key] for line, key in keys.items() if key in numbers}
    for at, fact in said:
        bare = _TORCHS_OWN.sub("", bare_channel(fact.channel)).strip()
        if fact.kind in _OF_ONE and fact.rank not in (None, found.get((at, bare), fact.rank)):
            return {}
    are_tasks = all(_TASK.fullmatch(channel) for _, channel in found)
    return found if are_tasks or max(known, default=-1) <= max(found.values(), default=-1) else {}


def with_rank_of_name(fact: LogFact, name: NameFacts) -> LogFact:
    """What a rank says of itself in a file whose name tells the rank."""
    if fact.rank is None and name.rank is not None and fact.kind in _SPEAKERS:
        return replace(fact, rank=name.rank)
    return fact
