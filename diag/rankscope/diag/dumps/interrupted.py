"""Tracebacks of ranks that were interrupted (Ctrl-C) are stacks of where they stood.

All ranks are interrupted at one time, so that their tracebacks together are a dump of the job. Loader workers
and launchers are interrupted as well. Only what a prefix or a name gives a rank is taken: in a log without
either, nobody knows whose traceback it is. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rankscope.diag.dumps.pieces import Piece, Source
from rankscope.diag.dumps.told import is_launcher, runs_child_code
from rankscope.diag.model import ThreadStack
from rankscope.diag.read import LogFact, StackDump


def with_tracebacks(source: Source, notes: list[str]) -> Source:
    """The input with the stack of each writer that was interrupted, the first one of its own."""
    stacks: dict[str, list[StackDump]] = defaultdict(list)
    for fact in source.contents.facts:
        if fact.kind == "interrupted" and fact.frames:
            dump = _stack(fact)
            if not (is_launcher(dump) or runs_child_code(dump)):
                stacks[fact.channel].append(dump)
    has_name = source.name.rank is not None or source.name.bare is not None
    known = [own[0] for channel, own in stacks.items() if channel or has_name]
    nameless = 0 if has_name else len(stacks.get("", ()))
    if nameless:
        notes.append(
            f"{source.shown}: {nameless} tracebacks of interrupted processes whose ranks are not told"
        )
    if not known:
        return source
    return replace(source, contents=replace(source.contents, dumps=(*source.contents.dumps, *known)))


def without_doubles(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces without tracebacks of ranks that a tool has looked at."""
    seen = {piece.rank for piece in pieces if piece.dump.threads and piece.dump.source != "traceback"}
    return [piece for piece in pieces if piece.dump.source != "traceback" or piece.rank not in seen]


def _stack(fact: LogFact) -> StackDump:
    main = ThreadStack(0, None, fact.frames, is_main=True)
    return StackDump("traceback", (main,), rank=fact.rank, line=fact.line, channel=fact.channel)
