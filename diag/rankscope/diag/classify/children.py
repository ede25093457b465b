"""The child processes of a rank: which of them it waits for, and where that one really stands.

A rank that waits for a loader worker, a checkpoint writer or a pool shows its own wait only; the place to
look at is in the child. Sources: DIAGNOSIS.md, "Collecting" (children are sampled too), CATALOGUE.md 5 (a
forked worker's stack ends in its parent's frames). It names no culprit: the rank stays that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rankscope.diag.classify.catalogue import Catalogue, Label
from rankscope.diag.classify.position import Position, innermost_user_frame
from rankscope.diag.merge.groups import main_thread
from rankscope.diag.merge.normalise import bare_function, portable_file, show_frame
from rankscope.diag.model import ChildSnapshot, Evidence, Frame, RankSnapshot

_SHOWN: Final = 4
_STATES: Final = {
    "T": "stopped by a signal",
    "t": "stopped by a tracer",
    "D": "blocked in the kernel",
    "Z": "dead, and nobody has taken note of it",
}
_WAITS: Final[frozenset[Label | None]] = frozenset({"loader_wait", "data_loading", "child_process", "exit"})
# What a rank waits in for an answer of another process, below a lock or a poll.
_POOLS: Final = ("multiprocessing/pool.py", "multiprocess/pool.py", "concurrent/futures/process.py")
_CHANNELS: Final = (
    *_POOLS,
    *(
        f"{package}/{file}.py"
        for package in ("multiprocessing", "multiprocess")
        for file in ("queues", "connection", "process", "popen_fork", "popen_spawn_posix", "popen_forkserver")
    ),
)
# A forked loader worker keeps its parent's frames below these: they are not its own (measured).
_ROOTS: Final = frozenset({"_worker_loop", "_bootstrap", "_launch", "_main", "spawn_main"})
# Frames of a process that waits to be told what to do; those below the first of other files do not count.
_PLUMBING: Final = ("selectors.py", "threading.py", "socket.py", "subprocess.py", "queue.py")
_IDLE: Final = (
    "multiprocessing/",
    "multiprocess/",
    "concurrent/futures/",
    "torch/multiprocessing/",
    "torch/_inductor/",
)


@dataclass(frozen=True, slots=True)
class Followed:
    """The child that a rank waits for, and where it stands."""

    child: ChildSnapshot
    frame: Frame

    def fact(self, rank: RankSnapshot) -> Evidence:
        """The same as evidence."""
        state = self.child.facts.state if self.child.facts is not None else ""
        words = f" is {_STATES[state]}," if state in _STATES else " is"
        text = f"its child process {self.child.pid}{words} in {show_frame(self.frame)}"
        return Evidence(rank.source or "stack", text, rank.rank)


def follow(rank: RankSnapshot, position: Position, catalogue: Catalogue) -> Followed | None:
    """The child process that the rank waits for, when one stands in something; idle ones do not count.

    Of several, one that is stopped comes first, then one in the user's own code, then the lowest pid.
    """
    if not _waits_for_children(position):
        return None
    found: list[tuple[tuple[bool, bool, int], Followed]] = []
    for child in rank.children:
        own = _own_frames(child, catalogue)
        user = innermost_user_frame(own, catalogue)
        frame = user or _library_frame(own, child)
        if frame is not None:
            stopped = child.facts is not None and child.facts.state in ("T", "t")
            found.append(((not stopped, user is None, child.pid), Followed(child, frame)))
    return min(found, key=lambda one: one[0])[1] if found else None


def _waits_for_children(position: Position) -> bool:
    """Whether the rank may wait for a child process: a loader's, a pool's, a command's, one at its exit."""
    if position.label in _WAITS:
        # A data set called in the rank itself waits for no child; the wait for a command may be its line.
        return position.user_frame is not position.leaf or position.label == "child_process"
    return any(_in(frame, _CHANNELS) for frame in _above_the_user(position))


def waits_for_a_pool(position: Position) -> bool:
    """Whether it waits for what a pool of processes was asked to do."""
    return any(_in(frame, _POOLS) for frame in _above_the_user(position))


def child_facts(rank: RankSnapshot, earlier: RankSnapshot | None, *, all_of_them: bool) -> list[Evidence]:
    """The children that cannot run or have ended, or all, where it is one of them that the rank waits for."""
    found = [
        Evidence(
            "/proc",
            f"its child process {child.pid} ({child.facts.comm}) is in state {child.facts.state}",
            rank.rank,
        )
        for child in rank.children
        if child.facts is not None and (all_of_them or child.facts.state in _STATES)
    ]
    left = {child.pid for child in rank.children}
    found += [
        Evidence("/proc", f"its child process {child.pid} has ended between the looks", rank.rank)
        for child in (earlier.children if earlier is not None else ())
        if child.pid not in left and child.threads
    ]
    return found[:_SHOWN]


def _above_the_user(position: Position) -> list[Frame]:
    """The frames from the leaf to the user's innermost."""
    found: list[Frame] = []
    for frame in position.thread.frames:
        if frame is position.user_frame:
            break
        found.append(frame)
    return found


def _own_frames(child: ChildSnapshot, catalogue: Catalogue) -> tuple[Frame, ...]:
    """What the child does itself, without what it has from its parent; empty when that is not known."""
    main = main_thread(child)
    own: list[Frame] = []
    for frame in main.frames if main is not None else ():
        if bare_function(frame.function) in _ROOTS and not catalogue.is_user_code(frame):
            break
        own.append(frame)
    return tuple(own)


def _library_frame(own: tuple[Frame, ...], child: ChildSnapshot) -> Frame | None:
    """Where a worker stands in a library, ``None`` when it waits for work or is no worker of Python's."""
    main = main_thread(child)
    if main is None or len(own) == len(main.frames):
        return None
    for frame in own:
        if frame.kind == "python" and not _in(frame, _PLUMBING):
            return None if portable_file(frame.file).startswith(_IDLE) else frame
    return None


def _in(frame: Frame, files: tuple[str, ...]) -> bool:
    name = portable_file(frame.short_file or frame.file)
    return name.endswith(files)
