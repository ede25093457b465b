"""Where a thread stands: whether it waits for others and in which call, whose line it is.

The innermost frames decide: from the leaf outwards, library frames that mean nothing are passed over until a
frame of the catalogue or one of the user's own code is met. C calls leave no Python frame, so a
user's line may itself be the wait: its source text (the dump's own, else the file's) and the kernel's wait
channel then say which.
It knows one thread at one time and judges nobody. Which thread decides for its rank is in ``deciding``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from rankscope.diag.classify.catalogue import Catalogue, Label
from rankscope.diag.classify.mpi_calls import MPI, mpi_call
from rankscope.diag.merge.normalise import bare_function, function_path, show_frame, shown_function
from rankscope.diag.model import Frame, ThreadStack

SourceLine = Callable[[str, int], str | None]
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
_STORE_WAIT: Final = "store wait"
_METHOD: Final = re.compile(r"\.\s*(\w+)\s*\(")
_NAMED: Final = re.compile(r"[A-Za-z_]{3}")  # neither ``??`` nor an address
_ANONYMOUS: Final = "(anonymous namespace)::"
_DEVICE: Final = re.compile(r"_?(?:CUDA|CPU|XPU|PrivateUse1)$")  # torch's operators, one for each device
_TEMPLATES: Final = re.compile(r"<.*?>(?=\(|::|$)")


@dataclass(frozen=True, slots=True)
class Position:
    """Where one thread of one rank stands.

    Attributes:
        thread: the deciding thread.
        waiting: what kind of wait for others it is in, ``None`` when it is in none.
        label: the catalogue's label of the wait, or of what it does, ``None`` for plain user code.
        call: short name: ``all_reduce``, else the user's function, else the leaf's.
        user_frame: innermost frame of the user's own code, ``None`` when there is none.
        shown: the frame to show for it, ``None`` for the leaf: where no frame is the user's, the one that
            tells most of who waits, and for what.
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
    shown: Frame | None = None
    for_thread: bool = False

    @property
    def leaf(self) -> Frame | None:
        """The innermost Python frame, else the innermost of any kind."""
        return leaf_of(self.thread.frames)

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
    def shown_frame(self) -> Frame | None:
        """The frame that says where it stands: the user's, else the one that tells most."""
        return self.user_frame or self.shown or self.leaf

    @property
    def place(self) -> str:
        """The place as a person reads it: the user's line, else the frame that tells most."""
        frame = self.shown_frame
        return show_frame(frame) if frame else "an empty stack"


