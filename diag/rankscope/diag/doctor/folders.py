"""Where things are written: the agent's run-time folder, the store, and what room is left there.

Each is tried by doing what will be done there: pipes, sockets and private modes in the run-time folder,
a file that is synced and renamed in the store.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rankscope.diag.capture.locks import lock_folder
from rankscope.diag.doctor import Finding, remedies
from rankscope.diag.proc_files import read_all
from rankscope.diag.store.job import home

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - what lies there lies in a private folder
_LONGEST_SOCKET: Final = 107  # sun_path has 108 bytes, the last is the null (unix(7))
_LONGEST_NAME: Final = "rankscope-agent-4194304-abcdefgh/worker-1023.socket"
_LITTLE_BYTES: Final = 1 << 30
_NONE_BYTES: Final = 64 << 20
_LITTLE_INODES: Final = 10_000
_LITTLE_SHM: Final = 1 << 30  # Docker gives 64 MiB; one worker of a data loader may need more
_SHARED_KINDS: Final = ("nfs", "lustre", "gpfs", "ceph", "beegfs", "cifs", "smb", "fuse", "9p", "virtiofs")
_PROBE_BYTES: Final = b"x" * 65536


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that was tried.

    Attributes:
        path: the folder.
        trouble: why it cannot be used, ``""`` when it can.
        kind: its file system's type.
        free_bytes: room left for us; free_inodes likewise, ``None`` where the file system counts none.
    """

    path: str
    trouble: str = ""
    kind: str = ""
    free_bytes: int = 0
    free_inodes: int | None = None


def check_runtime() -> Sequence[Finding]:
    """The first folder that will do, as the agent chooses it, and the folder of the capture locks."""
    chosen = os.environ.get("XDG_RUNTIME_DIR")
    roots = [chosen] if chosen else []
    roots += [SHARED_MEMORY, tempfile.gettempdir()]
    places = [try_place(root, try_runtime) for root in dict.fromkeys(roots)]
    locks = try_place(str(lock_folder().parent), lambda _parent: _try_locks(lock_folder()))
    return judge_runtime(places, locks)


def judge_runtime(places: Sequence[Place], locks: Place) -> Sequence[Finding]:
    """One usable place is enough; the first one should be it."""
    usable = [place for place in places if not place.trouble]
    troubles = "; ".join(f"{place.path}: {place.trouble}" for place in places if place.trouble)
    if not usable:
        remedy = "set XDG_RUNTIME_DIR to a short path on a local file system that only you may enter"
        return [Finding("run-time folder", "fail", troubles or "none", remedy, needed=True)]
    value = f"below {usable[0].path} ({usable[0].kind}): private, pipes and sockets work"
    findings = [Finding("run-time folder", "ok", value, needed=True)]
    if troubles:
        findings = [Finding("run-time folder", "warn", f"{value}; not below {troubles}", needed=True)]
    if locks.trouble:
        remedy = f"remove {lock_folder()}: it must be a folder of this user that nobody else may enter"
        findings.append(Finding("capture locks", "warn", locks.trouble, remedy))
    return findings


def check_store() -> Sequence[Finding]:
    """``RANKSCOPE_HOME``, where jobs and incidents are stored."""
    folder = home()
    return judge_store(try_place(str(folder), try_store))


def judge_store(place: Place) -> Sequence[Finding]:
    """What cannot be stored is lost: no incident survives its job."""
    where = f"{place.path} ({place.kind})" if place.kind else place.path
    remedy = "set RANKSCOPE_HOME to a folder that can be written, best one that all nodes share"
    if place.trouble:
        return [Finding("store", "fail", f"{where}: {place.trouble}", remedy, needed=True)]
    inodes = "" if place.free_inodes is None else f", {place.free_inodes} files"
    value = f"{where}: written and synced, {_size(place.free_bytes)}{inodes} free"
    if place.free_bytes < _NONE_BYTES:
        return [Finding("store", "fail", value, f"make room, or {remedy}", needed=True)]
    few = place.free_inodes is not None and place.free_inodes < _LITTLE_INODES
    if place.free_bytes < _LITTLE_BYTES or few:
        return [Finding("store", "warn", value, f"make room, or {remedy}", needed=True)]
    return [Finding("store", "ok", value, needed=True)]


