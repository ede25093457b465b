"""Processes beside a job that are none of its ranks: what ``pgrep python`` finds on a node as well.

A tracker's service, a dashboard, a notebook's kernel: another program than that of the ranks. And the loader
workers of which nothing tells the parent. Pure: it is given dumps and answers which of them are meant.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rankscope.diag.dumps.pieces import Piece, Process, process_of
from rankscope.diag.dumps.told import (
    is_fetching,
    is_launcher,
    runs_child_code,
    waits_for_a_process,
    waits_for_its_loader,
    was_forked,
)
from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.read import StackDump

_PYTHON: Final = re.compile(r"(?:^|/)(?:python|pypy)[\d.]*t?$")
_WITH_VALUE: Final = frozenset({"-X", "-W", "--check-hash-based-pycs"})
_NUMBERS: Final = re.compile(r"\d+")
_COMMAND: Final = "-c"
_Test = Callable[[StackDump], bool]
_INSTALLED: Final = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3")


@dataclass(frozen=True, slots=True)
class Program:
    """What a process runs.

    Attributes:
        name: as a person calls it, its numbers left out of titles that a process gave itself.
        is_script: whether it is a file of Python's that may be the user's own.
    """

    name: str
    is_script: bool


def program_of(dump: StackDump) -> Program | None:
    """The program by the command line, else by the file that its main thread began in."""
    if dump.title:
        return _of_title(dump.title)
    main = next((thread for thread in dump.threads if thread.is_main), None)
    entry = next((frame for frame in reversed(main.frames) if frame.kind == "python"), None) if main else None
    if entry is None or bare_function(entry.function) != "<module>" or entry.file.startswith("<"):
        return None
    return _of_file(entry.file)


def _of_title(title: str) -> Program | None:
    first, *rest = title.split()
    if not _PYTHON.search(first):
        return Program(_NUMBERS.sub("#", first.rpartition("/")[2] or first), is_script=False)
    words = iter(rest)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif word == _COMMAND or word.startswith(_COMMAND):
            return None  # how a spawned rank begins, as does a one-line service
        elif word == "-m":
            return Program(f"-m {next(words, '')}", is_script=False)
        elif not word.startswith("-"):
            return _of_file(word)
    return None


def _of_file(path: str) -> Program:
    name = path.rpartition("/")[2]
    return Program(name, is_script=name.endswith(".py") and not _INSTALLED.search(path))


def other_programs(pieces: Sequence[Piece], started: Sequence[bool]) -> dict[Process, str]:
    """Processes that run another program than the ranks, with its name.

    The ranks' programs are those of the processes that are inside of ``torch.distributed``: without any,
    nothing is told apart. A script of its own is told apart where fewer processes run it and it does not use
    torch: two roles of one job may run two scripts. What shares the ranks' script is never another program.
    """
    dumps: dict[Process, list[StackDump]] = defaultdict(list)
    for piece, is_started in zip(pieces, started, strict=True):
        if piece.dump.threads and not is_started and not is_launcher(piece.dump):
            dumps[process_of(piece)].append(piece.dump)
    programs = {process: program_of(own[0]) for process, own in dumps.items()}
    inside = [process for process, own in dumps.items() if _has_file(own, "torch/distributed/")]
    of_ranks = {program for process in inside if (program := programs[process]) is not None}
    if not of_ranks or any(programs[process] is None for process in inside):
        return {}
    scripts = {program.name for program in of_ranks if program.is_script}
    running = list(programs.values())
    most = max(running.count(program) for program in of_ranks)
    return {
        process: program.name
        for process, program in programs.items()
        if program is not None
        and program not in of_ranks
        and process not in inside
        and not any(_has_file(dumps[process], f"/{script}") for script in scripts)
        and (
            not program.is_script
            or (running.count(program) < most and not _has_file(dumps[process], "torch/"))
        )
    }


def _has_file(dumps: Sequence[StackDump], part: str) -> bool:
    """Whether a frame of any thread is of a file whose path holds the part, whole names only."""
    part = part if part.startswith("/") else f"/{part}"
    return any(
        part in f"/{frame.file}" for dump in dumps for thread in dump.threads for frame in thread.frames
    )


def forked(pieces: Sequence[Piece]) -> list[bool]:
    """Of each piece, whether it is a child of a rank by how it began: in ``multiprocessing``, as no rank did.

    A checkpoint's writer is one. Ranks are known by being inside of ``torch.distributed``.
    """
    inside = [piece.dump for piece in pieces if _has_file([piece.dump], "torch/distributed/")]
    ranks = [dump for dump in inside if not is_launcher(dump)]
    if not ranks or any(was_forked(dump) for dump in ranks):
        return [False] * len(pieces)
    return [was_forked(piece.dump) for piece in pieces]


def with_orphans(pieces: Sequence[Piece], started: Sequence[bool], notes: list[str]) -> list[Piece]:
    """Children whose parent nothing tells, with the only rank that waits for such a one.

    A loader worker that fetches is of the rank that waits for its loader, another process of the rank that
    waits for the end of one. Where several ranks wait so, none of them is it for sure.
    """
    kinds: tuple[tuple[str, _Test, _Test], ...] = (
        ("loader workers at work", is_fetching, waits_for_its_loader),
        ("processes that a rank forked", _is_other_child, waits_for_a_process),
    )
    found = list(pieces)
    for words, is_child, waits in kinds:
        waiting = {
            piece.rank
            for piece, is_started in zip(found, started, strict=True)
            if piece.rank is not None and not is_started and not piece.is_child and waits(piece.dump)
        }
        orphans = [piece.rank is None and is_child(piece.dump) for piece in found]
        if len(waiting) == 1 and any(orphans):
            rank = waiting.pop()
            notes.append(f"{words} are taken as those of rank {rank}: only it waits for such a one")
            found = [
                replace(piece, rank=rank, is_child=True) if is_orphan else piece
                for piece, is_orphan in zip(found, orphans, strict=True)
            ]
    return found


def _is_other_child(dump: StackDump) -> bool:
    return was_forked(dump) and not runs_child_code(dump)
