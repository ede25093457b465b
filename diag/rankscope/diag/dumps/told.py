"""What a dump itself tells of its process: a launcher, a child of a rank, which rank, how many there are.

Pure: one dump in, a word or a number out. It knows no names of files and no other dumps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.model import Frame, ThreadStack
from rankscope.diag.ranks import MAX_RANKS
from rankscope.diag.read import StackDump

_TITLE_RANK: Final = re.compile(r"--(?:local[-_])?rank[= ](\d{1,7})(?!\d)")
_STREAMS: Final = re.compile(r"(?<![\w-])(?:stdout|stderr|json)(?![\w-])|<std(?:out|err|diag)>")
_PIDS: Final = re.compile(r"\[\d{1,9}\](?=:)|\bpid=\d{1,9}")
_LAUNCHER_TITLE: Final = re.compile(r"torchrun\b|torch\.distributed\.(?:run|launch)\b|-m rankscope\.agent\b")
_PARENT: Final = re.compile(r"--parent=(\d{1,9})(?!\d)")  # inductor's compile workers are told
_LOADER: Final = "torch/utils/data/dataloader.py"
_FETCHES: Final = "torch/utils/data/_utils/fetch.py"
_PROCESSES: Final = ("multiprocessing/process.py", "multiprocess/process.py")
_LOADER_WAITS: Final = frozenset({"_try_get_data", "_get_data", "_shutdown_workers"})
_LAUNCHER_FRAMES: Final = frozenset({"launch_agent", "_invoke_run", "_monitor_workers"})
_BEGINNINGS: Final = frozenset({"_bootstrap"})
_JOINS: Final = frozenset({"join"})
_SPAWN: Final = "torch/multiprocessing/spawn.py"
_CHILD_FRAMES: Final = frozenset({"_worker_loop"})
_CHILD_FILES: Final = ("multiprocessing/resource_tracker.py", "multiprocessing/forkserver.py",
                       "_inductor/compile_worker/", "_inductor/runtime/compile_tasks.py")  # fmt: skip
_RANK_NAMES: Final = frozenset({"rank", "global_rank", "RANK"})
_SIZE_NAMES: Final = frozenset({"world_size", "WORLD_SIZE"})


def is_launcher(dump: StackDump) -> bool:
    """Whether a dump is of who launched the ranks: torchrun's agent, the parent of ``mp.spawn``."""
    if _LAUNCHER_TITLE.search(dump.title):
        return True
    return any(
        (bare_function(frame.function) in _LAUNCHER_FRAMES and "distributed/" in frame.file)
        or (thread.is_main and bare_function(frame.function) == "join" and frame.file.endswith(_SPAWN))
        for thread in dump.threads
        for frame in thread.frames
    )


def parent_of(dump: StackDump) -> int:
    """The process that started it, by the dump or by its command line; 0 when neither tells."""
    told = _PARENT.search(dump.title) if not dump.parent else None
    return int(told[1]) if told else dump.parent


def waits_for_its_loader(dump: StackDump) -> bool:
    """Whether its main thread waits for what a loader worker is to bring."""
    return _main_has(dump, _LOADER_WAITS, (_LOADER,))


def is_fetching(dump: StackDump) -> bool:
    """Whether it is a loader worker that fetches, where one without work waits for the next index."""
    frames = _of_main(dump)
    return any(bare_function(frame.function) in _CHILD_FRAMES for frame in frames) and any(
        frame.file.endswith(_FETCHES) for frame in frames
    )


def was_forked(dump: StackDump) -> bool:
    """Whether its main thread began in ``multiprocessing``: a worker, a writer, or a spawned rank."""
    return _main_has(dump, _BEGINNINGS, _PROCESSES)


def waits_for_a_process(dump: StackDump) -> bool:
    """Whether its main thread waits for the end of a process that it started with ``multiprocessing``."""
    return _main_has(dump, _JOINS, _PROCESSES)


def _main_has(dump: StackDump, functions: frozenset[str], files: tuple[str, ...]) -> bool:
    return any(
        bare_function(frame.function) in functions and frame.file.endswith(files) for frame in _of_main(dump)
    )


def _of_main(dump: StackDump) -> list[Frame]:
    return [frame for thread in dump.threads if thread.is_main for frame in thread.frames]


def runs_child_code(dump: StackDump) -> bool:
    """Whether its main thread runs what only child processes run: a loader worker, a compiler."""
    return any(
        bare_function(frame.function) in _CHILD_FRAMES or any(part in frame.file for part in _CHILD_FILES)
        for frame in _of_main(dump)
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