def check_shared_memory() -> Sequence[Finding]:
    """``/dev/shm``: data loaders pass batches through it."""
    return judge_shared_memory(try_place(SHARED_MEMORY, _try_file))


def judge_shared_memory(place: Place) -> Sequence[Finding]:
    """Small is what Docker gives; a data loader then dies with "bus error"."""
    if place.trouble:
        return [Finding(SHARED_MEMORY, "warn", place.trouble, remedies.SHARED_MEMORY)]
    value = f"{_size(place.free_bytes)} free"
    little = place.free_bytes < _LITTLE_SHM
    return [
        Finding(SHARED_MEMORY, "warn" if little else "ok", value, remedies.SHARED_MEMORY if little else "")
    ]


def try_place(path: str, trial: Callable[[Path], None]) -> Place:
    """Try a folder and see how much room it has."""
    trouble = ""
    try:
        trial(Path(path))
    except OSError as error:
        trouble = _reason(error)
    nearest = next(parent for parent in (Path(path), *Path(path).parents) if parent.exists())
    room = os.statvfs(nearest)
    return Place(
        path,
        trouble,
        kind=file_system_of(nearest, read_all("/proc/self/mountinfo") or b""),
        free_bytes=room.f_bavail * room.f_frsize,
        free_inodes=room.f_favail if room.f_files else None,
    )


def try_runtime(root: Path) -> None:
    """Do what the agent does in its run-time folder.

    Raises:
        OSError: something does not work.
    """
    if len(os.fsencode(root)) + 1 + len(_LONGEST_NAME) > _LONGEST_SOCKET:
        raise OSError(f"the path is too long for a socket ({len(os.fsencode(root))} bytes)")
    folder = Path(tempfile.mkdtemp(prefix="rankscope-doctor-", dir=root))
    try:
        if stat.S_IMODE(folder.stat().st_mode) != 0o700:  # noqa: PLR2004 - nobody else may enter
            raise OSError("folders cannot be made private")
        os.mkfifo(folder / "fifo", 0o600)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
            listener.bind(str(folder / "socket"))
        _try_file(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def try_store(folder: Path) -> None:
    """Make the folder if it is missing (and remove it again), write a file, sync and rename it.

    Raises:
        OSError: something does not work.
    """
    made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _try_file(folder)
    finally:
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()


def _try_file(folder: Path) -> None:
    fd, name = tempfile.mkstemp(prefix=".rankscope-doctor-", dir=folder)
    path = Path(name)
    try:
        try:
            if os.write(fd, _PROBE_BYTES) < len(_PROBE_BYTES):
                raise OSError("a file cannot be written to its end")
            os.fsync(fd)
        finally:
            os.close(fd)
        path.rename(path.with_suffix(".renamed"))
        path = path.with_suffix(".renamed")
    finally:
        path.unlink(missing_ok=True)


def _try_locks(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise OSError(f"{folder} is not a private folder of this user: captures do not take turns")


def file_system_of(path: Path, mountinfo: bytes) -> str:
    """Type of the file system that a folder lies on, ``""`` when unknown."""
    best, kind = -1, ""
    target = os.fsencode(path.resolve())
    for line in mountinfo.splitlines():
        before, _dash, after = line.partition(b" - ")
        fields = before.split()
        place = fields[4] if len(fields) > 4 else b""  # noqa: PLR2004 - proc(5): the fifth field
        inside = target == place or target.startswith(place.rstrip(b"/") + b"/")
        if inside and len(place) >= best:
            best, kind = len(place), os.fsdecode((after.split() or [b""])[0])
    return kind


def is_shared_kind(kind: str) -> bool:
    """Whether a file system of this type is usually seen by several hosts."""
    return kind.startswith(_SHARED_KINDS)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _size(size_bytes: int) -> str:
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes >> 10} KiB"
