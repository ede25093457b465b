"""Several tools' stacks of one process at one time, put together.

One dump is the base: the frames of two tools are never mixed into one Python stack. What the others know
besides is laid over it where they show the same frames: whole paths, local variables, who holds the GIL,
thread names, the C++ calls below the innermost Python frame, and threads that the base lacks. It
knows nothing of ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.model import Frame, FrameVariables, ThreadStack
from rankscope.diag.read import StackDump, StackSource

_PREFERENCE: Final[dict[StackSource, int]] = {
    "py-spy": 3,
    "pystack": 2,
    "faulthandler": 1,
    "printed": 1,
    "gdb": 0,
    "traceback": -1,
}
_INTERPRETER: Final = (
    "_PyEval_",
    "PyEval_",
    "_PyObject_",
    "PyObject_",
    "_PyFunction_",
    "cfunction_",
    "method_vectorcall",
    "_PyVectorcall",
    "PyVectorcall",
    "THPFunction",
    "slot_tp_call",
)
_UNKNOWN_SYMBOLS: Final = frozenset({"??", "", "???"})


@dataclass(frozen=True, slots=True)
class Layer:
    """One dump of a process; ``is_torn``: the process was not stopped while it was taken."""

    dump: StackDump
    is_torn: bool = False


def overlay(layers: Sequence[Layer]) -> tuple[StackSource | None, tuple[ThreadStack, ...]]:
    """The process's threads as the dumps together tell them, and whose frames they are.

    Args:
        layers: dumps of one process at about one time.

    Returns:
        ``None`` and no threads when no dump has any.
    """
    readable = sorted((one for one in layers if one.dump.threads), key=_merit, reverse=True)
    if not readable:
        return None, ()
    base, *others = (layer.dump for layer in readable)
    threads = list(base.threads)
    for other in others:
        threads = _lay_over(threads, other)
    return base.source, tuple(threads)


def _merit(layer: Layer) -> tuple[object, ...]:
    """How much a dump tells: Python frames first, then C++ frames, the better tool, whole paths."""
    frames = [frame for thread in layer.dump.threads for frame in thread.frames]
    python = [frame for frame in frames if frame.kind == "python"]
    return (
        bool(python),
        not layer.is_torn,
        any(frame.kind == "native" for frame in frames),
        _PREFERENCE[layer.dump.source],
        any(frame.file.startswith("/") for frame in python),
        layer.dump.has_variables,
        len(frames),
    )


def _lay_over(threads: list[ThreadStack], other: StackDump) -> list[ThreadStack]:
    told = list(threads)
    for thread in other.threads:
        at = _same_thread(told, thread)
        if at is not None:
            told[at] = _combined(told[at], thread)
        elif _is_another(told, thread):
            told.append(thread)
    return told


def _same_thread(threads: Sequence[ThreadStack], other: ThreadStack) -> int | None:
    for at, thread in enumerate(threads):
        if thread.thread_id and thread.thread_id == other.thread_id:
            return at
    if not other.is_main:
        return None
    return next((at for at, thread in enumerate(threads) if thread.is_main and _may_be(thread, other)), None)


def _may_be(thread: ThreadStack, other: ThreadStack) -> bool:
    return not (thread.thread_id and other.thread_id)


def _is_another(threads: Sequence[ThreadStack], other: ThreadStack) -> bool:
    """Whether it is a thread that the base lacks: both tools number threads, and nobody has that number."""
    return bool(other.thread_id and other.frames) and all(thread.thread_id for thread in threads)


def _combined(base: ThreadStack, other: ThreadStack) -> ThreadStack:
    """A thread of the base with what the other dump knows of it."""
    pairs = _agreeing(base.frames, other.frames)
    frames = _with_paths(base.frames, other.frames, pairs)
    variables = base.variables or _moved(other.variables, pairs)
    native = () if _has_native(base.frames) else _native_leaf(base.frames, other.frames, pairs)
    if native:
        frames = (*native, *frames)
        variables = tuple(FrameVariables(one.frame + len(native), one.values) for one in variables)
    return msgspec.structs.replace(
        base,
        frames=frames,
        variables=variables,
        name=base.name if base.name is not None else other.name,
        is_main=base.is_main or other.is_main,
        holds_gil=_known(base.holds_gil, other.holds_gil),
        active=_known(base.active, other.active),
        collecting=_known(base.collecting, other.collecting),
    )


def _known(first: bool | None, second: bool | None) -> bool | None:  # noqa: FBT001 - two answers of one kind
    return second if first is None else first


def _agreeing(base: Sequence[Frame], other: Sequence[Frame]) -> dict[int, int]:
    """Index in the other stack to index in the base, of Python frames that are the same call."""
    places = {key: at for at, key in _keyed(base)}
    return {at: places[key] for at, key in _keyed(other) if key in places}


def _keyed(frames: Sequence[Frame]) -> Iterator[tuple[int, tuple[object, ...]]]:
    """Python frames from the root, with what makes one unique: its place, and the how-manieth it is."""
    seen: Counter[tuple[str, str, int]] = Counter()
    for at in range(len(frames) - 1, -1, -1):
        frame = frames[at]
        if frame.kind == "python":
            place = (bare_function(frame.function), frame.file.rpartition("/")[2], frame.line)
            seen[place] += 1
            yield at, (*place, seen[place])


def _with_paths(base: Sequence[Frame], other: Sequence[Frame], pairs: dict[int, int]) -> tuple[Frame, ...]:
    """The base's frames with the other's whole paths."""
    frames = list(base)
    for theirs, ours in pairs.items():
        frame, known = frames[ours], other[theirs]
        if known.file.endswith(f"/{frame.file}"):
            short = frame.short_file or frame.file
            frames[ours] = msgspec.structs.replace(frame, file=known.file, short_file=short)
    return tuple(frames)


def _moved(variables: Sequence[FrameVariables], pairs: dict[int, int]) -> tuple[FrameVariables, ...]:
    moved = [FrameVariables(pairs[one.frame], one.values) for one in variables if one.frame in pairs]
    return tuple(sorted(moved, key=lambda one: one.frame))


def _has_native(frames: Sequence[Frame]) -> bool:
    return any(frame.kind == "native" for frame in frames)


def _native_leaf(base: Sequence[Frame], other: Sequence[Frame], pairs: dict[int, int]) -> tuple[Frame, ...]:
    """The C++ calls that the base's innermost Python frame is in, without the interpreter's own.

    A stack with Python frames must agree on the innermost one; one of gdb's has none, and must come down to
    the interpreter.
    """
    leaf = next((at for at, frame in enumerate(base) if frame.kind == "python"), None)
    if leaf is None:
        return ()
    found: list[Frame] = []
    for at, frame in enumerate(other):
        if frame.kind == "python":
            return tuple(found) if pairs.get(at) == leaf else ()
        if frame.function.startswith(_INTERPRETER):
            inner = next((below for below, one in enumerate(other) if one.kind == "python"), None)
            return tuple(found) if inner is None or pairs.get(inner) == leaf else ()
        if frame.function not in _UNKNOWN_SYMBOLS:
            found.append(frame)
    return ()
