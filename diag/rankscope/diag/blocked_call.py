"""The file that a sleeping process's system call works on, by its path.

C calls leave no Python frame, and a checkpoint's path is seldom on the line that writes it: the kernel knows
it. Linux on x86-64 and arm64. Only of processes in interruptible sleep: what the kernel holds in D may hold
the locks that are asked for here, and is never waited on. It knows nothing of ranks.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

from rankscope.diag.proc_files import read_file

# Numbers from the kernel's tables (asm/unistd_64.h, asm-generic/unistd.h).
_BY_DESCRIPTOR: Final = {
    "x86_64": {
        0: "read",
        1: "write",
        17: "pread64",
        18: "pwrite64",
        19: "readv",
        20: "writev",
        72: "fcntl",
        73: "flock",
        74: "fsync",
        75: "fdatasync",
    },
    "aarch64": {
        63: "read",
        64: "write",
        65: "readv",
        66: "writev",
        67: "pread64",
        68: "pwrite64",
        25: "fcntl",
        32: "flock",
        82: "fsync",
        83: "fdatasync",
    },
}
"""Calls whose first argument is an open file."""
_BY_PATH: Final = {"x86_64": {2: ("open", 0), 257: ("openat", 1)}, "aarch64": {56: ("openat", 1)}}
"""Calls that take a path, and at which place."""
_LONGEST_PATH: Final = 4096
_PAGE: Final = 4096


def blocked_call(pid: int, state: str) -> str:
    """``openat /mnt/checkpoints/m.pt``; empty where the call is another, has no path, or cannot be read.

    Args:
        pid: the process; its main thread is looked at.
        state: the state letter that it was seen in.
    """
    if state != "S":
        return ""
    words = (read_file(f"/proc/{pid}/syscall") or b"").split()
    try:
        number, arguments = int(words[0]), [int(word, 16) for word in words[1:7]]
    except (ValueError, IndexError):
        return ""  # "running", or not ours to read
    machine = platform.machine()
    name = _BY_DESCRIPTOR.get(machine, {}).get(number)
    if name is not None and arguments:
        path = _path_of(pid, arguments[0])
    elif number in _BY_PATH.get(machine, {}) and len(arguments) > 1:
        name, at = _BY_PATH[machine][number]
        path = _text_at(pid, arguments[at])
    else:
        return ""
    return f"{name} {path}" if path else ""


def _path_of(pid: int, descriptor: int) -> str:
    """The path of an open file; pipes and sockets without a name have none."""
    try:
        path = str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
    except OSError:
        return ""
    return path if path.startswith("/") else ""


def _text_at(pid: int, address: int) -> str:
    """The C string at an address of the process, as far as its pages are there."""
    found = b""
    try:
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        while b"\0" not in found and len(found) < _LONGEST_PATH:
            at = address + len(found)
            part = os.pread(descriptor, _PAGE - at % _PAGE, at)
            if not part:
                return ""
            found += part
    except (OSError, OverflowError):
        return ""
    finally:
        os.close(descriptor)
    return found.partition(b"\0")[0].decode("utf-8", "replace") if b"\0" in found else ""
