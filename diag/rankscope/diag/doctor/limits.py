"""What the kernel and the host allow a process: descriptors, locked memory, core files, ports, the clock."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rankscope.diag.doctor import Finding
from rankscope.diag.proc_files import read_file

_FEW_FILES: Final = 4096
_UNSYNCHRONISED: Final = 0x40  # STA_UNSYNC, adjtimex(2)


def check_files() -> Sequence[Finding]:
    """Descriptors of this process."""
    return judge_files(*resource.getrlimit(resource.RLIMIT_NOFILE))


def judge_files(soft: int, hard: int) -> Sequence[Finding]:
    """Each worker's output, page and sockets take some; data loaders take many."""
    value = f"{_limit(soft)} (at most {_limit(hard)})"
    if soft == resource.RLIM_INFINITY or soft >= _FEW_FILES:
        return [Finding("open files", "ok", value)]
    return [Finding("open files", "warn", value, f"ulimit -n {_FEW_FILES * 4}, before the job is launched")]


def check_locked_memory() -> Sequence[Finding]:
    """Locked memory, which RDMA needs."""
    has_rdma = bool(list(Path("/sys/class/infiniband").glob("*")))
    return judge_locked_memory(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], has_rdma=has_rdma)


def judge_locked_memory(soft: int, *, has_rdma: bool) -> Sequence[Finding]:
    """Only hosts with RDMA devices need it without a limit."""
    value = _limit(soft) if soft == resource.RLIM_INFINITY else f"{soft >> 10} KiB"
    if not has_rdma:
        return [Finding("locked memory", "ok", f"{value}, no RDMA device")]
    if soft == resource.RLIM_INFINITY:
        return [Finding("locked memory", "ok", value)]
    remedy = "ulimit -l unlimited; Docker: --ulimit memlock=-1"
    return [Finding("locked memory", "warn", f"{value}: NCCL over RDMA may fail to start", remedy)]


def check_core_files() -> Sequence[Finding]:
    """Where the core of a crashed worker would go."""
    pattern = (read_file("/proc/sys/kernel/core_pattern") or b"").decode("utf-8", "replace").strip()
    return judge_core_files(resource.getrlimit(resource.RLIMIT_CORE)[0], pattern)


def judge_core_files(soft: int, pattern: str) -> Sequence[Finding]:
    """Nothing needs them; it is good to know where they go before a crash."""
    if pattern.startswith("|"):
        program = pattern[1:].split(maxsplit=1)[:1]
        return [Finding("core files", "ok", f"handed to {''.join(program)}")]
    return [Finding("core files", "ok", "none (ulimit -c 0)" if soft == 0 else f"written to {pattern!r}")]


def check_clock() -> Sequence[Finding]:
    """Whether the kernel thinks that its clock follows a server."""
    return judge_clock(_clock_status())


def judge_clock(status: int | None) -> Sequence[Finding]:
    """Records of several nodes are put in order by their times."""
    if status is None:
        return [Finding("clock", "ok", "the kernel does not say whether it is synchronised")]
    if status & _UNSYNCHRONISED:
        remedy = "run chrony or ntpd; a job of one node does not need it"
        return [Finding("clock", "warn", "not synchronised, as far as the kernel knows", remedy)]
    return [Finding("clock", "ok", "synchronised")]


def check_ports(ports: Sequence[int]) -> Sequence[Finding]:
    """The loopback address, and ports that the health server shall have."""
    findings = [_try_port("127.0.0.1", 0, "loopback", needed=True)]
    findings += [_try_port("", port, f"port {port}", needed=False) for port in dict.fromkeys(ports)]
    return findings


def _try_port(host: str, port: int, what: str, *, needed: bool) -> Finding:
    try:
        with contextlib.closing(socket.create_server((host, port))) as server:
            number = server.getsockname()[1]
            if not port:
                socket.create_connection((host, number), timeout=2).close()
    except OSError as error:
        remedy = "choose another --diag-port, or 0 for a free one" if port else "ip link set lo up"
        why = os.strerror(error.errno) if error.errno else str(error)
        return Finding(what, "fail" if needed else "warn", why, remedy, needed=needed)
    return Finding(what, "ok", "free" if port else "a port can be bound and reached", needed=needed)


def _clock_status() -> int | None:
    """``status`` of ``adjtimex(2)``: the fifth member of the struct, at 40 bytes on 64-bit Linux."""
    buffer = ctypes.create_string_buffer(512)
    if ctypes.CDLL(None).adjtimex(buffer) < 0:
        return None
    return int.from_bytes(buffer.raw[40:44], "little")


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)
