"""Takes Rankscope's own frames out of stacks: a rank stands where the user's program stands.

Our code runs inside of workers: it holds one that raised, wraps functions and imports, sends timers, beats in
a thread. What is stored of a look keeps all of it; what is judged and shown does not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from rankscope.diag.model import ChildSnapshot, Frame, JobSnapshot, RankSnapshot, ThreadStack

HELD: Final = Frame("held by Rankscope while evidence was taken", "")
"""Stands for the frames of a worker that raised and waits for its peers to be looked at."""
_OURS: Final = re.compile(r"(?:^|/)rankscope/watchdog/\w")
_HOLDS: Final = "rankscope/watchdog/probe/raising.py"
_THREADING: Final = re.compile(r"(?:^|/)threading\.py$")
_CALLED: Final = re.compile(r"/lib(?:64)?/python3\.\d+t?/(?!site-packages|dist-packages)")
"""The standard library, which our code waits and writes with. Imports are no such file: they run anything."""


def without_own_frames(job: JobSnapshot) -> JobSnapshot:
    """The look without our frames; the same object where there are none."""
    known: dict[int, tuple[int, ...] | None] = {}
    ranks = [_of_rank(rank, known) for rank in job.ranks]
    if all(new is old for new, old in zip(ranks, job.ranks, strict=True)):
        return job
    return replace(job, ranks=tuple(ranks))


def is_own_thread(frames: Sequence[Frame]) -> bool:
    """Whether all that a thread ever did was ours: nothing but ``threading`` called our code."""
    ours = [index for index, frame in enumerate(frames) if is_own_frame(frame)]
    if not ours:
        return False
    callers = [frame for frame in frames[ours[-1] + 1 :] if frame.kind == "python"]
    return bool(callers) and all(_THREADING.search(frame.file) for frame in callers)


_Known = dict[int, tuple[int, ...] | None]
"""By a stack's identity, the frames that stay (-1 for ``HELD``); ``None`` for all of them."""


def _of_rank(rank: RankSnapshot, known: _Known) -> RankSnapshot:
    threads = _of_threads(rank.threads, known)
    children = tuple([_of_child(child, known) for child in rank.children])
    same = all(new is old for new, old in zip(children, rank.children, strict=True))
    if threads is rank.threads and same:
        return rank
    return replace(rank, threads=threads, children=children)


def _of_child(child: ChildSnapshot, known: _Known) -> ChildSnapshot:
    threads = _of_threads(child.threads, known)
    return child if threads is child.threads else replace(child, threads=threads)


def _of_threads(threads: tuple[ThreadStack, ...], known: _Known) -> tuple[ThreadStack, ...]:
    found = tuple([_of_thread(thread, known) for thread in threads])
    return threads if all(new is old for new, old in zip(found, threads, strict=True)) else found


def _of_thread(thread: ThreadStack, known: _Known) -> ThreadStack:
    frames = thread.frames
    if id(frames) not in known:
        known[id(frames)] = _kept(frames)
    kept = known[id(frames)]
    if kept is None:
        return thread
    stays = {index: place for place, index in enumerate(kept)}
    return replace(
        thread,
        frames=tuple([frames[index] if index >= 0 else HELD for index in kept]),
        variables=tuple(
            [replace(one, frame=stays[one.frame]) for one in thread.variables if one.frame in stays]
        ),
    )


def _kept(frames: tuple[Frame, ...]) -> tuple[int, ...] | None:
    """Which frames stay: not ours, nor what ours called while nothing of the user's runs inside of it."""
    ours = [index for index, frame in enumerate(frames) if is_own_frame(frame)]
    if not ours or is_own_thread(frames):
        return None
    holding = [index for index in ours if frames[index].file.replace("\\", "/").endswith(_HOLDS)]
    if holding:
        return (-1, *range(holding[-1] + 1, len(frames)))
    called = all(_is_called(frame) for frame in frames[: ours[0]])
    left_out = set(ours)
    kept = [index for index in range(ours[0] if called else 0, len(frames)) if index not in left_out]
    return tuple(kept) or None


def is_own_frame(frame: Frame) -> bool:
    """Whether a frame is of our code."""
    return _is_own(frame.file)


def _is_called(frame: Frame) -> bool:
    return frame.kind == "native" or _CALLED.search(frame.file) is not None


@functools.lru_cache(maxsize=65_536)
def _is_own(file: str) -> bool:
    return _OURS.search(file.replace("\\", "/")) is not None
