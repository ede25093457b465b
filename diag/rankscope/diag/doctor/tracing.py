"""Whether stacks can be read: by trying, on processes of its own, with the tools that will be used.

The tried processes run this Python: that the tools understand it is part of the answer. Two of them, because
Yama lets a process read its descendants and nobody else: a child, as workers are to the agent, and one
that has lost its parent, as any job is to ``diag analyze``.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.diag.capture.tool import ToolRun, find_tool, run_tool
from rankscope.diag.doctor import Finding, Status, remedies
from rankscope.diag.proc_files import read_all, read_file, status_number

_CAP_SYS_PTRACE: Final = 19
_FUNCTION: Final = "rankscope_doctor_waits_here"
_READY_SECONDS: Final = 10.0
_TOOL_SECONDS: Final = 10.0
# Waits for its standard input to end: it ends with whoever started it, however that ends.
_WAITS: Final = f"""
import os, sys
def {_FUNCTION}():
    os.write(1, b"%d\\n" % os.getpid())
    sys.stdin.buffer.read()
if sys.argv[1] == "orphan" and os.fork():
    os._exit(0)
{_FUNCTION}()
"""
_COMMANDS: Final = {
    "py-spy": ("dump", "--pid"),
    "pystack": ("remote", "--no-color"),
}
TOOLS: Final = tuple(_COMMANDS)


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one tool on two processes.

    Attributes:
        path: of the tool, ``None`` when there is none.
        version: as it says itself.
        child: seconds it took to read a child, ``None`` when it could not; child_error is what it said.
        other: seconds for a process that is no descendant, and so on.
    """

    path: str | None
    version: str = ""
    child: float | None = None
    other: float | None = None
    child_error: str = ""
    other_error: str = ""


@dataclass(frozen=True, slots=True)
class Rights:
    """What decides on tracing.

    Attributes:
        yama: ``kernel.yama.ptrace_scope``, ``None`` without Yama.
        has_capability: whether this process has CAP_SYS_PTRACE.
        is_root: whether it runs as root (of its user namespace).
        seccomp: mode of its seccomp filter: 0 none, 2 filtered.
        container: what kind of container it seems to run in, ``""`` for none.
    """

    yama: int | None = None
    has_capability: bool = False
    is_root: bool = False
    seccomp: int = 0
    container: str = ""


def check_tool(name: str) -> Sequence[Finding]:
    """Try a tool."""
    return judge_trial(name, try_tool(name), read_rights())


def check_rights() -> Sequence[Finding]:
    """Say what decides on tracing."""
    return judge_rights(read_rights())


def judge_trial(name: str, trial: Trial, rights: Rights) -> Sequence[Finding]:
    """py-spy is needed; pystack tells more of a rank that does not move."""
    needed = name == "py-spy"
    bad: Status = "fail" if needed else "warn"
    if trial.path is None:
        return [Finding(name, bad, "not installed", remedies.install(name), needed=needed)]
    python = f"Python {'.'.join(map(str, sys.version_info[:3]))}"
    about = f"{trial.version or name} at {trial.path}"
    remedy = _remedy(rights)
    if trial.child is None:
        value = f"{about}: cannot read a process of its own: {trial.child_error}"
        return [Finding(name, bad, value, remedy, needed=needed)]
    if trial.other is None:
        value = f"{about}: reads children, but no other process of this user: {trial.other_error}"
        return [Finding(name, "warn", value, remedy, needed=needed)]
    return [Finding(name, "ok", f"{about}, read {python} in {trial.child * 1000:.0f} ms", needed=needed)]


def judge_rights(rights: Rights) -> Sequence[Finding]:
    """Why tracing works or does not; whether it does is tried with the tools."""
    return [_judge_capability(rights), _judge_yama(rights)]


def _judge_capability(rights: Rights) -> Finding:
    where = f"in a container ({rights.container})" if rights.container else "no container seen"
    filtered = ", system calls are filtered (seccomp)" if rights.seccomp else ""
    if rights.has_capability:
        reach = "CAP_SYS_PTRACE" if rights.seccomp else "CAP_SYS_PTRACE: all processes seen can be read"
        return Finding("ptrace", "ok", f"{reach}; {where}{filtered}")
    if rights.is_root or rights.container:
        value = f"no CAP_SYS_PTRACE: processes with more rights cannot be read; {where}{filtered}"
        return Finding("ptrace", "warn", value, remedies.ptrace(in_container=bool(rights.container)))
    return Finding("ptrace", "ok", f"processes of this user only (no CAP_SYS_PTRACE); {where}{filtered}")


