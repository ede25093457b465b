"""The looks at one process in order of time, each with what several tools and its children show. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from rankscope.diag.dumps.names import time_of
from rankscope.diag.dumps.overlay import Layer, overlay
from rankscope.diag.dumps.pieces import Piece
from rankscope.diag.dumps.source_texts import SourceTexts
from rankscope.diag.model import ChildSnapshot, RankSnapshot

NO_STACK: Final = "no stack of this rank was given"
EMPTY: Final = "its dump is empty"
_Look = tuple[int, int, int]


def timelines(
    pieces: Sequence[Piece], texts: SourceTexts, unplaced: Counter[str]
) -> dict[int, tuple[RankSnapshot, ...]]:
    """Of each rank its looks, as snapshots without record and end."""
    by_rank: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces:
        if piece.rank is not None:
            by_rank[piece.rank].append(piece)
    return {rank: _timeline(rank, own, texts, unplaced) for rank, own in sorted(by_rank.items())}


def _timeline(
    rank: int, pieces: Sequence[Piece], texts: SourceTexts, unplaced: Counter[str]
) -> tuple[RankSnapshot, ...]:
    own = [piece for piece in pieces if not piece.is_child]
    pid = _process(own)
    kept = [piece for piece in own if not pid or piece.dump.pid in (0, pid)]
    left_out = sum(bool(piece.dump.threads) for piece in own) - sum(bool(p.dump.threads) for p in kept)
    if left_out:
        unplaced[f"stacks of another process of rank {rank} (pid {pid} is judged)"] += left_out
    looks: dict[_Look, list[Piece]] = defaultdict(list)
    for piece in kept:
        if piece.dump.threads:
            looks[_look(piece)].append(piece)
    children = _children([piece for piece in pieces if piece.is_child], texts)
    node = next((piece.name.node for piece in pieces if piece.name.node), "")
    order = sorted(looks)
    elsewhere = tuple(child for look in sorted(children) if look not in looks for child in children[look])
    if elsewhere and not order:
        reason = trouble_of(own) if own else NO_STACK
        return (RankSnapshot(rank, node, observed=False, reason=reason, children=elsewhere),)
    return tuple(
        _snapshot(
            rank,
            pid,
            looks[look],
            texts,
            node=node,
            children=children.get(look, ()) + (elsewhere if look == order[-1] else ()),
        )
        for look in order
    )


def _process(pieces: Sequence[Piece]) -> int:
    """The process that most looks show, then most dumps, then the last one named; 0 when none is numbered."""
    looks: dict[int, set[_Look]] = defaultdict(set)
    dumps: Counter[int] = Counter()
    for piece in pieces:
        if piece.dump.pid and piece.dump.threads:
            looks[piece.dump.pid].add(_look(piece))
            dumps[piece.dump.pid] += 1
    order = {pid: at for at, pid in enumerate(looks)}
    return max(looks, key=lambda pid: (len(looks[pid]), dumps[pid], order[pid]), default=0)


def _look(piece: Piece) -> _Look:
    """Order of looks: those without a number first; dumps of one file follow each other."""
    return (0, 0, piece.order) if piece.sample is None else (1, piece.sample, piece.order)


def _snapshot(
    rank: int,
    pid: int,
    pieces: Sequence[Piece],
    texts: SourceTexts,
    *,
    node: str,
    children: tuple[ChildSnapshot, ...],
) -> RankSnapshot:
    source, threads = overlay([Layer(piece.dump, piece.name.is_torn) for piece in pieces])
    return RankSnapshot(
        rank=rank,
        node=node,
        pid=pid,
        time=max(time_of(piece.sample) for piece in pieces),
        observed=bool(threads),
        source=source,
        threads=texts.fill(threads),
        children=children,
    )


def _children(pieces: Sequence[Piece], texts: SourceTexts) -> dict[_Look, tuple[ChildSnapshot, ...]]:
    """Child processes of each look, by process number."""
    found: dict[_Look, dict[int, list[Piece]]] = defaultdict(lambda: defaultdict(list))
    for piece in pieces:
        found[_look(piece)][piece.name.child or piece.dump.pid].append(piece)
    return {
        look: tuple(
            ChildSnapshot(
                pid, None, texts.fill(overlay([Layer(one.dump) for one in own])[1]), trouble_of(own)
            )
            for pid, own in sorted(processes.items())
        )
        for look, processes in found.items()
    }


def trouble_of(pieces: Iterable[Piece]) -> str | None:
    """What a tool said that could not read the process, when no tool could."""
    told = list(pieces)
    if any(piece.dump.threads for piece in told):
        return None
    return next((f"{piece.dump.source}: {piece.dump.trouble}" for piece in told if piece.dump.trouble), EMPTY)
