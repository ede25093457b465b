"""One run of an outside tool: started, waited for until a deadline, ended, collected.

It must not know which tool it is nor what the output means. Whatever happens, no process, descriptor or
temporary file of the run is left when ``run_tool`` returns, and it returns soon after its deadline.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Guarded = Callable[[int], AbstractContextManager[None]]
MOST_BYTES: Final = 1 << 24
"""What a tool may write: the stacks of 1,000 threads with native frames are a tenth of it."""
UNGUARDED_SECONDS: Final = 0.05
"""A tool is looked after (``guard``) only when it takes longer: a plain py-spy ends by itself in 10 ms."""
_KILL_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What came of a run.

    Attributes:
        code: exit code as Python has it, -1 when it could not be started, ``None`` when it ran into its
            deadline and was ended.
        stdout: its output.
        stderr: its messages, or why it could not be started.
    """

    code: int | None
    stdout: bytes = b""
    stderr: str = ""


def find_tool(name: str) -> str | None:
    """Path of a tool: beside this Python, else on ``PATH``."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def run_tool(
    command: Sequence[str],
    *,
    deadline: float,
    guarded: Guarded | None = None,
) -> ToolRun:
    """Run a tool without input and with an almost empty environment.

    Args:
        command: path and arguments.
        deadline: ``time.monotonic()`` at which it is killed, with its whole process group.
        guarded: looks after it, given its pid, should this process be killed meanwhile.
    """
    try:
        # Memory files, not pipes: nothing to drain while it runs, so that one wait is all there is.
        with _memory_file("stdout") as out, _memory_file("stderr") as err:
            with _running(command, out=out, err=err) as process:
                code = _wait(process, deadline=min(deadline, time.monotonic() + UNGUARDED_SECONDS))
                if code is None and time.monotonic() < deadline:
                    with _guarded(guarded, process.pid):
                        code = _wait(process, deadline=deadline)
            if max(os.fstat(file.fileno()).st_size for file in (out, err)) >= MOST_BYTES:
                return ToolRun(code or -1, stderr=f"its output is larger than {MOST_BYTES >> 20} MiB")
            out.seek(0)
            err.seek(0)
            return ToolRun(code, out.read(), err.read().decode("utf-8", "replace"))
    except OSError as error:  # no such program, or no descriptor or process left to be had
        return ToolRun(-1, stderr=f"cannot start {command[0]}: {error.strerror}")


def _guarded(guarded: Guarded | None, pid: int) -> AbstractContextManager[None]:
    return guarded(pid) if guarded is not None else contextlib.nullcontext()


def _memory_file(name: str) -> io.FileIO:
    return io.FileIO(os.memfd_create(f"rankscope-tool-{name}", os.MFD_CLOEXEC), "r+")


@contextlib.contextmanager
def _running(command: Sequence[str], *, out: io.FileIO, err: io.FileIO) -> Generator[subprocess.Popen[bytes]]:
    """The tool in a process group of its own; whatever happens, it has ended when this does."""
    process = _start(command, out, err, {"PATH": os.environ.get("PATH", os.defpath)})
    # Memory that a tool fills without end is the training's. A privileged tool keeps its own limits.
    with contextlib.suppress(OSError):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    try:
        yield process
    finally:
        if process.poll() is None:
            _kill(process)


def _start(
    command: Sequence[str], out: io.FileIO, err: io.FileIO, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start it as the leader of a process group.

    Not of a session, where Python can do without: a new session is a new scheduling group of its own
    (autogroup), and on a busy host the tool then ran 2.4 times as long (measured), its target stopped.
    """
    if sys.version_info >= (3, 11):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environ, process_group=0
        )
    else:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environ, start_new_session=True
        )
    return process


def _wait(process: subprocess.Popen[bytes], *, deadline: float) -> int | None:
    """Exit code, ``None`` at the deadline. ``Popen.wait(timeout)`` naps for up to 50 ms between looks."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:  # a kernel before 5.3, or a sandbox
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        return process.returncode
    try:
        ended = select.poll()
        ended.register(fd, select.POLLIN)
        ended.poll(max(0.0, deadline - time.monotonic()) * 1000)
    finally:
        os.close(fd)
    return process.poll()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(timeout=_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        _log.warning("%s (process %d) does not end: blocked in the kernel", process.args, process.pid)
