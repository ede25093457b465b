"""What the world around a job does while it runs: stops it by a signal, feeds it late, holds up a command.

Every function waits for the job to print a line first, and undoes what it did.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.faults.draw import Draw
from tests.faults.rows import Command
from tests.jobs import Job, until

from rankscope.diag import proc

_PATIENCE: Final = 60.0
LONGEST_HOLD: Final = 40.0
"""Seconds; the kernel breaks a lease by itself after 45 (``/proc/sys/fs/lease-break-time``)."""


def pause_everything(job: Job, _draw: Draw, *, after: str, seconds: float) -> None:
    """Stop the agent and all that descends from it, as a batch system does, and continue it."""
    _wait_for_line(job, after)
    _pause([job.pid, *proc.descendants(job.pid)], seconds)


def pause_workers(job: Job, _draw: Draw, *, after: str, seconds: float) -> None:
    """The same for the workers alone."""
    _wait_for_line(job, after)
    _pause([worker.pid for worker in job.agent().workers], seconds)


def with_pipe(command: Command, folder: Path, draw: Draw) -> list[str]:
    """The command, with the pipe ``source`` in its folder."""
    os.mkfifo(folder / "source")
    return command(folder, draw)


def feed_late(job: Job, _draw: Draw, *, after: str, seconds: float) -> None:
    """Write into the pipe ``source``, which the job reads, only after so long."""
    pipe = os.open(job.folder / "source", os.O_RDWR)  # opened for reading as well, it never blocks
    try:
        _wait_for_line(job, after)
        time.sleep(seconds)
        os.write(pipe, b"data")
    finally:
        os.close(pipe)


def with_converter(command: Command, folder: Path, draw: Draw) -> list[str]:
    """The command, with the program ``source`` in its folder."""
    (folder / "source").write_text("#!/bin/sh\nexit 0\n")
    (folder / "source").chmod(0o700)
    return command(folder, draw)


def hold_start(job: Job, _draw: Draw, *, after: str, seconds: float) -> None:
    """Hold a lease on the program ``source``: who starts it waits in the kernel, in uninterruptible sleep.

    The child waits in ``execve`` for the lease, its parent in ``vfork`` for the child (measured: state D,
    wchan ``kernel_clone``).
    """
    file = os.open(job.folder / "source", os.O_RDONLY)
    try:
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)  # the default SIGIO would end this process
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        _wait_for_line(job, after)
        time.sleep(min(seconds, LONGEST_HOLD))
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    finally:
        os.close(file)


def _wait_for_line(job: Job, text: str) -> None:
    assert job.process is not None
    process = job.process
    until(
        lambda: text in job.stdout or process.poll() is not None,
        f"the job to print {text!r}",
        seconds=_PATIENCE,
    )
    assert text in job.stdout, f"the job ended without printing {text!r}"


def _pause(pids: Iterable[int], seconds: float) -> None:
    stopped: list[int] = []
    try:
        stopped.extend(pid for pid in pids if _signal(pid, signal.SIGSTOP))
        time.sleep(seconds)
    finally:
        for pid in stopped:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False
