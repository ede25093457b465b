"""What is fetched when a person asks: the stack of a rank, an analysis of the job. Each in its own thread."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.diag.discover.found import FoundRank
from rankscope.diag.model import RankSnapshot

_LOOK_SECONDS: Final = 5.0
_MAIN: Final = "import sys; from rankscope.diag.main import main; sys.exit(main())"
_LONGEST_ANALYSIS: Final = 120.0
_END_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came of it: of which request, and the lines to show."""

    number: int
    lines: tuple[str, ...]


class Panels:
    """Fetches one thing at a time for the screen; what was asked for before is dropped."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Nothing is fetched yet.

        Args:
            wake: is called when something has come.
        """
        self._wake = wake
        self._lock = threading.Lock()
        self._number = 0
        self._lines: tuple[str, ...] = ()
        self._threads: list[threading.Thread] = []
        self._process: subprocess.Popen[str] | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """What there is to show."""
        with self._lock:
            return self._lines

    def ask_stack(self, rank: FoundRank | None) -> None:
        """Fetch the stack of a rank without stopping it."""
        if rank is None:
            self._start("", lambda _: ("this rank has no process here now",))
        else:
            self._start(f"looking at process {rank.pid} ...", lambda _: stack_lines(look_at(rank)))

    def ask_analysis(self, target: Sequence[str], width: int) -> None:
        """Have the job analysed, as ``diag analyze`` does."""
        self._start(
            "analysing: two looks some seconds apart ...", lambda number: self._analyse(number, target, width)
        )

    def close(self) -> None:
        """End what is under way, and wait for it."""
        with self._lock:
            self._number += 1
        ended = self._end_process()
        until = time.monotonic() + _LOOK_SECONDS + _END_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if ended is not None and ended.poll() is None:
            ended.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                ended.wait(_END_SECONDS)

    def _start(self, meanwhile: str, fetch: Callable[[int], Sequence[str]]) -> None:
        with self._lock:
            self._number += 1
            number = self._number
            self._lines = (meanwhile,)
        self._end_process()

        def run() -> None:
            try:
                lines = tuple(fetch(number))
            except Exception as error:  # noqa: BLE001 - the edge of a thread: said, not raised
                lines = (f"it could not be had: {error}",)
            with self._lock:
                if number != self._number:
                    return
                self._lines = lines
            self._wake()

        thread = threading.Thread(target=run, name="rankscope-top-panel", daemon=True)
        self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        thread.start()

    def _analyse(self, number: int, target: Sequence[str], width: int) -> Sequence[str]:
        with subprocess.Popen(
            [sys.executable, "-c", _MAIN, "analyze", *target],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": str(width)},
        ) as process:
            with self._lock:
                is_wanted = number == self._number
                if is_wanted:
                    self._process = process
            if not is_wanted:  # dropped while it was being started, when nobody else knew of it
                process.terminate()
            try:
                out, _ = process.communicate(timeout=_LONGEST_ANALYSIS if is_wanted else _END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                return (f"no answer within {_LONGEST_ANALYSIS:.0f} s: diag analyze {' '.join(target)}",)
        return out.splitlines()

    def _end_process(self) -> subprocess.Popen[str] | None:
        """Ask what analyses to end; which process that is."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.poll() is None:
            with contextlib.suppress(OSError):
                process.terminate()
        return process


def look_at(rank: FoundRank) -> RankSnapshot:
    """One look at one rank that stops nobody: a stack may be torn."""
    from rankscope.diag.capture import Target, capture_ranks

    target = Target(rank=rank.rank, pid=rank.pid, start_ticks=rank.start_ticks)
    (seen,) = capture_ranks(
        [target], timeout=_LOOK_SECONDS, children=False, blocking=False, record=False, backends=("py-spy",)
    )
    return seen


def stack_lines(seen: RankSnapshot) -> tuple[str, ...]:
    """The threads of a rank, the main one first, each leaf first."""
    if not seen.threads:
        return (f"no stack: {seen.reason or 'its process is gone'}",)
    lines: list[str] = []
    for thread in sorted(seen.threads, key=lambda one: not one.is_main):
        active = {True: ", at work", False: ", idle", None: ""}[thread.active]
        gil = ", has the GIL" if thread.holds_gil else ""
        name = "main thread" if thread.is_main else f"thread {thread.name or ''}"
        lines.append(f"{name} {thread.thread_id or ''}{active}{gil}".rstrip())
        lines += [
            f"    {frame.function} ({frame.short_file or frame.file}:{frame.line})" for frame in thread.frames
        ]
    if seen.reason:
        lines.append(f"({seen.reason})")
    return tuple(lines)


def analysis_target(job_dir: str | None, name: str | None, pids: Mapping[int, int]) -> tuple[str, ...]:
    """How ``diag analyze`` is told of the job: its folder, its name, or its processes."""
    if job_dir is not None:
        return (job_dir,)
    if name is not None:
        return (name,)
    return ("--pid", ",".join(str(pid) for pid in sorted(pids.values())))
