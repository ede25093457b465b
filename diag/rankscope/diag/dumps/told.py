"""What a dump itself tells of its process: a launcher, a child of a rank, which rank, how many there are.

Pure: one dump in, a word or a number out. It knows no names of files and no other dumps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.model import ThreadStack
from rankscope.diag.ranks import MAX_RANKS
from rankscope.diag.read import StackDump

_TITLE_RANK: Final = re.compile(r"--(?:local[-_])?rank[= ](\d{1,7})(?!\d)")
_STREAMS: Final = re.compile(r"(?<![\w-])(?:stdout|stderr|json)(?![\w-])|<std(?:out|err|diag)>")
_PIDS: Final = re.compile(r"\[\d{1,9}\](?=:)|\bpid=\d{1,9}")
_LAUNCHER_TITLE: Final = re.compile(r"torchrun\b|torch\.distributed\.(?:run|launch)\b|-m rankscope\.agent\b")
_LAUNCHER_FRAMES: Final = frozenset({"launch_agent", "_invoke_run", "_monitor_workers"})
_CHILD_FRAMES: Final = frozenset({"_worker_loop"})
_CHILD_FILES: Final = ("multiprocessing/resource_tracker.py", "multiprocessing/forkserver.py",
                       "_inductor/compile_worker/", "_inductor/runtime/compile_tasks.py")  # fmt: skip
_RANK_NAMES: Final = frozenset({"rank", "global_rank", "RANK"})
_SIZE_NAMES: Final = frozenset({"world_size", "WORLD_SIZE"})


def is_launcher(dump: StackDump) -> bool:
    """Whether a dump is torchrun's agent: it launched the ranks and is none."""
    if _LAUNCHER_TITLE.search(dump.title):
        return True
    return any(
        bare_function(frame.function) in _LAUNCHER_FRAMES and "distributed/" in frame.file
        for thread in dump.threads
        for frame in thread.frames
    )


def runs_child_code(dump: StackDump) -> bool:
    """Whether its main thread runs what only child processes run: a loader worker, a compiler."""
    return any(
        bare_function(frame.function) in _CHILD_FRAMES or any(part in frame.file for part in _CHILD_FILES)
        for thread in dump.threads
        if thread.is_main
        for frame in thread.frames
    )


def rank_in_title(dump: StackDump) -> int | None:
    """The rank that its command line names (``--local-rank=3``)."""
    found = _TITLE_RANK.search(dump.title)
    return int(found[1]) if found and int(found[1]) < MAX_RANKS else None


def rank_in_variables(dump: StackDump) -> int | None:
    """The rank that all its local variables of that name agree on."""
    told = set(_variables(dump.threads, _RANK_NAMES))
    return told.pop() if len(told) == 1 else None


def bare_channel(channel: str) -> str:
    """What stands before lines, without the stream's name and process numbers: whose lines they are."""
    return " ".join(_PIDS.sub("", _STREAMS.sub("", channel)).split())


def world_sizes(threads: Iterable[ThreadStack]) -> set[int]:
    """World sizes that local variables tell."""
    return set(_variables(threads, _SIZE_NAMES))


def _variables(threads: Iterable[ThreadStack], names: frozenset[str]) -> Iterator[int]:
    for thread in threads:
        for frame in thread.variables:
            for name, value in frame.values:
                if name in names and value.isascii() and value.isdigit() and int(value[:9]) < MAX_RANKS:
                    yield int(value[:9])
