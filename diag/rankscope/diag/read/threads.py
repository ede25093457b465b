"""Threads while they are being read, and what is decided of them once a dump is whole.

That is: which one is the main thread, and where one process ends and the next begins when the tool writes no
process (pystack, faulthandler). It knows how CPython starts threads, and no format.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from rankscope.diag.model import Frame, FrameVariables, ThreadStack
from rankscope.diag.read.bounds import Tally

_SHARED_FRAMES: Final = 16_384  # equal frames are one object: ranks of a job show the same ones
_LONGEST_VALUE: Final = 4_096  # characters of a variable's value
# Where a main thread's Python stack begins: a script, `python -m`, the interpreter's end.
_MAIN_ROOTS: Final = frozenset({"<module>", "_run_module_as_main"})
_THREAD_ROOTS: Final = frozenset({"_bootstrap", "Thread._bootstrap"})
END_MISSING: Final = "the end of a dump is missing: its last stack was cut off"
NO_MAIN: Final = "a dump shows no main thread: its end is missing, or it is of one thread only"
_NATIVE_MAIN_ROOTS: Final = ("_start", "__libc_start", "main", "Py_BytesMain")
_NATIVE_THREAD_ROOTS: Final = ("clone", "__clone", "start_thread")


@functools.lru_cache(maxsize=_SHARED_FRAMES)
def shared_frame(
    function: str,
    file: str,
    line: int = 0,
    kind: Literal["python", "native"] = "python",
    source: str = "",
) -> Frame:
    """A frame, the same object for equal ones."""
    return Frame(function=function, file=file, line=line, kind=kind, source=source)


class ThreadDraft:
    """One thread that is being read.

    Attributes:
        stack: the thread without its frames.
        frames: in the order of the dump.
        root_first: whether that order is outermost first.
        identity: what the tool knows it by, 0 for nothing; the thread's id where it is one.
        detached: whether nothing but a header separates it from what was before (no blank line).
        begins: whether something said that a new dump begins with it.
        is_cut: whether frames of it are known to be missing.
        line: number of its header.
    """

    __slots__ = (
        "_cut",
        "_values",
        "_variables",
        "begins",
        "detached",
        "frames",
        "identity",
        "is_cut",
        "line",
        "root_first",
        "stack",
    )

    def __init__(
        self,
        stack: ThreadStack,
        *,
        line: int = 0,
        identity: int = 0,
        root_first: bool = False,
        detached: bool = False,
        begins: bool = False,
    ) -> None:
        self.stack = stack
        self.frames: list[Frame] = []
        self.root_first = root_first
        self.identity = identity or stack.thread_id
        self.detached = detached
        self.begins = begins
        self.line = line
        self.is_cut = False
        self._cut = 0  # frames left out at the root
        self._values = 0
        self._variables: dict[int, list[tuple[str, str]]] = {}

    def add(self, frame: Frame, tally: Tally) -> None:
        """Add the next frame of the dump."""
        limit = tally.bounds.frames
        if len(self.frames) - (self._cut if self.root_first else 0) >= limit:
            tally.note(f"frames left out: a thread shows more than {limit}")
            self.is_cut = True
            if not self.root_first:
                return
            self._cut += 1
        self.frames.append(frame)
        if self._cut >= limit:
            self._drop_root()

    def _drop_root(self) -> None:
        cut = self._cut
        del self.frames[:cut]
        self._variables = {at - cut: values for at, values in self._variables.items() if at >= cut}
        self._cut = 0

    def replace_last(self, *, source: str) -> None:
        """Give the last frame the text of its line."""
        last = self.frames[-1]
        self.frames[-1] = shared_frame(last.function, last.file, last.line, last.kind, source)

    def add_variable(self, name: str, value: str, tally: Tally) -> None:
        """Add a local variable of the last frame."""
        self._values += 1
        if self._values > tally.bounds.variables:
            tally.note(f"local variables left out: a thread shows more than {tally.bounds.variables}")
            return
        values = self._variables.setdefault(len(self.frames) - 1, [])
        values.append((name, value[:_LONGEST_VALUE]))

    def extend_variable(self, text: str) -> str:
        """Continue the value of the last variable on a new line; the whole value is returned."""
        values = self._variables.get(len(self.frames) - 1)
        if not values:
            return ""
        name, value = values[-1]
        value = f"{value}\n{text}"[:_LONGEST_VALUE]
        values[-1] = (name, value)
        return value

    @property
    def has_variables(self) -> bool:
        """Whether any variable was read."""
        return bool(self._variables)

    def build(self) -> ThreadStack:
        """The thread with its frames, leaf first."""
        self._drop_root()
        frames = self.frames[::-1] if self.root_first else self.frames
        last = len(frames) - 1
        variables = tuple(
            FrameVariables(last - at if self.root_first else at, tuple(values))
            for at, values in self._variables.items()
        )
        ordered = tuple(sorted(variables, key=lambda one: one.frame))
        return msgspec.structs.replace(
            self.stack, frames=tuple(frames), variables=ordered, is_cut=self.is_cut
        )


def with_end_marked(
    threads: Sequence[ThreadStack], tally: Tally
) -> tuple[list[ThreadStack], ThreadStack | None]:
    """The threads of a dump that writes leaf first; its last one is marked if it does not come to its root.

    Returns:
        The threads, and the one that the dump ended in, if any: nobody knows what thread it is.
    """
    marked = list(threads)
    if not marked or marked[-1].is_cut or _comes_to_its_root(marked[-1], alone=len(marked) == 1):
        return marked, None
    tally.note(END_MISSING)
    marked[-1] = msgspec.structs.replace(marked[-1], is_cut=True)
    return marked, marked[-1]


def _comes_to_its_root(thread: ThreadStack, *, alone: bool) -> bool:
    root = _python_root(thread)
    if root is None and not alone:
        return bool(thread.frames)  # C++ alone: a helper's may begin anywhere
    if root is not None and _is_python_root(thread, root):
        return True
    return bool(thread.frames) and thread.frames[-1].function.startswith(
        (*_NATIVE_MAIN_ROOTS, *_NATIVE_THREAD_ROOTS)
    )


def _is_python_root(thread: ThreadStack, root: Frame) -> bool:
    return root.function in _MAIN_ROOTS or root.function in _THREAD_ROOTS or _ends_the_interpreter(thread)


def with_main(
    threads: Sequence[ThreadStack], *, pid: int = 0, ended_in: ThreadStack | None = None
) -> tuple[ThreadStack, ...]:
    """Mark the main thread of one process, where it can be told.

    In this order: the thread whose id is the process's; the only one whose Python stack begins in a module
    (or in the interpreter's end); the only one with a Python stack that ``threading`` did not start; the only
    one whose C stack begins in ``main``. Among several, the one with the smallest id, for the kernel counts
    up; without ids, none. Of the thread that the dump ended in, only its id tells.
    """
    found = _main_index(threads, pid=pid, ended_in=ended_in)
    return tuple(
        thread if thread.is_main == (at == found) else msgspec.structs.replace(thread, is_main=at == found)
        for at, thread in enumerate(threads)
    )


def _main_index(threads: Sequence[ThreadStack], *, pid: int, ended_in: ThreadStack | None) -> int | None:
    if pid:
        for at, thread in enumerate(threads):
            if thread.thread_id == pid:
                return at
    for is_candidate in (begins_in_a_module, _ends_the_interpreter, _is_no_started_thread, _begins_in_main):
        candidates = [
            at for at, thread in enumerate(threads) if thread is not ended_in and is_candidate(thread)
        ]
        if len(candidates) == 1:
            return candidates[0]
        if candidates:
            known = [at for at in candidates if threads[at].thread_id]
            return min(known, key=lambda at: threads[at].thread_id) if len(known) == len(candidates) else None
    return None


def _python_root(thread: ThreadStack) -> Frame | None:
    return next((frame for frame in reversed(thread.frames) if frame.kind == "python"), None)


def begins_in_a_module(thread: ThreadStack) -> bool:
    """Whether its Python stack begins in a script or module, as only a main thread's does."""
    root = _python_root(thread)
    return root is not None and root.function in _MAIN_ROOTS


def _ends_the_interpreter(thread: ThreadStack) -> bool:
    root = _python_root(thread)
    return root is not None and root.function == "_shutdown" and root.file.endswith("threading.py")


def _is_no_started_thread(thread: ThreadStack) -> bool:
    root = _python_root(thread)
    if root is None or root.function in _THREAD_ROOTS:
        return False
    outermost = thread.frames[-1]
    return not (outermost.kind == "native" and outermost.function.startswith(_NATIVE_THREAD_ROOTS))


def _begins_in_main(thread: ThreadStack) -> bool:
    return bool(thread.frames) and thread.frames[-1].function.startswith(_NATIVE_MAIN_ROOTS)


def is_main_like(thread: ThreadStack) -> bool:
    """Whether it can only be a main thread."""
    return begins_in_a_module(thread) or _ends_the_interpreter(thread)


def split_processes(drafts: Sequence[ThreadDraft], tally: Tally) -> list[tuple[int, list[ThreadStack]]]:
    """Where one process ends and the next begins, in a run of threads without a word on processes.

    CPython lists its threads newest first, so that the main thread is the last with Python frames; pystack
    adds threads without any behind it, and separates threads by a blank line but not two of its runs. So
    after a main thread the next thread with Python frames begins a process if another main thread follows,
    or if nothing separates it from the thread before. A thread that was there already begins one, too.

    Returns:
        For each process the line of its first header, and its threads with the main one marked.
    """
    threads = [draft.build() for draft in drafts]
    mains_after = [0] * (len(drafts) + 1)
    for at in range(len(drafts) - 1, -1, -1):
        mains_after[at] = mains_after[at + 1] + is_main_like(threads[at])
    starts: list[int] = []
    seen: set[int] = set()
    has_main = False
    for at, (draft, thread) in enumerate(zip(drafts, threads, strict=True)):
        may_follow = draft.detached or mains_after[at] > 0
        follows_main = has_main and may_follow and _python_root(thread) is not None
        if at == 0 or draft.begins or follows_main or (draft.identity and draft.identity in seen):
            starts.append(at)
            seen, has_main = set(), False
        seen.add(draft.identity)
        has_main = has_main or is_main_like(thread)
    ends = [*starts[1:], len(drafts)]
    return [
        (drafts[start].line, _process(drafts[start:end], threads[start:end], tally))
        for start, end in zip(starts, ends, strict=True)
    ]


def _process(
    drafts: Sequence[ThreadDraft], threads: Sequence[ThreadStack], tally: Tally
) -> list[ThreadStack]:
    """The threads of one process, newest first, with the main one marked."""
    ended_in: ThreadStack | None = None
    marked = list(threads)
    if not drafts[-1].root_first:
        marked, ended_in = with_end_marked(threads, tally)
    found = with_main(marked, ended_in=ended_in)
    if not any(thread.is_main for thread in found):
        last = len(found) - 1
        if ended_in is None and found[last].is_cut and not drafts[last].root_first:
            # Its outer frames are left out; the main thread is the last one, and all others are known.
            return [*found[:last], msgspec.structs.replace(found[last], is_main=True)]
        tally.note(NO_MAIN)
    return list(found)
