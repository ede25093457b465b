"""Reads ``py-spy dump --json``: a list of threads, each with its frames leaf first.

It knows py-spy's field names and nothing of ranks or what a frame means. A list of several processes
(several documents put together) is taken apart by their ids. A torn or foreign document gives the threads
that could be read and a line about the rest. Many ranks show the same stack bytes, so frames are decoded
once for each distinct text and shared: whoever compares stacks later can start with identity; a dump that
shows only stacks that were seen before is not even gone through as JSON (``known_stacks``).
"""

from __future__ import annotations

import functools
import json
import re
from typing import Annotated, Final

import msgspec

from rankscope.diag.model import Frame, FrameVariables, ThreadStack
from rankscope.diag.read import Read, StackDump
from rankscope.diag.read.known_stacks import KnownStacks

_MAIN_NAME: Final = "MainThread"
_FIRST_OBJECT: Final = re.compile(r"[^\[]*\[\s*\{")
_NEXT_OBJECT: Final = re.compile(r"\s*,\s*\{")
_DISTINCT_STACKS: Final = 2048  # a bound on what is kept; 1,024 ranks of one job show some hundred
_NULL: Final = msgspec.Raw(b"null")
_Stack = tuple[tuple[Frame, ...], tuple[FrameVariables, ...]]


class _FrameRecord(msgspec.Struct, gc=False):
    """One frame as py-spy 0.4 writes it; a native frame has ``module`` set and line 0."""

    name: str
    filename: str = ""
    line: int = 0
    module: str | None = None
    short_filename: str | None = None
    locals: msgspec.Raw = _NULL


class _VariableRecord(msgspec.Struct, gc=False):
    """One local variable; ``repr`` is null where py-spy cannot print the value."""

    name: str
    addr: int = 0
    repr: str | None = None


class _ProcessRecord(msgspec.Struct):
    """The process of a thread, in dumps of several."""

    pid: int = 0
    command_line: str = ""
    parent: _ProcessRecord | None = None


class _Thread(msgspec.Struct):
    """One thread as py-spy 0.4 writes it; ``os_thread_id`` is null where py-spy does not know it."""

    pid: int = 0
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool | None = None
    owns_gil: bool | None = None
    process_info: msgspec.Raw = _NULL


class _ThreadRecord(_Thread, kw_only=True):
    """A thread with its frames."""

    frames: msgspec.Raw


class _NumberedRecord(_Thread, kw_only=True):
    """A thread with the number of a stack in place of its frames."""

    frames: Annotated[int, msgspec.Meta(ge=0)]


_Read = tuple[_Thread, _Stack]
_NUMBERED: Final = msgspec.json.Decoder(list[_NumberedRecord])
_THREADS: Final = msgspec.json.Decoder(list[_ThreadRecord])
_RAW_THREADS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_THREAD: Final = msgspec.json.Decoder(_ThreadRecord)
_FRAMES: Final = msgspec.json.Decoder(list[_FrameRecord])
_VARIABLES: Final = msgspec.json.Decoder(list[_VariableRecord])
_PROCESS: Final = msgspec.json.Decoder(_ProcessRecord)
_KNOWN: Final = KnownStacks[_Stack]()
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


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
    read, problems = _threads(data)
    return Read(_with_main([_thread(record, stack, pid=pid) for record, stack in read]), tuple(problems))


def parse_pyspy_dumps(data: bytes) -> tuple[tuple[StackDump, ...], tuple[str, ...]]:
    """Read a document of one or several processes.

    Args:
        data: standard output of ``py-spy dump --json``, or a list that several of them were put into.

    Returns:
        One dump a process, in the order of their first threads, and a line for each thing that could not be
        read. Never raises.
    """
    read, problems = _threads(data)
    groups: dict[int, list[_Read]] = {}
    for one in read:
        groups.setdefault(one[0].pid, []).append(one)
    dumps: list[StackDump] = []
    for pid, group in groups.items():
        threads = _with_main([_thread(record, stack, pid=pid) for record, stack in group])
        process = _process(bytes(group[0][0].process_info))
        dumps.append(
            StackDump(
                source="py-spy",
                threads=threads,
                pid=pid,
                title=process.command_line,
                is_native=any(frame.kind == "native" for one in threads for frame in one.frames),
                has_variables=any(thread.variables for thread in threads),
                parent=process.parent.pid if process.parent else 0,
            )
        )
    return tuple(dumps), tuple(problems)


