"""A process is its pid and its start time."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psutil
from tests.probe_factory import wait_until

from rankscope.watchdog.probe.process_stat import is_alive, start_ticks


def test_start_ticks_are_those_that_psutil_knows() -> None:
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    since_boot = psutil.Process().create_time() - psutil.boot_time()
    assert abs(start_ticks(os.getpid()) / ticks_per_second - since_boot) < 2


def test_a_process_name_with_blanks_and_brackets_is_read_past(tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep
    program = tmp_path / "a) Z (b"
    shutil.copy(sleep, program)
    with subprocess.Popen([program, "60"]) as process:
        try:
            assert is_alive(process.pid)
            assert start_ticks(process.pid) >= start_ticks(os.getpid())
        finally:
            process.kill()


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(["true"]) as process:
        wait_until(lambda: not is_alive(process.pid), "the zombie counts as dead")
        assert start_ticks(process.pid) > 0


def test_nobody_is_not_alive_and_has_no_start() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
        assert not is_alive(process.pid)
        assert start_ticks(process.pid) == 0
    assert not is_alive(0)
    assert not is_alive(-1)
