"""Which thread of a rank decides where it stands.

The main thread, or one that it waits for, or one that keeps it from running: a rank's program need not run in
its main thread (an autograd thread's collectives, training in a thread, the owner of the GIL). Source:
DIAGNOSIS.md, "Collecting" (the deciding thread). It knows one rank at one time and judges nobody.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as structs_replace

from rankscope.diag.classify.catalogue import Catalogue, Label
from rankscope.diag.classify.position import Position, SourceLine, innermost_user_frame, of_thread
from rankscope.diag.merge.groups import main_thread
from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.model import Frame, RankSnapshot, ThreadStack

Root = tuple[str, str]
"""Function and file's name that a thread began in."""

_JOINS: Final = frozenset({"join", "result"})
# Where a main thread waits for a thread of its own process, that thread decides.
_WAITS_FOR_THREAD: Final[frozenset[Label]] = frozenset({"backward", "lock", "exit"})


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads where ranks of one job stand: all of them, at every look, by the same threads.

    Attributes:
        catalogue: what frames mean.
        source_line: text of a line of a file.
        programs: what threads of other ranks that wait for ranks began in (``program_root``): there the
            program runs in a thread, and here in one that began in the same.
        main_tells: whether the main threads of the ranks differ. Where all poll in one place, what their
            program's threads do is all there is to compare.
    """

    catalogue: Catalogue
    source_line: SourceLine
    programs: frozenset[Root] = frozenset()
    main_tells: bool = True

    def position(self, rank: RankSnapshot) -> Position | None:
        """Where the rank stands, ``None`` without a stack that tells it.

        The main thread must be known: what other threads do is no rank's position. Of one whose dump was cut
        off, a wait that is on the stack is known, but not that it waits in nothing.
        """
        if not rank.threads:
            lent = _lent_stack(rank)
            return self._of(lent) if lent is not None else None
        main = main_thread(rank)
        if main is None or not (main.frames or rank.facts):
            return None
        position = of_thread(main, _wchan(rank), self.catalogue, self.source_line)
        if position.waiting in ("communication", "store"):
            return position
        if main.is_cut:
            return None
        found = self.others(rank)
        if not self.main_tells:
            program = [one for one in found if program_root(one, self.catalogue) in self.programs]
            return program[0] if len(program) == 1 else position
        return _deciding(position, found, self.catalogue, self.programs)

    def holder(self, rank: RankSnapshot) -> Position | None:
        """The thread beside its main thread that keeps the GIL and does not run, ``None`` without one."""
        found = (one for one in rank.threads if one.holds_gil and one.active is False and self._decides(one))
        thread = next(found, None)
        return self._of(thread) if thread is not None else None

    def main_idles(self, rank: RankSnapshot) -> bool:
        """Whether its main thread is in a loop that serves others, and serves none at the moment."""
        main = main_thread(rank)
        return main is not None and self.catalogue.idles(main.frames)

    def others(self, rank: RankSnapshot) -> list[Position]:
        """Where the threads beside its main thread stand, auxiliary ones left out."""
        return [self._of(thread) for thread in rank.threads if self._decides(thread)]

    def _decides(self, thread: ThreadStack) -> bool:
        """Whether a thread beside the main thread may tell where its rank stands."""
        return not thread.is_main and not self.catalogue.is_auxiliary(thread)

    def _of(self, thread: ThreadStack) -> Position:
        return of_thread(thread, None, self.catalogue, self.source_line)


def _deciding(
    position: Position, found: list[Position], catalogue: Catalogue, programs: Collection[Root]
) -> Position:
    """The main thread, or the one that it waits for or that keeps it from running."""
    idles = catalogue.idles(
        position.thread.frames
    )  # a framework's loop has the main thread, the program another
    waits_for_thread = idles or _waits_for_thread(position, catalogue)
    joins = idles or (waits_for_thread and _joins(position))
    known = _known_wait(position, found) if waits_for_thread else None
    if known is not None:
        return known
    in_backward = position.waiting == "perhaps"  # it may compute itself: what other threads run says nothing
    holder = next((other for other in found if other.thread.holds_gil), None)
    if holder is not None and not position.thread.holds_gil and (holder.thread.active is False or joins):
        return holder
    if not waits_for_thread or in_backward:
        return position
    workers = [other for other in found if other.user_frame is not None]
    program = [other for other in workers if program_root(other, catalogue) in programs]
    if len(program) == 1:
        return program[0]
    waiting = next((one for one in workers if one.waiting is not None), None)
    if waiting is not None:
        return waiting
    if not (idles or _waits_in_a_lock(position, catalogue)):
        return position
    return _of_the_worker(position, workers, joins=joins, has_one=idles or _joins_a_thread(position))


def _known_wait(main: Position, found: list[Position]) -> Position | None:
    """The thread that waits for other ranks; of a backward, else the one that waits for the GPU."""
    told = [one for one in found if one.waiting == "communication"]
    if not told and main.label == "backward":
        told = [one for one in found if one.label == "gpu_wait"]
    return told[0] if told else None


def _of_the_worker(main: Position, workers: list[Position], *, joins: bool, has_one: bool) -> Position:
    """The program may run in a thread while the main thread only joins it, or waits for an event of it.

    None of the threads waits for other ranks. Where the main thread joins one, the only one that runs
    decides, or the only one there is. What a queue or a lock waits for, no stack tells: a reporter that
    sleeps between two turns is there in most processes.
    """
    if not workers:
        return main
    if joins:
        active = [one for one in workers if one.thread.active]
        plain = workers if has_one else []
        only = next((some for some in (active, plain) if len(some) == 1), None)
        return only[0] if only else replace(main, for_thread=True)
    # One that sleeps or waits for its turn holds nothing up.
    busy = [one for one in workers if one.label not in ("pause", "lock")]
    return replace(main, for_thread=True) if len(busy) > 1 else main


def program_root(position: Position, catalogue: Catalogue) -> Root | None:
    """The user's function that a thread began in, ``None`` for the main thread: that one is known anyway."""
    if position.thread.is_main:
        return None
    outermost = innermost_user_frame(position.thread.frames[::-1], catalogue)
    return (_function(outermost), outermost.file.rpartition("/")[2]) if outermost else None


