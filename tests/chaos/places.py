"""A file system of its own for a job's records: small enough to be full, or one that can stop answering.

``small`` is a tmpfs of 1 MiB. ``frozen`` is an ext4 in a file; ``FIFREEZE`` keeps everybody who writes to it
waiting in uninterruptible sleep, as a hard mount of a share does whose server is gone. Both need root.
Whatever happens, it is thawed and unmounted at the end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.chaos.plan import Place

_FREEZE: Final = 0xC0045877
_THAW: Final = 0xC0045878
"""``FIFREEZE`` and ``FITHAW`` of ``linux/fs.h``."""
_MIB: Final = 1 << 20
_TOOLS: Final = {"plain": (), "small": ("mount", "umount"), "frozen": ("mount", "umount", "mkfs.ext4")}
_FILLER: Final = "filler"
_TIMEOUT: Final = 60.0


def missing(place: Place) -> str:
    """Why this host has no such place, empty when it has one."""
    if place == "plain":
        return ""
    if os.geteuid() != 0:
        return "mounting needs root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [tool for tool in _TOOLS[place] if shutil.which(tool, path=path) is None]
    return f"no {', '.join(absent)} here" if absent else ""


class Ground:
    """Where the records of a round lie.

    Attributes:
        path: the mount, or an ordinary folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_frozen = False

    def fill(self) -> None:
        """Leave no room for anything."""
        with (self.path / _FILLER).open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"\0" * 4096)

    def free(self) -> None:
        """Give the room back."""
        (self.path / _FILLER).unlink(missing_ok=True)

    def freeze(self) -> None:
        """Let no writer come back.

        Raises:
            OSError: the kernel does not freeze it.
        """
        self._control(_FREEZE)
        self._is_frozen = True

    def thaw(self) -> None:
        """Let writers come back."""
        if self._is_frozen:
            self._control(_THAW)
            self._is_frozen = False

    def remove(self) -> None:
        """Remove everything, as somebody who tidies up does."""
        for path in self.path.iterdir():
            shutil.rmtree(path, ignore_errors=True)

    def _control(self, request: int) -> None:
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, request, 0)
        except OSError as error:
            if request != _THAW or error.errno != errno.EINVAL:  # thawed by somebody else
                raise
        finally:
            os.close(folder)


@contextmanager
def ground(place: Place, folder: Path) -> Generator[Ground]:
    """A place for records below ``folder``.

    Raises:
        subprocess.CalledProcessError: it cannot be mounted here.
    """
    path = folder / "records"
    path.mkdir(parents=True)
    if place == "plain":
        yield Ground(path)
        return
    _mount(place, folder, path)
    there = Ground(path)
    try:
        yield there
    finally:
        there.thaw()
        _copy(path, folder / "records-kept")
        _command("umount", "-l", str(path))


def _mount(place: Place, folder: Path, path: Path) -> None:
    if place == "small":
        _command("mount", "-t", "tmpfs", "-o", "size=1m", "rankscope-chaos", str(path))
        return
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(16 * _MIB)
    _command("mkfs.ext4", "-q", "-F", str(image))
    # Reading would write the time of the reading.
    _command("mount", "-o", "loop,noatime", str(image), str(path))
    image.unlink()


def _copy(source: Path, target: Path) -> None:
    """The records outlive their file system."""
    with contextlib.suppress(OSError, shutil.Error):
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(_FILLER, "lost+found"), symlinks=True)


def _command(*words: str) -> None:
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    environ = {**os.environ, "PATH": path}
    subprocess.run(words, check=True, capture_output=True, timeout=_TIMEOUT, env=environ)
