"""A bundle as a compressed tar file: the same content gives the same bytes. Pure."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO, Final, Literal, cast

import msgspec
import zstandard

from rankscope.diag.bundle.model import MANIFEST, Contents
from rankscope.diag.store.job import folder_name
from rankscope.diag.streams import json_bytes

Packing = Literal["gz", "zst"]
_PACKINGS: Final[dict[str, Packing]] = {".tar.gz": "gz", ".tgz": "gz", ".tar.zst": "zst"}
_MODE: Final = 0o644
_LEVEL: Final = 10


def packing_of(name: str) -> Packing | None:
    """How a bundle of that name is compressed, ``None`` when its name says no way that there is."""
    return next((packing for end, packing in _PACKINGS.items() if name.endswith(end)), None)


def bundle_name(job: str) -> str:
    """The name of a job's bundle when none was asked for."""
    return f"{folder_name(job)}.tar.gz"


def archive_bytes(contents: Contents, packing: Packing) -> bytes:
    """The bundle as it lies in its file."""
    top = folder_name(contents.manifest.job)
    manifest = msgspec.json.format(json_bytes(contents.manifest), indent=1)
    file = io.BytesIO()
    with _compressed(file, packing) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        _add(tar, f"{top}/{MANIFEST}", manifest)
        for told, data in zip(contents.manifest.files, contents.data, strict=True):
            _add(tar, f"{top}/{told.name}", data)
    return file.getvalue()


@contextmanager
def _compressed(file: IO[bytes], packing: Packing) -> Generator[IO[bytes]]:
    if packing == "gz":
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            yield cast("IO[bytes]", packed)
        return
    with zstandard.ZstdCompressor(level=_LEVEL).stream_writer(file, closefd=False) as packed:
        yield cast("IO[bytes]", packed)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """One file, of nobody and of no time."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), _MODE
    tar.addfile(info, io.BytesIO(data))
