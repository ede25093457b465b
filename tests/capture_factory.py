"""Real processes for the capture room's tests: started, ready when handed out, ended and collected after."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

from tests import deadline

DEADLINE = deadline.DEADLINE

WAITING = """
import sys, threading, time
def inner_call(): time.sleep(1000)
def outer_call(): inner_call()
threading.Thread(target=outer_call, name="helper", daemon=True).start()
print("ready", flush=True)
outer_call()
"""

WITH_CHILDREN = """
import os, subprocess, sys, time
def load_batches(): time.sleep(1000)
forked = os.fork()
if forked == 0:
    load_batches()
other = subprocess.Popen(["sleep", "1000"])
print("ready", forked, other.pid, flush=True)
def wait_for_loader(): os.waitpid(forked, 0)
wait_for_loader()
"""


@contextlib.contextmanager
def running(
    code: str, *, env: Mapping[str, str] | None = None, argv: tuple[str, ...] = ()
) -> Generator[subprocess.Popen[bytes]]:
    """A Python process that has printed its first line (kept in ``first_line``), in a session of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *argv],
        stdout=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        end_group(process)


def first_line(process: subprocess.Popen[bytes]) -> list[str]:
    """The words of the next line a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().decode().split()


@contextlib.contextmanager
def waiting_process(*, env: Mapping[str, str] | None = None) -> Generator[subprocess.Popen[bytes]]:
    """A process with two threads, both in ``inner_call``."""
    with running(WAITING, env=env) as process:
        assert first_line(process) == ["ready"]
        wait_until(lambda: state_of(process.pid) == "S")
        yield process


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and whatever it started in its session, and collect it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=DEADLINE)
    if process.stdout is not None:
        process.stdout.close()


def state_of(pid: int) -> str | None:
    """Kernel state letter of a process, ``None`` when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def wait_until(condition: Callable[[], bool], *, within: float = DEADLINE) -> None:
    """Poll a condition until it holds; fail the test when it does not in time (seconds)."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.005)


HIDDEN = """
import ctypes, time
PR_SET_DUMPABLE = 4
assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
print("ready", flush=True)
time.sleep(1000)
"""
"""A process that nobody may trace without the capability for it."""


def seen_without_ptrace(imports: str, code: str, *argv: str) -> str:
    """Run Python code as this user without the capability to trace, and return what it printed.

    For another user than root that is so anyway, where the process looked at is ``HIDDEN``.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{imports}\n{code}", *argv],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
        preexec_fn=_drop_ptrace,
    )
    return done.stdout.strip()


def _drop_ptrace() -> None:
    drop_from_bounding_set, sys_ptrace = 24, 19
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(drop_from_bounding_set, sys_ptrace, 0, 0, 0)


def seen_without_capabilities(imports: str, code: str, *argv: str) -> str:
    """Run Python code as a process that may not trace others, and return what it printed.

    Root gives up its user after the imports (the interpreter need not be readable to others).
    """
    nobody = 65534
    drop = f"os.setgroups([]); os.setresgid(*3 * [{nobody}]); os.setresuid(*3 * [{nobody}])"
    script = f"import os, sys\n{imports}\nif os.geteuid() == 0: {drop}\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", script, *argv], capture_output=True, text=True, timeout=DEADLINE, check=True
    )
    return done.stdout.strip()


TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
set_name, attach, seize = 15, 16, 0x4206
name, pid, stop = sys.argv[1].encode(), int(sys.argv[2]), sys.argv[3] == "stop"
libc.prctl(set_name, name, 0, 0, 0)
assert libc.ptrace(attach if stop else seize, pid, None, None) == 0, os.strerror(ctypes.get_errno())
if stop:
    os.waitpid(pid, 0x40000000)  # __WALL
print("traced", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def traced(pid: int, *, name: str = "tracer", stopped: bool = False) -> Generator[int]:
    """Trace a process as a debugger does; gives the tracer's pid.

    Args:
        pid: the process.
        name: the kernel's name of the tracer.
        stopped: whether it holds the process; else it only watches it.
    """
    command = [sys.executable, "-c", TRACER, name, str(pid), "stop" if stopped else "watch"]
    tracer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert tracer.stdout is not None
        assert tracer.stdout.readline() == "traced\n"
        yield tracer.pid
    finally:
        tracer.communicate(timeout=DEADLINE)