def _waits_in_a_lock(position: Position, catalogue: Catalogue) -> bool:
    leaf = position.leaf
    return position.label != "exit" and leaf is not None and catalogue.label(leaf) == "lock"


def _joins(position: Position) -> bool:
    """Whether it waits for the end of a thread, or for what one was asked to do."""
    return any(_function(frame) in _JOINS for frame in position.thread.frames)


def _joins_a_thread(position: Position) -> bool:
    """Whether the join is of a thread: ``result`` waits for a pool's thread, which is none of those."""
    return any(
        _function(frame) == "join" and frame.file.endswith("threading.py") for frame in position.thread.frames
    )


def _function(frame: Frame) -> str:
    return bare_function(frame.function)


def _lent_stack(rank: RankSnapshot) -> ThreadStack | None:
    """The stack of a rank that no tool could read, from a child that it started with vfork.

    Until it execs, such a child runs in the rank's memory while the rank waits in the kernel: a tool that
    reads the child finds the rank's main thread, under the rank's own thread id (measured). A forked child
    has its own.
    """
    for child in rank.children:
        for thread in child.threads:
            of_rank = thread.thread_id == rank.pid if rank.pid else len(child.threads) == 1
            if of_rank and thread.thread_id not in (0, child.pid) and child.pid:
                return structs_replace(thread, is_main=True)
    return None


def _wchan(rank: RankSnapshot) -> str | None:
    if rank.facts is None or rank.facts.wchan is None:
        return None
    return "" if rank.facts.wchan == "0" else rank.facts.wchan


def _waits_for_thread(position: Position, catalogue: Catalogue) -> bool:
    if position.label in _WAITS_FOR_THREAD:
        return True
    leaf = position.leaf
    return leaf is not None and catalogue.label(leaf) in _WAITS_FOR_THREAD
