"""Whether the nodes of a job share a folder, and whether their clocks agree: by markers they leave in it.

Run on each node with the same ``--shared DIR``: each leaves its marker and lists those of the others. The
clock of a host is compared with the time that the file server gave the marker it has just written.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.diag.doctor import Finding, unknown
from rankscope.diag.doctor.folders import file_system_of, is_shared_kind
from rankscope.diag.proc_files import read_all
from rankscope.diag.store.job import folder_name

_PREFIX: Final = ".rankscope-doctor-host-"
_FRESH_SECONDS: Final = 3600.0
_MOST_SKEW: Final = 2.0
_MOST_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class Marker:
    """A host's marker.

    Attributes:
        host: its name.
        age: seconds since it was written, by the file server's clock.
    """

    host: str
    age: float


def check_shared(folder: Path) -> Sequence[Finding]:
    """Leave this host's marker and read the others'."""
    host = socket.gethostname()
    what = f"shared folder {folder}"
    try:
        now, skew = _leave(folder, host)
        markers = _read(folder, now)
    except OSError as error:
        remedy = "mount the same share on each node, or give another folder to --shared"
        return [Finding(what, "fail", error.strerror or str(error), remedy, needed=True)]
    kind = file_system_of(folder, read_all("/proc/self/mountinfo") or b"")
    return judge_shared(what, markers, host=host, kind=kind, skew=skew)


def judge_shared(
    what: str, markers: Sequence[Marker], *, host: str, kind: str, skew: float
) -> Sequence[Finding]:
    """Markers of other hosts prove that it is shared; a local file system makes it unlikely."""
    others = sorted(marker.host for marker in markers if marker.host != host and marker.age < _FRESH_SECONDS)
    if others:
        more = f" and {len(others) - _MOST_NAMES} more" if len(others) > _MOST_NAMES else ""
        value = f"{kind}: also seen from {', '.join(others[:_MOST_NAMES])}{more} within the last hour"
        findings = [Finding(what, "ok", value, needed=True)]
    elif is_shared_kind(kind):
        findings = [unknown(what, f"{kind}, marker left, no other host's seen yet", remedy=_again(what))]
    else:
        value = f"{kind} is a local file system, and no other host has left a marker"
        findings = [Finding(what, "warn", value, _again(what), needed=True)]
    if abs(skew) > _MOST_SKEW:
        value = f"{skew:+.1f} s against the file server of the shared folder"
        findings.append(Finding("clock across nodes", "warn", value, "run chrony or ntpd on all nodes"))
    return findings


def _again(what: str) -> str:
    return f"run diag doctor --shared {what.rpartition(' ')[2]} on another node too, then here again"


def _leave(folder: Path, host: str) -> tuple[float, float]:
    """Write the marker; returns the server's time and how far our clock is ahead of it."""
    path = folder / f"{_PREFIX}{folder_name(host)}"
    before = time.time()
    fd, name = tempfile.mkstemp(prefix=".rankscope-doctor-", dir=folder)
    try:
        os.write(fd, host.encode("utf-8", "replace"))
        os.fchmod(fd, 0o644)
        os.fsync(fd)
        os.close(fd)
        Path(name).rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
    written = path.stat().st_mtime
    after = time.time()
    return written, min(max(written, before), after) - written


def _read(folder: Path, now: float) -> list[Marker]:
    markers: list[Marker] = []
    for path in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            markers.append(Marker(path.read_text(errors="replace")[:256], now - path.stat().st_mtime))
    return markers
