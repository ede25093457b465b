"""The folder that holds the workers' FIFOs, and the FIFOs themselves. Knows no ranks and no processes."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import tempfile
import termios
from pathlib import Path
from typing import Final

PIPE_BYTES: Final = 1 << 20
"""Wanted size of one pipe, the most an ordinary user gets (``/proc/sys/fs/pipe-max-size``)."""
ALL_PIPES_BYTES: Final = 16 << 20
"""Most that all pipes together take: a user past 64 MiB (``pipe-user-pages-soft``) gets pipes of two pages
everywhere, those of DataLoader workers included."""
_LEAST_PIPE_BYTES: Final = 64 << 10


def make_fifo_folder(wanted: Path) -> Path:
    """Make a private folder in which FIFOs can be made: ``wanted``, else one under the run-time directory.

    Raises:
        OSError: neither place will do.
    """
    try:
        wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
        wanted.chmod(0o700)
        _try_fifo(wanted)
    except OSError:
        base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
        folder = Path(tempfile.mkdtemp(prefix="rankscope-logs-", dir=base))
        try:
            _try_fifo(folder)
        except OSError:
            remove_folder(folder)
            raise
        return folder
    return wanted


def _try_fifo(folder: Path) -> None:
    path = folder / f"try-{os.getpid()}"
    os.close(make_fifo(path))
    path.unlink()


def make_fifo(path: Path) -> int:
    """Make a FIFO and hold it open both ways, so that writers neither wait for a reader nor lose one.

    Returns:
        The descriptor, non-blocking and closed on exec.

    Raises:
        OSError: the file system has no FIFOs, or is full.
    """
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    try:
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        path.unlink()
        raise


def widen(fd: int, *, pipes: int) -> None:
    """Raise the size of one of ``pipes`` pipes as far as the kernel and ``ALL_PIPES_BYTES`` allow."""
    share = ALL_PIPES_BYTES // max(1, pipes)
    size = max(_LEAST_PIPE_BYTES, min(PIPE_BYTES, 1 << (share.bit_length() - 1)))
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)


def waiting_bytes(fd: int) -> int:
    """Bytes that lie in the pipe."""
    answer = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, answer)
    return answer[0]


def is_half_full(fd: int) -> bool:
    """Whether the pipe's writers will soon have to wait."""
    return waiting_bytes(fd) * 2 >= fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


def discard(fd: int) -> int:
    """Take out of the pipe what lies in it, so that its writers go on; returns how many bytes are lost."""
    lost = 0
    with contextlib.suppress(BlockingIOError):
        while lost < PIPE_BYTES and (data := os.read(fd, _LEAST_PIPE_BYTES)):
            lost += len(data)
    return lost


def remove_folder(folder: Path) -> None:
    """Remove the FIFOs of a folder and the folder, if nothing else lies in it."""
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            if entry.is_fifo():
                entry.unlink()
        folder.rmdir()
