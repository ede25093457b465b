"""Which rank a stack says that its process is: from the variables of its outermost frames.

Pure: a main thread with its variables in, numbers out. ``mp.spawn(train, ...)`` calls ``train(rank, ...)``
through torch's ``_wrap(fn, i, args, ...)``, and these frames stand on the stack as long as the process
trains, whatever it does just then. It must not know of processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rankscope.diag.model import Frame, ThreadStack

_RANK_NAMES: Final = ("rank", "global_rank")
_SIZE_NAMES: Final = ("world_size",)
_MOST_DIGITS: Final = 7
_WRAP: Final = ("torch/multiprocessing/spawn.py", "torch/distributed/elastic/multiprocessing/api.py")
_RUN: Final = "multiprocessing/process.py"
_INDEX_NAMES: Final = ("i", "local_rank")


@dataclass(frozen=True, slots=True)
class StackRank:
    """What the variables of a stack say; ``None`` for what they do not.

    Attributes:
        rank: the user's own variable ``rank``, in the outermost of his functions that has one.
        world_size: ``world_size`` beside it.
        function: the function it stands in.
        index: the number that torch's ``_wrap`` called the worker with: its rank on this host.
    """

    rank: int | None = None
    world_size: int | None = None
    function: str = ""
    index: int | None = None


def rank_on_stack(thread: ThreadStack) -> StackRank:
    """Read a main thread's variables, outermost frame first."""
    variables = {each.frame: dict(each.values) for each in thread.variables}
    index: int | None = None
    start = len(thread.frames)
    for place in range(len(thread.frames) - 1, -1, -1):
        frame = thread.frames[place]
        # The innermost counts: a forked process has the stack of the one it was forked from below its own.
        if _is(frame, _RUN) and frame.function.endswith("run"):
            start, index = place, None
        if any(_is(frame, file) for file in _WRAP) and frame.function == "_wrap":
            start = place
            index = _first(variables.get(place, {}), _INDEX_NAMES)
    for place in range(start - 1, -1, -1):
        frame = thread.frames[place]
        rank = None if "torch/" in _shown(frame) else _first(variables.get(place, {}), _RANK_NAMES)
        if rank is not None:
            size = _first(variables[place], _SIZE_NAMES)
            return StackRank(rank, size, frame.function, index)
    return StackRank(index=index)


def _is(frame: Frame, file: str) -> bool:
    return _shown(frame).endswith(file)


def _shown(frame: Frame) -> str:
    return frame.short_file or frame.file


def _first(values: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = values.get(name, "")
        if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
            return int(text)
    return None
