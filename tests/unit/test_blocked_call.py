"""The file of a blocked system call, read from real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.capture_factory import wait_until

from rankscope.diag.blocked_call import blocked_call


@contextmanager
def a_process(script: str, path: Path) -> Generator[int]:
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "shard of März.pt"
    os.mkfifo(path)
    return path


def blocked_in(pid: int) -> str:
    return blocked_call(pid, "S")


def test_a_file_that_cannot_be_opened_is_named(fifo: Path) -> None:
    with a_process("import sys; open(sys.argv[1])", fifo) as pid:
        wait_until(lambda: blocked_in(pid) == f"openat {fifo}")


def test_a_file_that_gives_nothing_is_named(fifo: Path) -> None:
    with a_process("import os, sys; os.read(os.open(sys.argv[1], os.O_RDWR), 1)", fifo) as pid:
        wait_until(lambda: blocked_in(pid) == f"read {fifo}")


def test_what_has_no_path_has_no_name(fifo: Path) -> None:
    with a_process("import sys; sys.stdin.read()", fifo) as pid:
        wait_until(lambda: b"pipe" in Path(f"/proc/{pid}/wchan").read_bytes())
        assert blocked_in(pid) == ""


@pytest.mark.parametrize("state", ["D", "R", "T", "Z"])
def test_what_does_not_sleep_is_left_alone(state: str) -> None:
    assert blocked_call(os.getpid(), state) == ""


def test_a_process_that_is_gone_has_none() -> None:
    assert blocked_call(2**22 + 1, "S") == ""