def _judge_yama(rights: Rights) -> Finding:
    if rights.yama in {None, 0}:
        return Finding("yama", "ok", "not in the way" if rights.yama is None else "ptrace_scope 0")
    value = f"ptrace_scope {rights.yama}"
    if rights.yama == 3:  # noqa: PLR2004 - no attach at all
        return Finding("yama", "fail", f"{value}: nobody may trace", remedies.YAMA_CLOSED, needed=True)
    if rights.has_capability:
        return Finding("yama", "ok", f"{value}, which CAP_SYS_PTRACE overrides")
    if rights.yama == 1:
        return Finding("yama", "warn", f"{value}: only descendants can be read", remedies.YAMA)
    return Finding("yama", "fail", f"{value}: needs CAP_SYS_PTRACE", remedies.YAMA, needed=True)


def _remedy(rights: Rights) -> str:
    if rights.yama and not rights.has_capability:
        return remedies.YAMA if rights.yama != 3 else remedies.YAMA_CLOSED  # noqa: PLR2004
    return remedies.ptrace(in_container=bool(rights.container) or not rights.has_capability)


def read_rights() -> Rights:
    """Of this process."""
    status = read_file("/proc/self/status", 1 << 16)
    yama = read_file("/proc/sys/kernel/yama/ptrace_scope")
    return Rights(
        yama=int(yama) if yama and yama.strip().isdigit() else None,
        has_capability=bool(status_number(status, b"\nCapEff:", 16) >> _CAP_SYS_PTRACE & 1),
        is_root=os.geteuid() == 0,
        seccomp=status_number(status, b"\nSeccomp:"),
        container=container(),
    )


def container() -> str:
    """What kind of container this process seems to run in, ``""`` for none."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "Kubernetes"
    if Path("/.dockerenv").exists():
        return "Docker"
    if Path("/run/.containerenv").exists():
        return "Podman"
    groups = read_all("/proc/1/cgroup") or b""
    return next((name for name in ("kubepods", "docker", "containerd", "lxc") if name.encode() in groups), "")


def try_tool(name: str) -> Trial:
    """Run a tool on a child and on a process that is no descendant."""
    path = find_tool(name)
    if path is None:
        return Trial(None)
    version = run_tool([path, "--version"], deadline=time.monotonic() + _TOOL_SECONDS)
    with _process("child") as child, _process("orphan") as other:
        child_seconds, child_error = _read(name, path, child)
        other_seconds, other_error = _read(name, path, other)
    return Trial(
        path,
        version.stdout.decode("utf-8", "replace").strip().splitlines()[0] if version.stdout.strip() else "",
        child_seconds,
        other_seconds,
        child_error,
        other_error,
    )


@contextlib.contextmanager
def _process(kind: str) -> Generator[int]:
    """A Python process in a known function; ends when its standard input does."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WAITS, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None  # noqa: S101 - asked for above
    assert process.stdout is not None  # noqa: S101
    try:
        if not select.select([process.stdout], [], [], _READY_SECONDS)[0]:
            raise TimeoutError(f"a Python process did not start in {_READY_SECONDS:g} s")
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def _read(name: str, path: str, pid: int) -> tuple[float | None, str]:
    """Seconds it took to see the function that the process waits in, or why it was not seen."""
    started = time.monotonic()
    run = run_tool([path, *_COMMANDS[name], str(pid)], deadline=started + _TOOL_SECONDS)
    # Not by its name alone: py-spy prints the command line, with the program in it, before it fails.
    if run.code == 0 and _FUNCTION.encode() in run.stdout:
        return time.monotonic() - started, ""
    return None, _why(run)


def _why(run: ToolRun) -> str:
    if run.code is None:
        return f"no answer in {_TOOL_SECONDS:g} s"
    lines = [line.strip().removeprefix("Error: ") for line in run.stderr.splitlines() if line.strip()]
    if not lines:
        return f"exit code {run.code}, and not the function that the process waits in"
    is_denied = any(word in run.stderr for word in ("EPERM", "ermission denied", "not permitted"))
    return f"{lines[0]} (ptrace denied)" if is_denied else lines[0]
