"""Which threads of a job's ranks decide where they stand: found out at the newest look, the same for all.

Mostly the main threads. Where a rank waits for others in a thread, its program runs there, and so does that
of the ranks that do not wait. Source: DIAGNOSIS.md, "Collecting" (the deciding thread). It judges nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.deciding import Reader, Root, program_root
from rankscope.diag.classify.position import Position, SourceLine
from rankscope.diag.model import RankSnapshot


def reader_of(ranks: Sequence[RankSnapshot], catalogue: Catalogue, source_line: SourceLine) -> Reader:
    """How to read the ranks of a job.

    Args:
        ranks: the job at its newest look.
        catalogue: what frames mean.
        source_line: text of a line of a file.
    """
    plain = Reader(catalogue, source_line)
    positions = [plain.position(rank) for rank in ranks]
    programs = _roots((one for one in positions if one is not None and one.waiting is not None), catalogue)
    if programs:
        return replace(plain, programs=programs)
    if not _in_one_place(positions):
        return plain
    others = (one for rank in ranks for one in plain.others(rank))
    beside = _roots((one for one in others if one.waiting == "communication"), catalogue)
    return replace(plain, programs=beside, main_tells=False) if beside else plain


def _roots(positions: Iterable[Position], catalogue: Catalogue) -> frozenset[Root]:
    """What their threads began in."""
    roots = (program_root(one, catalogue) for one in positions)
    return frozenset(root for root in roots if root is not None)


def _in_one_place(positions: Sequence[Position | None]) -> bool:
    """Whether the main threads of several ranks all stand in one function, in no wait for others."""
    return (
        len(positions) > 1
        and all(one is None or one.waiting is None for one in positions)
        and len({one.path if one is not None else None for one in positions}) == 1
    )
