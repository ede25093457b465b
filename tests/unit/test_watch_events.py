"""Events on standard output: a reader that has gone ends the watch, a full disk does not."""

from __future__ import annotations

import json
import os

from tests.jobs import until

from rankscope.agent.beside.event_stream import EventStream
from rankscope.diag.store.events import Event

EVENT = Event(
    id="1", source="host", type="rankscope.message", time="2026-11-29T16:40:00Z", subject=None, data={}
)


def test_a_full_disk_is_told_and_the_next_event_is_tried() -> None:
    gone: list[bool] = []
    said: list[str] = []
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        stream = EventStream(fd, lambda: gone.append(True), said.append)
        stream.write("a-job", EVENT)
        stream.write("a-job", EVENT)
        stream.close()
    finally:
        os.close(fd)
    assert gone == []
    assert len(said) == 2
    assert "No space left on device" in said[0]


def test_a_reader_that_has_gone_is_told_once() -> None:
    gone: list[bool] = []
    said: list[str] = []
    reading, writing = os.pipe()
    os.close(reading)
    try:
        stream = EventStream(writing, lambda: gone.append(True), said.append)
        stream.write("a-job", EVENT)
        stream.write("a-job", EVENT)
        stream.close()
    finally:
        os.close(writing)
    assert (gone, said) == ([True], [])


def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_whole_lines() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        stream = EventStream(writing, lambda: None, lambda _line: None)
        for _ in range(1000):
            stream.write("a-job", EVENT)
        data = b""

        def read_on() -> bool:
            nonlocal data
            data += os.read(reading, 4096)
            return data.count(b"\n") == 1000

        until(read_on, "all lines", seconds=20)
        stream.close()
        assert {json.loads(line)["job"] for line in data.splitlines()} == {"a-job"}
    finally:
        os.close(reading)
        os.close(writing)
