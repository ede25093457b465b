"""Decides when two frames of two processes are the same place, and how a place is written.

Addresses, hashes, counters of compiled graphs and installation prefixes differ between processes and
nodes; Python's qualified names differ between tools (py-spy on Python 3.11 writes
``_exception_logger.<locals>.wrapper``, pystack and faulthandler ``wrapper``). None of that is a difference
in where a rank stands. It knows nothing of what a frame means.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from rankscope.diag.model import Frame

Identity = tuple[str, str, int]

_CACHE: Final = 65_536  # distinct names and frames kept; a job of 1,024 ranks has a few thousand

# What differs between two processes in the same place, and what it is written as.
_FUNCTION_NOISE: Final = (
    (re.compile(r"0x[0-9a-fA-F]{4,}"), "0xADDR"),  # object and code addresses
    (re.compile(r"<lambda[^>]*>"), "<lambda>"),  # <lambda_3>, <lambda at 0x..>
    (re.compile(r"(<eval_with_key>)\.\d+"), r"\1"),  # torch.fx numbers its graphs
    (re.compile(r"\b(__compiled_fn|__resume_at)_\d+(_[0-9a-f_]{8,})?"), r"\1_N"),  # torch.compile
    (re.compile(r"::h[0-9a-f]{16}$"), ""),  # Rust symbol hashes
    (re.compile(r"@+GLIBC\w*[\d.]*"), ""),  # pthread_cond_wait@@GLIBC_2.3.2
    (re.compile(r"(\.(constprop|isra|part|cold|llvm|lto_priv)(\.\d+)?)+$"), ""),  # compiler clones
    (re.compile(r"( \[clone [^\]]*\])+$"), ""),
)
_FILE_NOISE: Final = (
    (re.compile(r"^.*/(?:site|dist)-packages/"), ""),
    (re.compile(r"^.*/lib(?:64)?/python3\.\d+t?/"), ""),
    # What the C library and CPython were built from (gdb): no file of this host.
    (re.compile(r"^(?:\.\./)+(?:sysdeps|nptl|csu)/.*$|^\./(?:nptl|csu|io|misc|posix|elf)/.*$"), "libc"),
    (re.compile(r"^(?:\./)?(?:Modules|Python|Objects)/[\w/]+\.(?:c|h)$"), "libpython"),
    (re.compile(r"^.*/torchinductor_[^/]+/.*/c?[0-9a-z]{20,}\.py$"), "torchinductor/HASH.py"),
    (re.compile(r"(<eval_with_key>)\.\d+"), r"\1"),
    (re.compile(r"<ipython-input-\d+-[0-9a-f]+>"), "<ipython-input>"),
    (re.compile(r"^.*/ipykernel_\d+/\d+\.py$"), "<ipython-input>"),
    (re.compile(r"-[0-9a-f]{8}(\.so[.\d]*)$"), r"\1"),  # libgomp-a34b3233.so.1, wheels' copies
)


@functools.lru_cache(maxsize=_CACHE)
def shown_function(function: str) -> str:
    """The name as it is shown: qualified (``Loader.__getitem__``), without ``outer.<locals>.``."""
    name = function.rpartition("<locals>.")[2] or function
    for pattern, written in _FUNCTION_NOISE:
        name = pattern.sub(written, name)
    return name or function


@functools.lru_cache(maxsize=_CACHE)
def bare_function(function: str) -> str:
    """The name every tool agrees on: ``Loader.__getitem__`` and ``__getitem__`` are ``__getitem__``.

    C++ symbols keep their scope; they hold ``::``, and their dots are not Python's.
    """
    name = shown_function(function)
    if "::" in name or "(" in name:
        return name
    return name.rpartition(".")[2] or name


@functools.lru_cache(maxsize=_CACHE)
def portable_file(file: str) -> str:
    """The file without the prefix of its installation: ``torch/distributed/rendezvous.py``."""
    name = file.replace("\\", "/")
    for pattern, written in _FILE_NOISE:
        name = pattern.sub(written, name)
    return name or file


@functools.lru_cache(maxsize=_CACHE)
def identity(frame: Frame) -> Identity:
    """What makes two frames the same place: bare function, portable file, line."""
    file = portable_file(frame.file)
    if frame.kind == "native":  # a library's path is its node's business
        file = file.rpartition("/")[2]
    return bare_function(frame.function), file, frame.line


@functools.lru_cache(maxsize=_CACHE)
def show_frame(frame: Frame) -> str:
    """``function (file:line)``, the file as short as the tool or the installation prefix allows."""
    file = shown_file(frame)
    place = f"{file}:{frame.line}" if frame.line else file
    return f"{shown_function(frame.function)} ({place})" if place else shown_function(frame.function)


def shown_file(frame: Frame) -> str:
    """The short name of the frame's file."""
    short = portable_file(frame.short_file or frame.file)
    return short.rpartition("/")[2] if short.startswith("/") else short


def function_path(frames: tuple[Frame, ...]) -> tuple[tuple[str, str], ...]:
    """Functions and files, leaf first, without lines: two ranks in one loop are in one place."""
    return tuple(identity(frame)[:2] for frame in frames)