def leaf_of(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost Python frame, else the innermost of any kind."""
    return next((frame for frame in frames if frame.kind == "python"), frames[0] if frames else None)


def same_place(before: Position, now: Position) -> bool:
    """Whether two looks at one rank show it in the same call: the path, and the user's line.

    What the place means may have been read from the source in one of them only.
    """
    lines = [one.user_frame.line if one.user_frame else 0 for one in (before, now)]
    return before.path == now.path and lines[0] == lines[1]


def of_thread(
    thread: ThreadStack, wchan: str | None, catalogue: Catalogue, source_line: SourceLine
) -> Position:
    """Where one thread stands; ``wchan`` is what the kernel says of it, ``None`` when that is not known."""
    once = catalogue.of_stacks.once
    user = once("user", thread.frames, lambda frames: innermost_user_frame(frames, catalogue))
    label, call, symbol = once("label", thread.frames, lambda frames: _innermost_label(frames, catalogue))
    shown = user or once("shown", thread.frames, lambda frames: _telling_frame(frames, catalogue))
    if label is not None and label in _WAITING:
        named = call or _call_below(symbol, user, thread.frames, label, source_line)
        return Position(thread, _WAITING[label], label, named, user, shown=shown)
    if label is None and user is not None and _is_leaf(user, thread.frames):
        asleep = not thread.holds_gil and not thread.active and False in (thread.holds_gil, thread.active)
        spoken = catalogue.source_label(source_of(user, source_line), wchan, asleep=asleep)
        if spoken in ("collective", "store_wait"):
            name = _spoken_call(user, source_line) if spoken == "collective" else _STORE_WAIT
            return Position(thread, _WAITING[spoken], spoken, name, user, by_source=True, shown=shown)
        label = spoken
    named_by = user or leaf_of(thread.frames)
    name = shown_function(named_by.function) if named_by else ""
    return Position(thread, None, label, name, user, shown=shown)


def _telling_frame(frames: tuple[Frame, ...], catalogue: Catalogue) -> Frame | None:
    """Of frames of which none is the user's, the one that tells most; ``None`` where none tells anything.

    A handler of the program's end is named itself, else the innermost library: below it are locks and sockets
    that everybody uses. Of C++ alone, the frame that carries the label, else the first that has a name.
    """
    spoken = [frame for frame in frames if not catalogue.is_plumbing(frame)]
    leaving = next((frame for frame in spoken if catalogue.label(frame) == "exit"), None)
    if leaving is not None or spoken:
        return leaving or spoken[0]
    if any(frame.kind == "python" for frame in frames):
        return None
    labels = [(frame, catalogue.label(frame)) for frame in frames]
    first = next((label for _, label in labels if label is not None), None)
    carrying = [frame for frame, label in labels if label is not None and label == first]
    if first in _WAITING and carrying:
        return carrying[-1]
    return next((frame for frame in frames if _NAMED.match(frame.function)), None)


def _innermost_label(frames: tuple[Frame, ...], catalogue: Catalogue) -> tuple[Label | None, str, str]:
    """The label that says where the thread stands, and the names of the calls that carry it.

    A native frame tells the label, the Python frame that called it the name. Where there is no such Python
    frame, the outermost native wait has the name that a person knows best. An MPI call has a name of its own;
    one that is made of others (mpi4py's ``allreduce``) is the outermost of them.
    """
    native: Label | None = None
    leaf = leaf_of(frames)
    weak: Label | None = None
    symbol = ""
    for at, frame in enumerate(frames):
        label = _label_at(frame, leaf, catalogue)
        entry = mpi_call(frame)
        if entry and frame.kind == "native":
            symbol, native = entry, label if label in _WAITING else native
        elif label is None:
            if catalogue.is_user_code(frame):
                break
        elif label in _DOING:
            if native is None:
                return label, bare_function(frame.function), ""
            break
        elif label not in _WAITING:
            weak = weak or label
        elif frame.kind == "native":
            native = native or label
            symbol = _native_call(frame)
        else:
            setup = _setup_call(frames[at:], catalogue)
            if setup is not None:
                return "startup", setup, symbol
            called = "backward" if label == "backward" else entry or bare_function(frame.function)
            return native or label, called, symbol
    return native or weak, "", symbol


def _native_call(frame: Frame) -> str:
    """The short name of a C++ frame: ``recv`` of ``c10d::ProcessGroupNCCL::recv(at::Tensor&, int)``."""
    name = _TEMPLATES.sub("", shown_function(frame.function).replace(_ANONYMOUS, ""))
    return _DEVICE.sub("", name.partition("(")[0].rpartition("::")[2]) or shown_function(frame.function)


def _label_at(frame: Frame, leaf: Frame | None, catalogue: Catalogue) -> Label | None:
    """A frame's label; where something runs below a loop that takes tasks, that is its task."""
    label = catalogue.label(frame)
    return None if label == "no_task" and frame is not leaf else label


def _setup_call(callers: tuple[Frame, ...], catalogue: Catalogue) -> str | None:
    """The set-up call the user made: a barrier inside ``new_group`` is no collective of a step."""
    name: str | None = None
    for frame in callers:
        if catalogue.is_user_code(frame):
            break
        if catalogue.label(frame) == "startup":
            name = bare_function(frame.function)
    return name


def _spoken_call(frame: Frame, source_line: SourceLine) -> str:
    """The call that a line makes, by its text: ``wait`` of ``work.wait()``."""
    called = _METHOD.search(source_of(frame, source_line) or "")
    return called[1] if called else "wait"


def source_of(frame: Frame, source_line: SourceLine) -> str | None:
    """The text of the frame's line: as the dump has it, as the file may have changed since."""
    return frame.source or (source_line(frame.file, frame.line) if frame.line else None)


def innermost_user_frame(frames: tuple[Frame, ...], catalogue: Catalogue) -> Frame | None:
    """The first frame from the leaf that is the user's own code."""
    return next((frame for frame in frames if catalogue.is_user_code(frame)), None)


def _is_leaf(frame: Frame, frames: tuple[Frame, ...]) -> bool:
    """Whether it is the innermost Python frame: what it waits in is a C call of its own line."""
    return next((one for one in frames if one.kind == "python"), None) is frame


def _call_below(
    symbol: str, user: Frame | None, frames: tuple[Frame, ...], label: Label, source_line: SourceLine
) -> str:
    """The name of a wait that only C++ frames show: the same as where the line's text alone shows it.

    A wait for the GPU is told by no line: it has the name of its C++ call. So has a call of MPI.
    """
    if label == "store_wait":
        return _STORE_WAIT
    if symbol and (user is None or label == "gpu_wait" or symbol.startswith(MPI)):
        return symbol
    if user is not None and label == "collective" and _is_leaf(user, frames):
        return _spoken_call(user, source_line)
    return _call_of(user)


def _call_of(user: Frame | None) -> str:
    return shown_function(user.function) if user else "wait"
