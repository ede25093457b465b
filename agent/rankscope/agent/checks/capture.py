"""Whether the agent may read its workers: asked of the kernel for each worker, without touching it.

``process_vm_readv`` of an address that nobody has is refused for want of the right before the address is
looked at: EPERM means that py-spy would fail, EFAULT that it would not.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence
from typing import Final, Literal

from rankscope.agent.health.model import Check

NAME: Final = "capture:permission"
Right = Literal["granted", "denied", "unknown"]


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def right_to_read(pid: int) -> Right:
    """Whether this process may read the memory of process ``pid``; it neither stops nor changes it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "process_vm_readv"):
        return "unknown"
    byte = ctypes.create_string_buffer(1)
    local, remote = _Vector(ctypes.addressof(byte), 1), _Vector(0, 1)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    read = libc.process_vm_readv(
        ctypes.c_int(pid), ctypes.byref(local), ctypes.c_ulong(1), ctypes.byref(remote), ctypes.c_ulong(1), 0
    )
    if read >= 0 or ctypes.get_errno() == errno.EFAULT:
        return "granted"
    return "denied" if ctypes.get_errno() == errno.EPERM else "unknown"


def judge_rights(rights: Sequence[Right], *, in_container: bool) -> Check:
    """What it means that some workers may be read and some not.

    Args:
        rights: one for each worker.
        in_container: whether the agent runs in one.
    """
    if "denied" in rights:
        where = "add the capability SYS_PTRACE to the container" if in_container else "see diag doctor"
        few = "" if all(right == "denied" for right in rights) else "some "
        return Check("warn", f"{few}workers may not be read: they tell their stacks themselves; {where}")
    return Check("pass", "" if "granted" in rights else "no workers yet")
