"""Where a rank stands: which thread decides, whether it waits for others and in which call, whose line it is.

The innermost frames decide: from the leaf outwards, library frames that mean nothing are passed over until a
frame of the catalogue or one of the user's own code is met. C calls leave no Python frame, so a
user's line may itself be the wait: its source text (the dump's own, else the file's) and the kernel's wait
channel then say which.
It knows one rank at one time and judges nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, Literal

from msgspec.structs import replace as structs_replace

from rankscope.diag.classify.catalogue import Catalogue, Label
from rankscope.diag.merge.normalise import bare_function, function_path, show_frame, shown_function
from rankscope.diag.model import ChildSnapshot, Frame, RankSnapshot, ThreadStack

SourceLine = Callable[[str, int], str | None]
Root = tuple[str, str]
"""Function and file's name that a thread began in."""
Waiting = Literal["communication", "store", "perhaps"]
"""``perhaps``: DDP's backward or a wait for the GPU, which may or may not be a wait for other ranks."""

_WAITING: Final[dict[Label, Waiting]] = {
    "collective": "communication",
    "p2p": "communication",
    "startup": "store",
    "store_wait": "store",
    "backward": "perhaps",
    "gpu_wait": "perhaps",
}
# Frames of these end the search for a wait: the rank is doing that, whatever called it.
_DOING: Final[frozenset[Label]] = frozenset({"data_loading", "loader_wait", "checkpoint", "compile", "exit"})
_JOINS: Final = frozenset({"join", "result"})
# Where a main thread waits for a thread of its own process, that thread decides.
_WAITS_FOR_THREAD: Final[frozenset[Label]] = frozenset({"backward", "lock", "exit"})


@dataclass(frozen=True, slots=True)
class Position:
    """Where one thread of one rank stands.

    Attributes:
        thread: the deciding thread.
        waiting: what kind of wait for others it is in, ``None`` when it is in none.
        label: the catalogue's label of the wait, or of what it does, ``None`` for plain user code.
        call: short name: ``all_reduce``, else the user's function, else the leaf's.
        user_frame: innermost frame of the user's own code, ``None`` when there is none.
        by_source: whether the wait was read from the source line, not from a frame.
        for_thread: whether it is a main thread that waits for another thread of its process, and which
            of several could not be told: its stack does not say where the rank stands.
    """

    thread: ThreadStack
    waiting: Waiting | None
    label: Label | None
    call: str
    user_frame: Frame | None
    by_source: bool = False
    for_thread: bool = False

    @property
    def leaf(self) -> Frame | None:
        """The innermost Python frame, else the innermost of any kind."""
        frames = self.thread.frames
        return next((frame for frame in frames if frame.kind == "python"), frames[0] if frames else None)

    @property
    def has_native(self) -> bool:
        """Whether its stack shows C++ frames."""
        return any(frame.kind == "native" for frame in self.thread.frames)

    @property
    def path(self) -> tuple[tuple[str, str], ...]:
        """Functions and files without lines, Python only: what two ranks in one place share.

        Files without their folders: one tool writes ``train.py``, another ``/workspace/train.py``.
        """
        path = function_path(tuple(frame for frame in self.thread.frames if frame.kind == "python"))
        return tuple((function, file.rpartition("/")[2]) for function, file in path if file)

    @property
    def place(self) -> str:
        """The place as a person reads it: the user's line, else the leaf."""
        frame = self.user_frame or self.leaf
        return show_frame(frame) if frame else "an empty stack"


def read_position(
    rank: RankSnapshot,
    *,
    catalogue: Catalogue,
    source_line: SourceLine,
    programs: Collection[Root] = (),
) -> Position | None:
    """Where the rank stands, ``None`` without a stack that tells it.

    The main thread must be known: what other threads do is no rank's position. Of one whose dump was cut off,
    a wait that is on the stack is known, but not that it waits in nothing.

    Args:
        rank: one rank at one time.
        catalogue: what frames mean.
        source_line: text of a line of a file.
        programs: what threads of other ranks that wait for ranks began in (``program_root``): there the
            program runs in a thread, and here in one that began in the same.
    """
    if not rank.threads:
        lent = _lent_stack(rank)
        return _of_thread(lent, None, catalogue, source_line) if lent is not None else None
    main = next((thread for thread in rank.threads if thread.is_main), None)
    if main is None or not (main.frames or rank.facts):
        return None
    position = _of_thread(main, _wchan(rank), catalogue, source_line)
    if position.waiting in ("communication", "store"):
        return position
    if main.is_cut:
        return None
    others = [t for t in rank.threads if not t.is_main and not catalogue.is_auxiliary(t)]
    found = [_of_thread(thread, None, catalogue, source_line) for thread in others]
    return _deciding(position, found, catalogue, programs)


def _deciding(
    position: Position, found: list[Position], catalogue: Catalogue, programs: Collection[Root]
) -> Position:
    """The main thread, or the one that it waits for or that keeps it from running."""
    waits_for_thread = _waits_for_thread(position, catalogue)
    joins = waits_for_thread and _joins(position)
    if waits_for_thread:
        for other in found:
            if other.waiting == "communication":
                return other
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
    return _of_the_worker(position, workers, catalogue, joins=joins)


