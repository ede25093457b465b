"""What the world around a slow job does: fills its pipes slowly, lets others run on its core.

Whatever is started here is ended with the trial.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.faults.draw import Draw
from tests.faults.ranks_of import pid_of
from tests.jobs import Job, until

_RECORD: Final = b"\x40" * 4096
_QUICK, _SLOW = 0.002, 0.7
_PATIENCE: Final = 60.0
_NEIGHBOURS: Final = 6
_NICE: Final = -10
_SPIN: Final = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
_spinning: dict[Path, list[subprocess.Popen[bytes]]] = {}


@contextmanager
def slow_source(folder: Path, draw: Draw) -> Generator[None]:
    """A named pipe a rank, filled as fast as they are read until the drawn step, and slowly from then on.

    One storage serves all: it is slow for all at the same time.
    """
    pipes = [_pipe(folder / f"source-{rank}") for rank in range(draw.ranks)]
    done = threading.Event()
    filler = threading.Thread(target=_fill, args=(pipes, draw.at, done), name="fill", daemon=True)
    filler.start()
    try:
        yield
    finally:
        done.set()
        filler.join(_PATIENCE)
        for pipe in pipes:
            os.close(pipe)


def _pipe(path: Path) -> int:
    """Open for both, so that neither end waits for the other; one record fits in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, len(_RECORD))
    return pipe


def _fill(pipes: Sequence[int], quick: int, done: threading.Event) -> None:
    """Write a record wherever there is room; after so many each only every now and then."""
    written = 0
    while not done.wait(_QUICK if written < quick * len(pipes) else _SLOW):
        for pipe in pipes:
            with contextlib.suppress(BlockingIOError):
                written += os.write(pipe, _RECORD) > 0


@contextmanager
def neighbours_end(folder: Path, _draw: Draw) -> Generator[None]:
    """End the neighbours that were started meanwhile."""
    try:
        yield
    finally:
        for process in _spinning.pop(folder, []):
            process.kill()
            process.wait(_PATIENCE)


def start_neighbours(job: Job, draw: Draw) -> None:
    """Put the drawn rank on a core of its own, and from the drawn step on processes that spin beside it.

    Ranks and neighbours come before whatever else this host does, where that may be asked for (root): else a
    busy host starves all ranks alike.
    """
    first, *others = sorted(os.sched_getaffinity(0))
    for rank in range(draw.ranks):
        pid = pid_of(job, rank)
        for thread in Path(f"/proc/{pid}/task").iterdir():
            _put_on(int(thread.name), {first} if rank == draw.rank else set(others or [first]))
    until(lambda: f"step {draw.at} " in job.stdout, f"step {draw.at}", seconds=_PATIENCE)
    spinning = _spinning.setdefault(job.folder, [])
    for _ in range(_NEIGHBOURS):
        process = subprocess.Popen([sys.executable, "-S", "-c", _SPIN], start_new_session=True)
        spinning.append(process)
        _put_on(process.pid, {first})


def _put_on(thread: int, cores: set[int]) -> None:
    """One thread; those that it starts inherit it."""
    with contextlib.suppress(ProcessLookupError):
        os.sched_setaffinity(thread, cores)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, _NICE)
            # Where sessions share the cores (CONFIG_SCHED_AUTOGROUP), a session has a priority of its own.
            Path(f"/proc/{thread}/autogroup").write_text(str(_NICE))
