"""A process that collects garbage is told from one that runs Python, by pystack and without stopping it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from rankscope.diag.capture.pystack import collects_garbage

COLLECTS = """
import gc
gc.disable()
heap = [[] for _ in range(3_000_000)]
print("ready", flush=True)
while True:
    gc.collect()
"""
LOOPS = """
print("ready", flush=True)
count = 0
while True:
    count += 1
"""


@contextmanager
def running(source: str) -> Generator[int]:
    process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("source", "answer"), [(COLLECTS, True), (LOOPS, False)])
def test_a_collection_is_told_from_a_loop(source: str, answer: bool) -> None:
    with running(source) as pid:
        assert collects_garbage(pid, deadline=time.monotonic() + 60, looks=10) is answer


def test_without_pystack_nothing_is_claimed() -> None:
    with running(LOOPS) as pid:
        assert collects_garbage(pid, deadline=time.monotonic() + 60, pystack="/nonexistent/pystack") is None


def test_a_process_that_is_gone_is_not_waited_for() -> None:
    with running(LOOPS) as pid:
        pass
    assert collects_garbage(pid, deadline=time.monotonic() + 60) is None
