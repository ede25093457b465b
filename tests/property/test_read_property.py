"""The readers on any bytes: they never raise, and neither pieces, prefixes nor mixing change what is read."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.fuzz import check
from tests.reading_factory import PREFIXES, log, read, shape

from rankscope.diag.read.stream import read_contents
from rankscope.diag.read.threads import END_MISSING, NO_MAIN

HEADERS = (
    "Process 5: python train.py",
    "Python v3.11.7 (/usr/bin/python3.11)",
    'Thread 5 (idle): "MainThread"',
    "Thread 0x7F00 (active+gil)",
    "Traceback for thread 5 (python) [Has the GIL] (most recent call last):",
    "Thread 0x00007f (most recent call first):",
    "Current thread 0x00007e (most recent call first):",
    'Thread 2 (Thread 0x7f (LWP 6) "python"):',
    "Traceback (most recent call first):",
    "Traceback (most recent call last):",
    "Error: Failed to get stack traces",
    '[{"pid": 5, "os_thread_id": 5, "frames": []}]',
    "[",
    "]",
    "  {",
    '    "os_thread_id": 5,',
    '{"pg_config": {}, "entries": []}',
)
DEEPER = (
    "    f (a.py:1)",
    "    wait (libc.so.6)",
    "        Locals:",
    "            a: 1",
    '    (Python) File "a.py", line 1, in f',
    '    (C) File "???", line 0, in f(int) (lib.so)',
    "        work.wait()",
    "      Arguments:",
    '  File "a.py", line 1 in f',
    '  File "a.py", line 1, in f',
    "#0  0x01 in poll (fds=0x0) at poll.c:29",
    "#1  main () from /lib/libc.so.6",
    "    1: a cause",
    "",
)
LINES = st.one_of(
    st.sampled_from(HEADERS),
    st.sampled_from(DEEPER),
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=30),
)
WITH_PREFIX = st.tuples(LINES, st.sampled_from([None, *PREFIXES]))

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True) | st.sampled_from(
    ["<lambda>", "a.<locals>.b"]
)
FILES = st.from_regex(r"[a-z][a-z0-9_/]{0,20}\.py", fullmatch=True) | st.just("<string>")
FRAMES = st.lists(st.tuples(NAMES, FILES, st.integers(1, 10**6)), min_size=1, max_size=6)
STACKS = st.lists(FRAMES, min_size=1, max_size=4)
Stacks = list[list[tuple[str, str, int]]]
Writer = Callable[[Stacks], list[str]]


def pyspy_text(stacks: Stacks) -> list[str]:
    lines = ["Process 7: python train.py", "Python v3.11.7 (/usr/bin/python3.11)", ""]
    for at, frames in enumerate(stacks):
        lines.append(f'Thread {7 + at} (idle): "T{at}"')
        lines += [f"    {name} ({file}:{line})" for name, file, line in frames]
    return lines


def pystack_text(stacks: Stacks) -> list[str]:
    lines: list[str] = []
    for at, frames in enumerate(stacks):
        lines.append(f"Traceback for thread {7 + at} (python) [] (most recent call last):")
        for name, file, line in reversed(frames):
            lines += [f'    (Python) File "{file}", line {line}, in {name}', "        x = f()"]
        lines.append("")
    return lines


def faulthandler_text(stacks: Stacks) -> list[str]:
    lines: list[str] = []
    for at, frames in enumerate(stacks):
        lines.append(f"Thread 0x{at + 1:016x} (most recent call first):")
        lines += [f'  File "{file}", line {line} in {name}' for name, file, line in frames]
        lines.append("")
    return lines


def gdb_text(stacks: Stacks) -> list[str]:
    lines: list[str] = []
    for at, frames in enumerate(stacks):
        lines.append(f'Thread {len(stacks) - at} (Thread 0x1 (LWP {70 - at}) "python"):')
        lines.append("Traceback (most recent call first):")
        for name, file, line in frames:
            lines += [f'  File "{file}", line {line}, in {name}', "    x = f()"]
        lines.append("")
    return lines


WRITERS: tuple[Writer, ...] = (pyspy_text, pystack_text, faulthandler_text, gdb_text)


@given(st.binary(max_size=400))
@example(b"\xef\xbb\xbf")
def test_any_bytes_are_read_without_raising(data: bytes) -> None:
    check(read_contents([data]), data)


@settings(max_examples=300)
@given(st.lists(WITH_PREFIX, max_size=40))
def test_any_lines_are_read_without_raising(lines: list[tuple[str, str | None]]) -> None:
    text = [PREFIXES[who](line, at) if who else line for at, (line, who) in enumerate(lines)]
    data = log(text)
    check(read_contents([data]), data)


@given(st.lists(WITH_PREFIX, max_size=30), st.lists(st.integers(0, 2000), max_size=5))
def test_pieces_do_not_matter(lines: list[tuple[str, str | None]], cuts: list[int]) -> None:
    data = log([PREFIXES[who](line, at) if who else line for at, (line, who) in enumerate(lines)])
    edges = [0, *sorted(min(at, len(data)) for at in cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    assert read_contents(pieces) == read_contents([data])


@given(STACKS, st.sampled_from(WRITERS), st.sampled_from(list(PREFIXES)))
def test_what_a_tool_writes_is_read_back_behind_any_prefix(stacks: Stacks, writer: Writer, who: str) -> None:
    lines = writer(stacks)
    contents = read(log(["noise", *(PREFIXES[who](line, at) for at, line in enumerate(lines)), "noise"]))
    found = [
        [(frame.function, frame.file, frame.line) for frame in thread.frames]
        for dump in contents.dumps
        for thread in dump.threads
    ]
    assert found == stacks
    assert set(contents.problems) <= {END_MISSING, NO_MAIN}  # a stack of any frames may have no root


@settings(max_examples=40)
@given(
    st.lists(st.tuples(STACKS, st.sampled_from(WRITERS)), min_size=2, max_size=4),
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
)
def test_mixed_ranks_are_told_apart(dumps: list[tuple[Stacks, Writer]], order: list[int]) -> None:
    streams: list[list[str]] = []
    wanted: list[tuple[int, object]] = []
    for rank, (stacks, writer) in enumerate(dumps):
        lines = writer(stacks)
        wanted += [(rank, shape(dump)) for dump in read(log(lines)).dumps]
        streams.append([f"[rank{rank}]: {line}" for line in lines])
    mixed: list[str] = []
    for at in itertools.cycle(order):
        live = [one for one in streams if one]
        if not live:
            break
        mixed.append(live[at % len(live)].pop(0))
    found = [(dump.rank, shape(dump)) for dump in read(log(mixed)).dumps]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


@given(STACKS, st.sampled_from(WRITERS), st.data())
def test_a_cut_file_gives_what_was_there(stacks: Stacks, writer: Writer, data: st.DataObject) -> None:
    lines = writer(stacks)
    kept = data.draw(st.integers(0, len(lines)))
    frames = [
        frame.function
        for dump in read(log(lines[:kept])).dumps
        for thread in dump.threads
        for frame in thread.frames
    ]
    headers = ("Thread", "Traceback", "Current", "Process", "Python v", "        ", "    x =")
    assert len(frames) == sum(bool(line) and not line.startswith(headers) for line in lines[:kept])
