"""A bundle as a job folder again, for as long as it is read. What it names elsewhere is not believed.

Nothing is written outside of a private folder, and no more than a limit; agents in it count as ended, for the
process numbers that it names may be anybody's here.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tarfile
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

import msgspec
import zstandard

from rankscope.diag.bundle.archive import packing_of
from rankscope.diag.bundle.model import FORMAT, MANIFEST
from rankscope.diag.errors import UsageError
from rankscope.diag.store.job import AgentFile

_MOST_BYTES: Final = 4 << 30
_MOST_FILES: Final = 200_000
_MOST_OF_MANIFEST: Final = 64 << 20
"""Bytes: read whole, before anything is known of the file."""
_PREFIX: Final = "rankscope-bundle-"


class _Head(msgspec.Struct):
    format: str
    job: str = ""


@contextmanager
def unpacked(names: Sequence[str]) -> Generator[list[str]]:
    """The names, with a job folder in the place of each that is a bundle.

    Raises:
        UsageError: a bundle is damaged, or no honest one.
    """
    with contextlib.ExitStack() as stack:
        found: list[str] = []
        for name in names:
            if not is_bundle(name):
                found.append(name)
                continue
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX))
            found.append(str(_unpack(Path(name), Path(folder))))
        yield found


def is_bundle(name: str) -> bool:
    """Whether a name is a file that ``diag bundle`` wrote."""
    try:
        if packing_of(name) is None or not Path(name).is_file():
            return False
        with _opened(Path(name)) as tar:
            first = tar.next()
            data = tar.extractfile(first) if first is not None and first.isfile() else None
            if first is None or data is None or first.name.rpartition("/")[2] != MANIFEST:
                return False
            return msgspec.json.decode(data.read(_MOST_OF_MANIFEST), type=_Head).format == FORMAT
    except (OSError, ValueError, EOFError, tarfile.TarError, zstandard.ZstdError, msgspec.DecodeError):
        return False


def _unpack(path: Path, folder: Path) -> Path:
    """Unpack a bundle into a folder; where its job is."""
    try:
        with _opened(path) as tar:
            top = _unpack_all(tar, folder)
            job = folder / top
            for agent in job.glob("nodes/*/agent.json"):
                _end(agent)
    except (OSError, EOFError, tarfile.TarError, zstandard.ZstdError) as error:
        raise UsageError(f"{path}: the bundle is damaged ({error})", hint="fetch it again") from error
    return job


def _unpack_all(tar: tarfile.TarFile, folder: Path) -> str:
    total = 0
    top = ""
    for number, member in enumerate(tar):
        parts = member.name.split("/")
        total += member.size
        if not member.isfile() or any(part in ("", ".", "..") for part in parts) or "\0" in member.name:
            raise tarfile.TarError(f"{member.name!r} is no file of a bundle")
        if total > _MOST_BYTES or number > _MOST_FILES:
            raise tarfile.TarError("it is too large")
        # Another name than the job's: what runs here under that name is not what the bundle tells of.
        top = f"bundle of {parts[0]}"
        target = folder.joinpath(top, *parts[1:])
        data = tar.extractfile(member)
        target.parent.mkdir(parents=True, exist_ok=True)
        if data is not None:
            target.write_bytes(data.read())
    return top


@contextmanager
def _opened(path: Path) -> Generator[tarfile.TarFile]:
    with contextlib.ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(path.open("rb"))
        if packing_of(path.name) == "gz":
            file = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=file)))
        else:
            reader = zstandard.ZstdDecompressor().stream_reader(file)
            file = cast("IO[bytes]", stack.enter_context(reader))
        yield stack.enter_context(tarfile.open(fileobj=file, mode="r|"))


def _end(path: Path) -> None:
    """An agent and workers without a start time are taken for no process of this host."""
    try:
        agent = msgspec.json.decode(path.read_bytes(), type=AgentFile)
    except msgspec.DecodeError:
        return
    workers = tuple(msgspec.structs.replace(worker, start_ticks=0) for worker in agent.workers)
    ended = msgspec.structs.replace(agent, start_ticks=0, workers=workers)
    path.write_bytes(msgspec.json.encode(ended))
    os.utime(path, (0, 0))
