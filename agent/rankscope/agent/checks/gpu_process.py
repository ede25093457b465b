"""The agent's handle on the process that asks NVIDIA's driver. ``poll`` never waits.

A query of the driver may never come back. The reader is then killed by its pid and tried again later; one
that not even SIGKILL ends hangs in the kernel: it is left, that is said, and no other is put beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from rankscope.agent.checks.gpu_facts import GpuReport
from rankscope.agent.checks.gpu_judge import NAME, judge_report
from rankscope.agent.checks.gpu_reader import INTERVAL
from rankscope.agent.health.model import Check

FIRST_DEADLINE: Final = 90.0
"""Seconds for the first line: without persistence mode the driver sets up each GPU first."""
DEADLINE: Final = INTERVAL + 20.0
KILL_DEADLINE: Final = 10.0
AGAIN_AFTER: Final = 600.0
_CLOSE_SECONDS: Final = 1.0
_MOST_BYTES: Final = 1 << 20
_BOOT: Final = (
    "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10));"
    " from rankscope.agent.checks.gpu_reader import main; sys.exit(main())"
)


def reader_command() -> list[str]:
    """The reader as a fresh interpreter that finds its modules where this one does."""
    paths = [path for path in sys.path if Path(path).is_absolute()]
    return [sys.executable, "-I", "-c", _BOOT, "\n".join(paths)]


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


class GpuProcess:
    """The reader and what it last said. One thread.

    Args:
        command: starts it.
        kill: ends a process by its id.
    """

    def __init__(self, command: Sequence[str] | None = None, *, kill: Callable[[int], None] = _kill) -> None:
        self._command = tuple(command or reader_command())
        self._kill = kill
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._heard = 0.0
        self._has_spoken = False
        self._killed: float | None = None
        self._due: float | None = 0.0
        self._checks: Mapping[str, Check] = {NAME: Check("pass", "being asked")}

    def poll(self, now: float) -> Mapping[str, Check]:
        """See to the process and take in what it has said.

        Args:
            now: ``time.monotonic()``.

        Returns:
            The checks as of its last line, by name.
        """
        if self._process is None:
            if self._due is not None and now >= self._due:
                self._start(now)
            return self._checks
        self._listen(self._process, now)
        code = self._process.poll()
        if code is not None:
            self._ended(self._process, code, now)
        elif self._killed is not None:
            self._look_whether_dead(self._process.pid, self._killed, now)
        elif now - self._heard > (DEADLINE if self._has_spoken else FIRST_DEADLINE):
            self._give_up(self._process.pid, now)
        return self._checks

    def close(self) -> None:
        """End it; one that cannot be ended is left."""
        process, self._process, self._due = self._process, None, None
        if process is None:
            return
        try:
            self._kill(process.pid)
            process.wait(_CLOSE_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            _forget(process)
        _stdout(process).close()

    def _start(self, now: float) -> None:
        try:
            self._process = process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                close_fds=True,
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._due = now + AGAIN_AFTER
            self._checks = {NAME: Check("warn", f"not asked: no process could be started: {error}")}
            return
        os.set_blocking(_stdout(process).fileno(), False)
        self._rest, self._heard, self._has_spoken, self._killed = b"", now, False, None

    def _listen(self, process: subprocess.Popen[bytes], now: float) -> None:
        said = _stdout(process).read(_MOST_BYTES)
        if not said:
            return
        *lines, rest = (self._rest + said).split(b"\n")
        self._rest = rest[:_MOST_BYTES]
        for line in lines:
            try:
                report = msgspec.json.decode(line, type=GpuReport)
            except msgspec.MsgspecError:
                continue  # half a line of one that was killed
            self._heard, self._has_spoken = now, True
            self._checks = judge_report(report)

    def _ended(self, process: subprocess.Popen[bytes], code: int, now: float) -> None:
        _stdout(process).close()
        self._process = None
        if self._killed is not None:
            self._due = now + AGAIN_AFTER
        elif code == 0 and self._has_spoken:
            self._due = None  # there is nothing to ask, which does not change
        else:
            self._due = now + AGAIN_AFTER
            self._checks = {NAME: Check("warn", f"not asked: the process that asks ended with {code}")}

    def _give_up(self, pid: int, now: float) -> None:
        self._killed = now
        silent = now - self._heard
        self._checks = {
            NAME: Check(
                "fail",
                f"the driver has not answered for {silent:.0f} s: try nvidia-smi; where it hangs too, drain "
                "and reboot the node",
            )
        }
        try:
            self._kill(pid)
        except OSError:
            return  # gone already

    def _look_whether_dead(self, pid: int, killed: float, now: float) -> None:
        if now - killed < KILL_DEADLINE:
            return
        self._checks = {
            NAME: Check(
                "fail",
                f"the driver hangs: process {pid}, which asked it, cannot be killed (uninterruptible sleep): "
                "drain and reboot the node",
            )
        }


def _stdout(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None  # noqa: S101 - asked for above
    return process.stdout


def _forget(process: subprocess.Popen[bytes]) -> None:
    """Whether it still runs is nobody's business any more: no warning at the interpreter's end."""
    process.returncode = -signal.SIGKILL
