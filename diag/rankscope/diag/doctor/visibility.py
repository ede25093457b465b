"""What of the host's processes can be seen: ``/proc``, its ``hidepid``, and pid namespaces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.diag import proc
from rankscope.diag.discover.candidates import look_at
from rankscope.diag.doctor import Finding, remedies
from rankscope.diag.proc_files import read_all


@dataclass(frozen=True, slots=True)
class Visible:
    """What is seen of processes.

    Attributes:
        hidepid: option of the mount of ``/proc``, ``""`` for none, ``None`` when there is no ``/proc``.
        processes: how many are seen; others is how many of them belong to other users.
        unreadable: Python processes that we may not read.
        is_namespace: whether this is a pid namespace of its own: a container sees its own processes only.
    """

    hidepid: str | None
    processes: int = 0
    others: int = 0
    unreadable: int = 0
    is_namespace: bool = False


def check_visibility() -> Sequence[Finding]:
    """Count what is seen."""
    return judge_visibility(see(), is_root=os.geteuid() == 0)


def judge_visibility(seen: Visible, *, is_root: bool) -> Sequence[Finding]:
    """Without ``/proc`` nothing can be said of a process."""
    if seen.hidepid is None:
        return [Finding("/proc", "fail", "not mounted", "mount -t proc proc /proc", needed=True)]
    count = f"{seen.processes} processes seen, {seen.others} of other users"
    if seen.is_namespace:
        count += "; a pid namespace of its own: processes outside of it are not seen"
    hides = seen.hidepid not in {"", "0", "off"}
    if hides and not is_root:
        value = f"{count}; hidepid={seen.hidepid}"
        return [Finding("/proc", "warn", value, remedies.HIDEPID, needed=True)]
    if seen.unreadable:
        value = f"{count}; {seen.unreadable} Python processes may not be read"
        return [Finding("/proc", "warn", value, remedies.PTRACE_HOST, needed=True)]
    remedy = remedies.PID_NAMESPACE if seen.is_namespace else ""
    return [Finding("/proc", "ok", count, remedy, needed=True)]


def see() -> Visible:
    """Look at ``/proc``."""
    hidepid = hidepid_of(read_all("/proc/self/mountinfo") or b"")
    try:
        table = proc.process_table()
    except OSError:
        return Visible(None)
    us = os.geteuid()
    others = sum(1 for pid in table if not _is_ours(pid, us))
    return Visible(
        hidepid=hidepid or "",
        processes=len(table),
        others=others,
        unreadable=len(look_at(table, table).unreadable),
        is_namespace=not any(entry.comm == "kthreadd" for entry in table.values()),
    )


def hidepid_of(mountinfo: bytes) -> str | None:
    """The option of the mount at ``/proc`` (proc(5): a field of the super block), ``None`` without one."""
    found: str | None = None
    for line in mountinfo.splitlines():
        before, _dash, after = line.partition(b" - ")
        place, kind = before.split()[4:5], after.split()
        if place == [b"/proc"] and kind[:1] == [b"proc"]:
            options = (option.partition(b"=") for field in kind[2:] for option in field.split(b","))
            values = {name: value for name, _equals, value in options}
            found = values.get(b"hidepid", b"").decode("ascii", "replace")
    return found


def _is_ours(pid: int, us: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == us  # noqa: PTH116 - hot path
    except OSError:
        return True
