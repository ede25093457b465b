"""pystack as a backend: its command, what its output gives, and one question that only it answers.

The question is whether a process is collecting garbage, for the frames show only the line that it began at.
The process is not stopped for it (``--no-block``), so an answer may be missed: ask more than once. Nothing
here knows a rank.
"""

from __future__ import annotations

import re
import time
from typing import Final

import msgspec

from rankscope.diag.capture.tool import find_tool, run_tool
from rankscope.diag.model import ThreadStack
from rankscope.diag.read.stream import read_contents

LOOKS: Final = 3
_TIMEOUT: Final = 3.0  # seconds a look; measured 0.1-0.2 s on an idle machine
# `Traceback for thread 12 (python) [Has the GIL,Garbage collecting] (most recent call last):`, pystack 1.5
_COLLECTING: Final = re.compile(rb"^Traceback for thread .*\[[^\]]*Garbage collecting[^\]]*\]", re.MULTILINE)


def find_pystack() -> str | None:
    """Path of pystack: beside this Python, else on ``PATH``."""
    return find_tool("pystack")


def pystack_command(path: str, flags: tuple[str, ...], pid: int) -> list[str]:
    """The command line of one dump."""
    return [path, *flags, str(pid)]


def read_pystack(output: bytes, *, pid: int) -> tuple[tuple[ThreadStack, ...], str]:
    """The threads of a dump, and why there are none."""
    threads = tuple(thread for dump in read_contents([output]).dumps for thread in dump.threads)
    return with_main(threads, pid=pid), "pystack saw no Python thread"


def with_main(threads: tuple[ThreadStack, ...], *, pid: int) -> tuple[ThreadStack, ...]:
    """Mark the main thread, whose id is the process's, where the reader could not know it."""
    return tuple(
        msgspec.structs.replace(thread, is_main=True) if thread.thread_id == pid else thread
        for thread in threads
    )


def collects_garbage(
    pid: int, *, deadline: float, looks: int = LOOKS, pystack: str | None = None
) -> bool | None:
    """Whether a thread of the process was seen collecting garbage.

    Args:
        pid: the process.
        deadline: ``time.monotonic()`` at which to stop asking.
        looks: how often it is asked at most.
        pystack: path of the tool, found by default.

    Returns:
        ``None`` when no look succeeded: pystack is missing, or may not trace, or it is no Python process.
    """
    tool = pystack or find_pystack()
    answered = False
    for _ in range(looks if tool is not None else 0):
        limit = min(deadline, time.monotonic() + _TIMEOUT)
        run = run_tool([str(tool), "remote", "--no-color", "--no-block", str(pid)], deadline=limit)
        if _COLLECTING.search(run.stdout):
            return True
        answered |= run.code == 0
        if time.monotonic() >= deadline:
            break
    return False if answered else None
