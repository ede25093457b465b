"""Bytes of an input, chunk by chunk: a file or standard input, plain or compressed, in bounded memory.

What is compressed is told by its first bytes, not by its name (gzip, zstd, bzip2, xz); compressed twice is
undone twice, no more. A file that was cut off or damaged gives what came before; one that grows beyond all
proportion (a bomb) is read to the limit. Both are told through ``note``. It knows no dump format.
"""

from __future__ import annotations

import bz2
import errno
import lzma
import os
import select
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

_CHUNK: Final = 1 << 18
_PIECE: Final = 1 << 9  # of zstd's input at a time: its blocks of 4 bytes may stand for 128 KiB
_WINDOW: Final = 1 << 27  # most memory that a zstd frame may ask for: what ``zstd --long`` takes
_XZ_MEMORY: Final = 1 << 28
_NESTED: Final = 2
_NULL_DEVICE: Final = (1, 3)
_PERIOD_MS: Final = 50
MACHINERY: Final = (("/", "dev"), ("/", "proc"))
"""Where the kernel's own files lie; a pipe there is one that this process was given."""
_NO_NOTE: Final[Callable[[str], None]] = lambda _: None  # noqa: E731


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may come out of compressed data.

    Attributes:
        free_bytes: whatever its size, so much is read.
        ratio: beyond that, so many bytes for each compressed one. Logs of training jobs have 5 to 40, one
            line that repeats for ever reaches 1,000 with gzip.
        writer_seconds: how long a named pipe is waited for to be written to.
    """

    free_bytes: int = 1 << 30
    ratio: int = 250
    writer_seconds: float = 60.0


def chunks_of(
    path: Path | None,
    *,
    note: Callable[[str], None] = _NO_NOTE,
    say: Callable[[str], None] = _NO_NOTE,
    limits: Limits | None = None,
) -> Iterator[bytes]:
    """Read an input.

    Args:
        path: the file, ``None`` for standard input.
        note: told, in one line, why an input was not read to its end.
        say: told at once what is being waited for.
        limits: of compressed data.

    Yields:
        Chunks of some hundred KiB, none empty.

    Raises:
        OSError: it cannot be opened, is a device without an end, or not a byte of it can be read.
        TimeoutError: nobody writes to a named pipe.
    """
    chunks = (
        _standard_input() if path is None else _file(path, note, say, (limits or Limits()).writer_seconds)
    )
    counted = _Counted(chunks)
    data: Iterator[bytes] = counted
    for _ in range(_NESTED):
        head, data = _head(data)
        kind = _kind(head)
        if kind is None:
            break
        data = _limited(_decompressed(data, kind, note), counted, limits or Limits(), note)
    return data


class _Counted(Iterator[bytes]):
    """Chunks, and how many bytes they were so far."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self.size = 0

    def __next__(self) -> bytes:
        chunk = next(self._chunks)
        self.size += len(chunk)
        return chunk


def _standard_input() -> Iterator[bytes]:
    with os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0) as file:
        _refuse_device(file.fileno())
        while chunk := file.read(_CHUNK):
            yield chunk


def _file(
    path: Path, note: Callable[[str], None], say: Callable[[str], None], writer_seconds: float
) -> Iterator[bytes]:
    size = 0
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        _refuse_device(file.fileno())
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode) and path.parts[:2] not in MACHINERY:
            yield from _first_of_pipe(file.fileno(), path, say, writer_seconds)
        os.set_blocking(file.fileno(), True)
        while True:
            try:
                chunk = file.read(_CHUNK)
            except OSError as error:
                if not size:
                    raise
                note(f"cannot be read behind byte {size}: {error.strerror or error}")
                return
            if not chunk:
                return
            size += len(chunk)
            yield chunk


def _refuse_device(file: int) -> None:
    """A device has no end: only a terminal has somebody who gives it one, and ``/dev/null`` has no beginning.

    Raises:
        OSError: it is one.
    """
    found = os.fstat(file)
    is_device = stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)
    if is_device and not os.isatty(file) and found.st_rdev != os.makedev(*_NULL_DEVICE):
        raise OSError(errno.EINVAL, "it is a device, and no dump")


