"""Whether the only look at a rank shows it asleep or at work, from the stack alone.

One look without process counters cannot tell a rank that is stuck from one that is slow; that it sleeps in
the kernel, or computes in native code, can be seen in some dumps.
"""

from __future__ import annotations

import itertools
import re
from typing import Final, Literal

from rankscope.diag.classify.catalogue import Catalogue, Label
from rankscope.diag.classify.position import Position, SourceLine, source_of
from rankscope.diag.model import Frame, ThreadStack

Running = Literal["asleep", "pauses", "computes", "python", "unknown"]
"""``python``: it owns the GIL and runs, in an endless loop or in honest work. ``pauses``: it sleeps for a
time that it chose, which ends by itself."""

_LARGEST_TID: Final = 1 << 22  # Linux' highest process id: beyond it, py-spy knew the pthread only
# What a thread in it cannot do while it runs.
_ASLEEP: Final[frozenset[Label | None]] = frozenset(
    {"loader_wait", "exit", "lock", "child_process", "storage", "network", "no_task"}
)
_PAUSES: Final = re.compile(r"nanosleep|built-in method sleep of")  # libc's, and gdb's ``py-bt``
_NAMED: Final = re.compile(
    r"[A-Za-z_]{3}"
)  # of ``??``, ``0x7f05c1ea3f16``, ``<built-in ...`` nothing is known


def running(
    position: Position, *, source: str | None, catalogue: Catalogue, source_line: SourceLine
) -> Running:
    """What the deciding thread did when ``source`` looked at it."""
    thread = position.thread
    user = position.user_frame
    text = source_of(user, source_line) if user is not None and user is position.leaf else None
    if position.label == "pause" or _sleeps_for_a_time(thread):
        return "pauses"
    if position.label == "no_task" or catalogue.is_asleep(thread.frames):
        return "asleep"  # whatever py-spy says of a thread that waits in C++ for its next task
    if position.label == "gpu_wait":
        return "unknown"  # CUDA spins: that it runs does not say that it computes
    # Only py-spy tells; faulthandler's current thread is the one that its signal interrupted, asleep or not.
    active = _active(thread) if source is not None and source.startswith("py-spy") else None
    if thread.holds_gil:
        return "asleep" if active is False else "python"
    if active is not None:
        return "computes" if active else "asleep"
    # A line that reads like a wait is one in a thread that does not run; faulthandler does not tell.
    by_frames = position.label in _ASLEEP and user is not position.leaf
    if by_frames or (
        thread.holds_gil is False and (position.label in _ASLEEP or (text and catalogue.may_block(text)))
    ):
        return "asleep"
    works = any(_NAMED.match(frame.function) for frame in _native_leaf(thread))
    return "computes" if works or (text and thread.holds_gil is False) else "unknown"


def _active(thread: ThreadStack) -> bool | None:
    """Whether it ran; a sleeping thread whose thread id py-spy does not know is active as well (measured)."""
    return thread.active if thread.thread_id <= _LARGEST_TID else None


def _sleeps_for_a_time(thread: ThreadStack) -> bool:
    return any(_PAUSES.search(frame.function) for frame in _native_leaf(thread))


def _native_leaf(thread: ThreadStack) -> list[Frame]:
    return list(itertools.takewhile(lambda frame: frame.kind == "native", thread.frames))
