"""Reads ``py-spy dump --json``: a list of threads, each with its frames leaf first.

It knows py-spy's field names and nothing of processes, ranks or what a frame means. A torn or foreign
document gives the threads that could be read and a line about the rest. Many ranks show the same stack
bytes, so frames are decoded once for each distinct text and shared: whoever compares stacks later can
start with identity.
"""

from __future__ import annotations

import functools
import json
from typing import Final

import msgspec

from rankscope.diag.model import Frame, ThreadStack
from rankscope.diag.read import Read

_MAIN_NAME: Final = "MainThread"
_DISTINCT_STACKS: Final = 2048  # a bound on what is kept; 1,024 ranks of one job show some hundred


class _FrameRecord(msgspec.Struct, gc=False):
    """One frame as py-spy 0.4 writes it; a native frame has ``module`` set and line 0."""

    name: str
    filename: str = ""
    line: int = 0
    module: str | None = None
    short_filename: str | None = None


class _ThreadRecord(msgspec.Struct):
    """One thread as py-spy 0.4 writes it; ``os_thread_id`` is null where py-spy does not know it."""

    frames: msgspec.Raw
    pid: int = 0
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool | None = None
    owns_gil: bool | None = None


_THREADS: Final = msgspec.json.Decoder(list[_ThreadRecord])
_RAW_THREADS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_THREAD: Final = msgspec.json.Decoder(_ThreadRecord)
_FRAMES: Final = msgspec.json.Decoder(list[_FrameRecord])


def parse_pyspy_json(data: bytes, *, pid: int) -> Read:
    """Read one process's dump.

    Args:
        data: standard output of ``py-spy dump --json``.
        pid: process the dump was taken of; the thread with that id is the main one. 0 when unknown:
            the dump's own process id is used.

    Returns:
        The threads that could be read, and a line for each thing that could not. Never raises.
    """
    if not data.strip():
        return Read(problems=("py-spy: empty output",))
    records, problems = _records(data)
    threads: list[ThreadStack] = []
    for record in records:
        frames, problem = _frames(bytes(record.frames))
        if problem:
            problems.append(f"py-spy: thread {record.os_thread_id or 0}: {problem}")
        threads.append(_thread(record, frames, pid=pid))
    return Read(_with_main(threads), tuple(problems))


def _thread(record: _ThreadRecord, frames: tuple[Frame, ...], *, pid: int) -> ThreadStack:
    tid = record.os_thread_id or 0
    return ThreadStack(
        thread_id=tid,
        name=record.thread_name,
        frames=frames,
        is_main=tid != 0 and tid in (pid, record.pid),
        holds_gil=record.owns_gil,
        active=record.active,
    )


def _with_main(threads: list[ThreadStack]) -> tuple[ThreadStack, ...]:
    """Fall back on the thread's name: a vfork child shows its parent's thread ids (measured)."""
    if any(thread.is_main for thread in threads):
        return tuple(threads)
    for index, thread in enumerate(threads):
        if thread.name == _MAIN_NAME:
            threads[index] = msgspec.structs.replace(thread, is_main=True)
            break
    return tuple(threads)


def _records(data: bytes) -> tuple[list[_ThreadRecord], list[str]]:
    try:
        return _THREADS.decode(data), []
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass
    try:
        pieces = [bytes(piece) for piece in _RAW_THREADS.decode(data)]
        problems: list[str] = []
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        pieces = _complete_objects(data)
        problems = [f"py-spy: not a complete list of threads ({_one_line(error)})"]
    records: list[_ThreadRecord] = []
    for piece in pieces:
        try:
            records.append(_THREAD.decode(piece))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            problems.append(f"py-spy: a thread was left out ({_one_line(error)})")
    return records, problems


def _complete_objects(data: bytes) -> list[bytes]:
    """The whole objects at the head of a list that was cut off, as bytes again."""
    text = data.decode("utf-8", "replace")
    at = text.find("[") + 1
    if at == 0:
        return []
    decoder = json.JSONDecoder()
    pieces: list[bytes] = []
    while True:
        at = text.find("{", at)
        if at < 0 or (pieces and text[:at].rstrip()[-1:] != ","):
            return pieces
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return pieces
        pieces.append(text[at:end].encode("utf-8", "replace"))
        at = end


@functools.lru_cache(maxsize=_DISTINCT_STACKS)
def _frames(raw: bytes) -> tuple[tuple[Frame, ...], str | None]:
    try:
        records = _FRAMES.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return (), f"frames not understood ({_one_line(error)})"
    return tuple(_frame(record) for record in records), None


def _frame(record: _FrameRecord) -> Frame:
    return Frame(
        function=record.name,
        file=record.filename,
        line=record.line,
        kind="python" if record.module is None else "native",
        short_file=record.short_filename or "",
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
