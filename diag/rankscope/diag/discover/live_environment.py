"""The environment of a process as it is now, read from its memory.

``/proc/<pid>/environ`` is what a process was *started* with. A worker that is a function (``mp.spawn``, an
elastic launch of a function) gets ``RANK`` after its start, under any start method, and a program that
sets its title overwrites the file. libc's variable ``environ`` points at the present one. Reading it needs
the right to trace and neither stops nor disturbs the process (0.2 ms; the symbol is looked up once a file).
It must not know what the variables mean.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
from collections.abc import Iterator
from typing import Final

from rankscope.diag.discover.elf_symbols import symbol_offset
from rankscope.diag.proc_files import read_all

_SYMBOL: Final = b"environ"
_LIBC: Final = re.compile(rb"/(?:libc\.so|libc-|ld-musl|libc\.musl)[^/]*$")
_POINTER: Final = struct.Struct("<Q")
_MOST_VARIABLES: Final = 4096
_VARIABLES_A_READ: Final = 128
_SHORT: Final = 256
_LONG: Final = 1 << 17  # what the kernel allows one variable
_MOST_FILES: Final = 64
_offsets: dict[tuple[int, int, int], int | None] = {}


def live_environ(pid: int) -> dict[str, str] | None:
    """The environment that a process has now.

    Returns:
        Its variables; ``None`` when its memory may not be read, it has ended, or it has no ``environ`` that
        could be found (it is linked statically and stripped, or not 64-bit little-endian ELF).
    """
    maps = read_all(f"/proc/{pid}/maps")
    if not maps:
        return None
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        for address in _addresses(pid, maps):
            variables = _variables(memory, address)
            if variables:
                return variables
    except (OSError, OverflowError, struct.error):
        return None
    finally:
        os.close(memory)
    return None


def _addresses(pid: int, maps: bytes) -> Iterator[int]:
    """Where ``environ`` may lie: in libc, else in the executable, if that copied the variable from libc.

    In this order: the executable may lie on a share that does not answer.
    """
    first_pages = list(_first_pages(maps))
    for start, path in first_pages:
        if _LIBC.search(path):
            # In the mount namespace of the process: its libc may be a container's.
            yield from _address(f"/proc/{pid}/root{os.fsdecode(path)}", start)
    with contextlib.suppress(OSError):
        executable = os.fsencode(os.readlink(f"/proc/{pid}/exe"))  # noqa: PTH115 - bytes
        for start in (start for start, path in first_pages if path == executable):
            yield from _address(f"/proc/{pid}/exe", start)


def _first_pages(maps: bytes) -> Iterator[tuple[int, bytes]]:
    """Start and path of the mappings of files' first bytes."""
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(b"/") and int(fields[2], 16) == 0:  # noqa: PLR2004
            yield int(fields[0].partition(b"-")[0], 16), fields[5]


def _address(path: str, start: int) -> Iterator[int]:
    try:
        # Not blocking: in the mount namespace of the process anything may lie at that path.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return
    try:
        offset = _offset(fd)
    finally:
        os.close(fd)
    if offset is not None:
        yield start + offset


def _offset(fd: int) -> int | None:
    """The symbol's offset in a file, looked up once."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        return None
    key = (found.st_dev, found.st_ino, found.st_mtime_ns)
    if key not in _offsets:
        if len(_offsets) >= _MOST_FILES:
            _offsets.clear()
        _offsets[key] = symbol_offset(fd, _SYMBOL)
    return _offsets[key]


def _variables(memory: int, address: int) -> dict[str, str]:
    (vector,) = _POINTER.unpack(os.pread(memory, _POINTER.size, address))
    found: dict[str, str] = {}
    for pointer in _pointers(memory, vector):
        name, equals, value = _text(memory, pointer).partition(b"=")
        if name and equals:
            found[os.fsdecode(name)] = os.fsdecode(value)
    return found


def _pointers(memory: int, vector: int) -> Iterator[int]:
    """Pointers of the vector up to the null at its end."""
    size = _VARIABLES_A_READ * _POINTER.size
    for at in range(vector, vector + _MOST_VARIABLES * _POINTER.size if vector else 0, size):
        chunk = os.pread(memory, size, at)
        for (pointer,) in _POINTER.iter_unpack(chunk[: len(chunk) // _POINTER.size * _POINTER.size]):
            if not pointer:
                return
            yield pointer
        if len(chunk) < size:
            return


def _text(memory: int, pointer: int) -> bytes:
    """A string up to its null; empty when it has none."""
    for size in (_SHORT, _LONG):
        text, null, _rest = os.pread(memory, size, pointer).partition(b"\0")
        if null:
            return text
    return b""