def _first_of_pipe(
    file: int, path: Path, say: Callable[[str], None], writer_seconds: float
) -> Iterator[bytes]:
    """What a named pipe gives first, as soon as somebody writes to it."""
    began = time.monotonic()
    has_said = False
    while True:
        try:
            chunk = os.read(file, _CHUNK)
        except BlockingIOError:
            return  # somebody has opened it, and has not written yet
        if chunk:
            yield chunk
            return
        waiter = select.poll()
        waiter.register(file, select.POLLIN)
        if any(event & select.POLLHUP for _, event in waiter.poll(_PERIOD_MS)):
            return  # it was written to, and closed
        waited = time.monotonic() - began
        if waited >= writer_seconds:
            raise TimeoutError(errno.ETIMEDOUT, f"nobody wrote to this pipe within {writer_seconds:.0f} s")
        if not has_said and waited >= min(1.0, writer_seconds / 2):
            has_said = True
            say(f"{path}: waiting for a writer")


def _head(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes, enough to tell what they are, and all chunks."""
    first = b""
    for chunk in chunks:
        first += chunk
        if len(first) >= _LONGEST_MAGIC:
            break
    return first[:_LONGEST_MAGIC], _with(first, chunks)


def _with(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from chunks


class _Decoder(Protocol):
    """What bz2's and lzma's decoders have."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Gzip:
    """zlib's decoder in the manner of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        result = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self.needs_input = len(result) < max_length and not self._inner.unconsumed_tail
        return result


class _Zstd:
    """zstd's decoder, which gives all that its input stands for: it gets a little at a time."""

    def __init__(self) -> None:
        import zstandard

        self._inner = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        self._error = zstandard.ZstdError
        self._waiting = b""
        self._at = 0

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return self._at >= len(self._waiting)

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data + self._waiting[self._at :]

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:  # noqa: ARG002  bounded by its input
        if data:
            self._waiting, self._at = self._waiting[self._at :] + data, 0
        piece = self._waiting[self._at : self._at + _PIECE]
        self._at += len(piece)
        try:
            return self._inner.decompress(piece)
        except self._error as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    magic: bytes
    decoder: Callable[[], _Decoder]


_KINDS: Final = (
    _Kind("gzip", b"\x1f\x8b\x08", _Gzip),
    _Kind("zstd", b"\x28\xb5\x2f\xfd", _Zstd),
    _Kind("xz", b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)),
    *(_Kind("bzip2", b"BZh%d1AY&SY" % level, bz2.BZ2Decompressor) for level in range(1, 10)),
)
_LONGEST_MAGIC: Final = max(len(kind.magic) for kind in _KINDS)


def _kind(head: bytes) -> _Kind | None:
    return next((kind for kind in _KINDS if head.startswith(kind.magic)), None)


def _decompressed(chunks: Iterator[bytes], kind: _Kind, note: Callable[[str], None]) -> Iterator[bytes]:
    """What the data stands for, up to where it is damaged or cut off."""
    size = 0
    try:
        for result in _members(chunks, kind):
            size += len(result)
            yield result
    except EOFError:
        note(f"the {kind.name} data was cut off; {size} bytes were read")
    except (zlib.error, lzma.LZMAError, OSError, ValueError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the file itself; bz2 has one without a number for its data
        text = " ".join(str(error).split())[:100]
        note(f"the {kind.name} data is damaged ({text}); {size} bytes were read")


def _members(chunks: Iterator[bytes], kind: _Kind) -> Iterator[bytes]:
    """All members, one behind the other: logs are rotated and joined."""
    decoder: _Decoder | None = None
    for chunk in chunks:
        data = chunk
        while data or (decoder is not None and not decoder.needs_input):
            if decoder is None:
                data = data.lstrip(b"\0")  # padding between members
                if not data:
                    break
                decoder = kind.decoder()
            result = decoder.decompress(data, _CHUNK)
            for at in range(0, len(result), _CHUNK):
                yield result[at : at + _CHUNK]
            data = b""
            if decoder.eof:
                data, decoder = decoder.unused_data, None
    if decoder is not None:
        raise EOFError


def _limited(
    chunks: Iterator[bytes], source: _Counted, limits: Limits, note: Callable[[str], None]
) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > max(limits.free_bytes, limits.ratio * source.size):
            note(
                f"more than {limits.ratio} times as large as its {source.size} compressed bytes:"
                f" not read beyond {size - len(chunk)} bytes"
            )
            return
        yield chunk