def _of_the_worker(main: Position, workers: list[Position], catalogue: Catalogue, *, joins: bool) -> Position:
    """The program may run in a thread while the main thread only joins it, or waits for an event of it.

    A thread in a wait for other ranks decides. Else, where the main thread joins one, the only one that runs,
    or the only one there is. What a queue or a lock waits for, no stack tells: a reporter that sleeps
    between two turns is there in most processes.
    """
    waiting = next((one for one in workers if one.waiting is not None), None)
    if waiting is not None:
        return waiting
    leaf = main.leaf
    if not workers or main.label == "exit" or leaf is None or catalogue.label(leaf) != "lock":
        return main
    if joins:
        active = [one for one in workers if one.thread.active]
        plain = workers if _joins_a_thread(main) else []
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


def same_place(before: Position, now: Position) -> bool:
    """Whether two looks at one rank show it in the same call: the path, and the user's line.

    What the place means may have been read from the source in one of them only.
    """
    lines = [one.user_frame.line if one.user_frame else 0 for one in (before, now)]
    return before.path == now.path and lines[0] == lines[1]


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


def _of_thread(
    thread: ThreadStack, wchan: str | None, catalogue: Catalogue, source_line: SourceLine
) -> Position:
    user = innermost_user_frame(thread.frames, catalogue)
    label, call = _innermost_label(thread.frames, catalogue)
    if label is not None and label in _WAITING:
        return Position(thread, _WAITING[label], label, call or _call_of(user), user)
    if label is None and user is not None and _is_leaf(user, thread.frames):
        asleep = not thread.holds_gil and not thread.active and False in (thread.holds_gil, thread.active)
        spoken = catalogue.source_label(source_of(user, source_line), wchan, asleep=asleep)
        if spoken in ("collective", "store_wait"):
            name = "wait" if spoken == "collective" else "store wait"
            return Position(thread, _WAITING[spoken], spoken, name, user, by_source=True)
        label = spoken
    position = Position(thread, None, label, "", user)
    shown = user or position.leaf
    return replace(position, call=shown_function(shown.function) if shown else "")


def _innermost_label(frames: tuple[Frame, ...], catalogue: Catalogue) -> tuple[Label | None, str]:
    """The label that says where the thread stands, and the name of the call that carries it.

    A native frame tells the label, the Python frame that called it the name.
    """
    native: Label | None = None
    weak: Label | None = None
    for at, frame in enumerate(frames):
        label = catalogue.label(frame)
        if label is None:
            if catalogue.is_user_code(frame):
                break
        elif label in _DOING:
            if native is None:
                return label, bare_function(frame.function)
            break
        elif label not in _WAITING:
            weak = weak or label
        elif frame.kind == "native":
            native = native or label
        else:
            setup = _setup_call(frames[at:], catalogue)
            if setup is not None:
                return "startup", setup
            return native or label, "backward" if label == "backward" else bare_function(frame.function)
    return native or weak, ""


def _setup_call(callers: tuple[Frame, ...], catalogue: Catalogue) -> str | None:
    """The set-up call the user made: a barrier inside ``new_group`` is no collective of a step."""
    name: str | None = None
    for frame in callers:
        if catalogue.is_user_code(frame):
            break
        if catalogue.label(frame) == "startup":
            name = bare_function(frame.function)
    return name


def source_of(frame: Frame, source_line: SourceLine) -> str | None:
    """The text of the frame's line: as the dump has it, as the file may have changed since."""
    return frame.source or (source_line(frame.file, frame.line) if frame.line else None)


def innermost_user_frame(frames: tuple[Frame, ...], catalogue: Catalogue) -> Frame | None:
    """The first frame from the leaf that is the user's own code."""
    return next((frame for frame in frames if catalogue.is_user_code(frame)), None)


def _is_leaf(frame: Frame, frames: tuple[Frame, ...]) -> bool:
    """Whether it is the innermost Python frame: what it waits in is a C call of its own line."""
    return next((one for one in frames if one.kind == "python"), None) is frame


def _call_of(user: Frame | None) -> str:
    return shown_function(user.function) if user else "wait"


# A forked loader worker keeps its parent's frames below these: they are not its own (measured).
_WORKER_ROOTS: Final = frozenset({"_worker_loop", "_bootstrap", "_launch", "_main", "spawn_main"})


def child_position(child: ChildSnapshot, catalogue: Catalogue) -> Frame | None:
    """The innermost user frame of what a child process does itself, ``None`` when it is idle or unseen."""
    main = next((thread for thread in child.threads if thread.is_main), None)
    if main is None:
        return None
    own: list[Frame] = []
    for frame in main.frames:
        if bare_function(frame.function) in _WORKER_ROOTS and not catalogue.is_user_code(frame):
            break
        own.append(frame)
    return innermost_user_frame(tuple(own), catalogue)
