"""Three facts of a process from ``/proc/<pid>/stat``: does it live, when did it start, who is its parent.

A pid alone names nobody, because pids are reused: pid and start time together do.
"""

from __future__ import annotations

from typing import Final

_START_TICKS_FIELD: Final = 22
"""Number of the field in proc(5); the state is field 3."""
_PARENT_FIELD: Final = 4
_STATE_FIELD: Final = 3


def start_ticks(pid: int) -> int:
    """Start time of a process, in clock ticks since boot; 0 when there is no such process."""
    fields = _fields_from_state(pid)
    return int(fields[_START_TICKS_FIELD - _STATE_FIELD]) if fields else 0


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    fields = _fields_from_state(pid)
    return bool(fields) and fields[0] not in {b"Z", b"X"}


def parent_pid(pid: int) -> int:
    """The process's parent; 0 when there is no such process."""
    fields = _fields_from_state(pid)
    return int(fields[_PARENT_FIELD - _STATE_FIELD]) if fields else 0


def _fields_from_state(pid: int) -> list[bytes]:
    """Fields 3 and on. The name before them may hold blanks and brackets: what counts is the last bracket."""
    if pid <= 0:
        return []
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would be one more import
            content = file.read()
    except OSError:
        return []
    fields = content[content.rfind(b")") + 1 :].split()
    return fields if len(fields) > _START_TICKS_FIELD - _STATE_FIELD else []