def _threads(data: bytes) -> tuple[list[_Read], list[str]]:
    """The threads with their stacks, and a line for each thing that could not be read."""
    taken = _KNOWN.take_out(data)
    if taken is not None:
        text, stacks = taken
        try:
            return [(record, stacks[record.frames]) for record in _NUMBERED.decode(text)], []
        except (*_UNREADABLE, IndexError):
            pass
    records, problems = _records(data)
    read: list[_Read] = []
    for place, record in enumerate(records):
        raw = bytes(record.frames)
        stack, problem = _stack(raw)
        if problem:
            problems.append(f"py-spy: thread {record.os_thread_id or 0}: {problem}")
        else:
            _KNOWN.learn(place, raw, stack)
        read.append((record, stack))
    return read, problems


def _thread(record: _Thread, stack: _Stack, *, pid: int) -> ThreadStack:
    tid = record.os_thread_id or 0
    frames, variables = stack
    is_main = tid != 0 and tid in (pid, record.pid)
    return ThreadStack(
        tid, record.thread_name, frames, is_main, record.owns_gil, record.active, variables=variables
    )


def _process(raw: bytes) -> _ProcessRecord:
    try:
        return _PROCESS.decode(raw)
    except _UNREADABLE:  # null, where the tool was asked for one process
        return _ProcessRecord()


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
    """The threads of a document whatever their stacks are."""
    try:
        return _THREADS.decode(data), []
    except _UNREADABLE:
        pass
    try:
        pieces = [bytes(piece) for piece in _RAW_THREADS.decode(data)]
        problems: list[str] = []
    except _UNREADABLE as error:
        pieces = _complete_objects(data)
        problems = [f"py-spy: not a complete list of threads ({_one_line(error)})"]
    records: list[_ThreadRecord] = []
    for piece in pieces:
        try:
            records.append(_THREAD.decode(piece))
        except _UNREADABLE as error:
            problems.append(f"py-spy: a thread was left out ({_one_line(error)})")
    return records, problems


def _complete_objects(data: bytes) -> list[bytes]:
    """The whole objects at the head of a list that was cut off, as bytes again."""
    text = data.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    pieces: list[bytes] = []
    opening = _FIRST_OBJECT.match(text)
    while opening:
        at = opening.end() - 1
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        pieces.append(text[at:end].encode("utf-8", "replace"))
        opening = _NEXT_OBJECT.match(text, end)
    return pieces


@functools.lru_cache(maxsize=_DISTINCT_STACKS)
def _stack(raw: bytes) -> tuple[_Stack, str | None]:
    try:
        records = _FRAMES.decode(raw)
    except _UNREADABLE as error:
        return ((), ()), f"frames not understood ({_one_line(error)})"
    frames = tuple(_frame(record) for record in records)
    variables, problem = _variables(records)
    return (frames, variables), problem


def _variables(records: list[_FrameRecord]) -> tuple[tuple[FrameVariables, ...], str | None]:
    found: list[FrameVariables] = []
    problem: str | None = None
    for at, record in enumerate(records):
        raw = bytes(record.locals)
        if raw == b"null":
            continue
        try:
            variables = _VARIABLES.decode(raw)
        except _UNREADABLE as error:
            problem = f"local variables not understood ({_one_line(error)})"
            continue
        values = tuple(
            (one.name, one.repr if one.repr is not None else f"<at {one.addr:#x}>") for one in variables
        )
        if values:
            found.append(FrameVariables(at, values))
    return tuple(found), problem


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
