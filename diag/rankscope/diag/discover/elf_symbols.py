"""Where a shared object or an executable keeps a variable: its symbol table, read from the file.

64-bit little-endian ELF only, which is every Linux that torch runs on. It must not know of processes: a file
in, an address relative to its load address out. A file that is no ELF, cut off or without the symbol gives
``None``, whatever its bytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Final

_IDENT: Final = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM: Final = struct.Struct("<IIQQQQQQ")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_LOADED: Final = 1  # PT_LOAD
_DYNAMIC_SYMBOLS: Final = 11  # SHT_DYNSYM
_MOST_ENTRIES: Final = 4096
_MOST_BYTES: Final = 8 << 20  # a table of 300,000 symbols; glibc has 3,000
_PAGE: Final = 4096


def symbol_offset(fd: int, name: bytes) -> int | None:
    """Address of a symbol that a file defines, relative to where the file's first byte is mapped.

    Args:
        fd: the file, opened for reading.
        name: as it stands in the dynamic symbol table.

    Returns:
        The offset; ``None`` when the file has no such symbol, or cannot be read.
    """
    try:
        header = _HEADER.unpack(_read(fd, 0, _HEADER.size))
        if not header[0].startswith(_IDENT):
            return None
        for value in _values(fd, header, name):
            return value - _first_address(fd, header)
    except (OSError, OverflowError, struct.error):
        return None
    return None


def _values(fd: int, header: tuple[int, ...], name: bytes) -> Iterator[int]:
    """Addresses of the symbol as the file counts them."""
    sections = _table(fd, _SECTION, offset=header[6], size=header[11], count=header[12])
    for section in sections:
        if section[1] != _DYNAMIC_SYMBOLS or section[6] >= len(sections):
            continue
        names_at, names_size = sections[section[6]][4:6]
        names = _read(fd, names_at, names_size)
        symbols = _read(fd, section[4], section[5] - section[5] % _SYMBOL.size)
        wanted = name + b"\0"
        for at, _info, _other, defined_in, value, _size in _SYMBOL.iter_unpack(symbols):
            if defined_in and names.startswith(wanted, at):
                yield value


def _first_address(fd: int, header: tuple[int, ...]) -> int:
    """What the file calls the address of its first byte: 0, unless it must lie at a fixed place."""
    programs = _table(fd, _PROGRAM, offset=header[5], size=header[9], count=header[10])
    starts = [program[3] - program[2] for program in programs if program[0] == _LOADED]
    return min(starts, default=0) // _PAGE * _PAGE


def _table(fd: int, entry: struct.Struct, *, offset: int, size: int, count: int) -> list[tuple[int, ...]]:
    if size != entry.size or count > _MOST_ENTRIES:
        return []
    return list(entry.iter_unpack(_read(fd, offset, size * count)))


def _read(fd: int, offset: int, size: int) -> bytes:
    return os.pread(fd, min(size, _MOST_BYTES), offset)
