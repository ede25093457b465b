"""What reaches the console when it lags behind a file that lags too."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rankscope.agent.logs.console import Console
from rankscope.agent.logs.counters import Counters, create_counters
from rankscope.agent.logs.stream import Limits, Stream

WHOLE, HALF, REST = b"a whole line\n", b"half of a line, ", b"and its rest\n"
OTHER = b"another rank's line\n"


@contextmanager
def a_lagging_stream(file: Path) -> Generator[Stream]:
    """A stream whose file ends in the middle of a line, of which only the rest is still in memory."""
    file.write_bytes(WHOLE + HALF)
    stream = Stream(slot=0, fifo="/f", fd=9, file=str(file), has_console=True, resumed=False)
    stream.append(WHOLE + HALF + REST)
    stream.filed = len(WHOLE + HALF)
    stream.shown = stream.filed
    stream.trim(Limits(kept_bytes=0))
    stream.shown = 0
    stream.file_fd = os.open(file, os.O_RDONLY)
    try:
        yield stream
    finally:
        os.close(stream.file_fd)


def another_stream() -> Stream:
    stream = Stream(slot=1, fifo="/g", fd=8, file="/m", has_console=True, resumed=False)
    stream.append(OTHER)
    return stream


def shown(*streams: Stream) -> bytes:
    """What a console writes of streams that do not grow."""
    reading, writing = os.pipe()
    fd = create_counters()
    counters, work, ended = Counters(fd), threading.Condition(), threading.Event()
    console = Console(writing, work, counters, Limits(), lambda _: ended.set())
    for stream in streams:
        console.add(stream)
    due = sum(stream.unshown_bytes for stream in streams)
    console.start()
    out = b""
    while len(out) < due:
        out += os.read(reading, due)
    os.close(reading)
    with work:  # nobody reads: the console ends
        streams[-1].append(b"\n")
        work.notify_all()
    assert ended.wait(60)
    os.close(writing)
    os.close(fd)
    return out


def test_a_line_that_is_half_in_the_file_and_half_in_memory_is_shown_whole(tmp_path: Path) -> None:
    with a_lagging_stream(tmp_path / "log") as stream:
        assert shown(stream, another_stream()) == WHOLE + HALF + REST + OTHER


def test_it_is_shown_whole_when_the_file_holds_nothing_but_its_first_half(tmp_path: Path) -> None:
    with a_lagging_stream(tmp_path / "log") as stream:
        stream.shown = len(WHOLE)
        assert shown(stream, another_stream()) == HALF + REST + OTHER
