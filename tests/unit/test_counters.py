"""Counters of a process through kept descriptors: what ``diag.proc`` says, and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from tests.deadline import DEADLINE

from rankscope.agent.observing.counters import ProcessCounters
from rankscope.diag import proc


def test_they_are_what_the_facts_of_the_process_are() -> None:
    counters = ProcessCounters(os.getpid())
    try:
        before = proc.read_facts(os.getpid(), now=time.monotonic())
        now = counters.read()
        after = proc.read_facts(os.getpid(), now=time.monotonic())
    finally:
        counters.close()
    assert before is not None
    assert now is not None
    assert after is not None
    assert (now.start_ticks, now.state) == (before.start_ticks, "R")
    of = [facts.main_cpu_seconds + facts.main_run_delay_seconds for facts in (before, after)]
    assert of[0] <= now.cpu_seconds <= of[1]
    assert before.voluntary_switches <= now.switches <= after.voluntary_switches
    assert before.io_bytes <= now.io_bytes <= after.io_bytes


def test_a_process_that_is_gone_reads_as_none() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    counters = ProcessCounters(child.pid)
    late = None
    try:
        first = counters.read()
        child.communicate(b"\n", timeout=DEADLINE)
        late = ProcessCounters(child.pid)
        assert first is not None
        assert counters.read() is None
        assert late.read() is None
    finally:
        counters.close()
        if late is not None:
            late.close()


def test_nothing_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    counters = ProcessCounters(os.getpid())
    assert len(os.listdir("/proc/self/fd")) == before + 4  # noqa: PTH208
    counters.close()
    counters.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert counters.read() is None


@pytest.mark.parametrize("pid", [0, 2**22 + 5])
def test_a_pid_that_is_nobody_s_reads_as_none(pid: int) -> None:
    counters = ProcessCounters(pid)
    assert counters.read() is None
    counters.close()
