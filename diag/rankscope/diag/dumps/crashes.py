"""Whose crash ``faulthandler`` wrote down, and where it was: the dump right behind its header tells. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from rankscope.diag.dumps.pieces import Piece
from rankscope.diag.dumps.told import runs_child_code
from rankscope.diag.model import Frame, ThreadStack
from rankscope.diag.read import LogFact
from rankscope.diag.read.log_tracebacks import is_library

_NEAR: Final = 8  # lines between the header and its first thread; Python's state and a blank one, as a rule


def crashes_placed(said: Sequence[tuple[int, LogFact]], pieces: Sequence[Piece]) -> list[tuple[int, LogFact]]:
    """The facts, crashes with the rank and the place of their dump; that of a child process ends no rank.

    Args:
        said: facts with the index of their input.
        pieces: dumps, with their ranks.
    """
    if not any(fact.kind == "crashed" for _, fact in said):
        return list(said)
    by_input: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces:
        by_input[piece.source].append(piece)
    return [
        (at, _placed(fact, by_input[at]) if fact.kind == "crashed" and at in by_input else fact)
        for at, fact in said
    ]


def _placed(fact: LogFact, pieces: Sequence[Piece]) -> LogFact:
    behind = [piece for piece in pieces if 0 < piece.dump.line - fact.line <= _NEAR]
    piece = min(behind, key=lambda one: one.dump.line, default=None)
    if piece is None or fact.exit is None:
        return fact
    if piece.is_child or runs_child_code(piece.dump):
        return replace(fact, rank=piece.rank, kind="child_crashed", exit=None)
    frame = _place(piece.dump.threads)
    end = msgspec.structs.replace(fact.exit, frame=frame)
    return replace(fact, rank=piece.rank if fact.rank is None else fact.rank, exit=end)


def _place(threads: Sequence[ThreadStack]) -> Frame | None:
    """The user's innermost frame of the main thread."""
    main = next((thread for thread in threads if thread.is_main), None)
    frames = main.frames if main is not None else ()
    return next((frame for frame in frames if not is_library(frame.file)), None)
