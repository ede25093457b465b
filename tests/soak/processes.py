"""Reads what a job's processes hold, from ``/proc``. Judges nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.soak.samples import Gauges

from rankscope.diag import proc

_KIB: Final = 1024
_OURS: Final = "rankscope-"
_COMM_LENGTH: Final = 15
"""The kernel keeps so many characters of a name."""
NAMES: Final = {"healt": "health server", "drain": "log drain", "notes": "notices"}


@dataclass(frozen=True, slots=True)
class Family:
    """The processes below an agent, its ranks left out.

    Attributes:
        lasting: the agent and its helpers, by name.
        passing: how many others run.
        zombies: how many have ended and are still children.
    """

    lasting: Mapping[str, int]
    passing: int
    zombies: int


def family_of(agent: int, ranks: Iterable[int]) -> Family:
    """Who runs below ``agent``, which is itself one of them."""
    lasting, passing, zombies = {"agent": agent}, 0, 0
    known = set(ranks)
    below = [pid for pid in proc.children(agent) if pid not in known]
    while below:
        pid = below.pop(0)
        facts = proc.read_facts(pid, now=0.0)
        if facts is None:
            continue
        below += proc.children(pid)
        if facts.state in ("Z", "X"):
            zombies += 1
        elif facts.comm.startswith(_OURS) and (name := _name_of(facts.comm)) not in lasting:
            lasting[name] = pid
        else:
            passing += 1  # a tool, or a fork of a helper that delivers one notice
    return Family(lasting, passing, zombies)


def _name_of(comm: str) -> str:
    own = comm[:_COMM_LENGTH].removeprefix(_OURS)
    return NAMES.get(own, own)


def gauges_of(pid: int) -> Gauges | None:
    """What a process holds now, ``None`` when there is none any more."""
    folder = Path("/proc", str(pid))
    try:
        memory = _fields(folder / "smaps_rollup")
        status = _fields(folder / "status")
        descriptors = len(os.listdir(folder / "fd"))  # noqa: PTH208 - names are enough
    except (OSError, ValueError):
        return None
    if "Rss" not in memory or "Threads" not in status:
        return None
    return Gauges(
        pid,
        memory["Rss"] * _KIB,
        memory["Pss"] * _KIB,
        memory["Anonymous"] * _KIB,
        status["Threads"],
        descriptors,
        cpu_of(pid),
    )


def cpu_of(pid: int) -> float:
    """CPU seconds of the threads of a process that live (nanoseconds, where ``stat`` has ticks)."""
    total = 0
    for task in Path("/proc", str(pid), "task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError):
            total += int(task.read_text().split()[0])
    return total * 1e-9


def _fields(path: Path) -> dict[str, int]:
    """The lines ``Name: number ...`` of a file of ``/proc``."""
    found: dict[str, int] = {}
    for line in path.read_text(errors="replace").splitlines():
        name, _, rest = line.partition(":")
        first = rest.split()[:1]
        if first and first[0].isdecimal():
            found[name] = int(first[0])
    return found


def files_below(*folders: Path) -> int:
    """How many files lie in folders and below."""
    return sum(len(files) for folder in folders for _path, _folders, files in os.walk(folder))


def bytes_below(folder: Path) -> int:
    """What the files below a folder take."""
    total = 0
    for path, _folders, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += Path(path, name).stat().st_size
    return total
