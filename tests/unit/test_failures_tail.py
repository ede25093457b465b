"""The end of a log file: any size, rotated, broken, or no file at all; never waits for anybody."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.failures_factory import root_failure

from rankscope.agent.failures import WorkerEnd
from rankscope.agent.failures.reading import LOG_LAG, read_log_words
from rankscope.agent.failures.tail import SHORT_BYTES, read_tail

TRACEBACK = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 8, in load\nValueError: bad sample 17\n'
)
NOISE = "step 12345 loss 0.123 lr 0.0001 at 12:00:00, all is well with the job\n"


def test_a_small_log_is_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text("a\nb\n")
    assert read_tail(log) == "a\nb\n"


def test_of_a_large_log_whole_lines_of_the_end_are_read(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    tail = read_tail(log, size_bytes=100)
    assert tail.startswith("line 9")
    assert tail.endswith("line 999\n")
    assert len(tail) <= 100


def test_gigabytes_cost_no_more_than_their_end(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    with log.open("wb") as file:
        file.seek(8 << 30)
        file.write(("\n" + TRACEBACK + NOISE * 100).encode())
    began = time.thread_time()
    words = read_log_words([str(log)])
    assert words.raised == "ValueError: bad sample 17"
    # CPU time, so that a busy machine does not count; reading all of it would take seconds.
    assert time.thread_time() - began < 0.5


def test_an_error_under_much_noise_is_found(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_text(TRACEBACK + NOISE * (2 * SHORT_BYTES // len(NOISE)))
    assert read_log_words([str(log)]).raised == "ValueError: bad sample 17"


@pytest.mark.parametrize(
    "rotated", ["stderr.log.1", "stderr.log-20261130", "stderr.log.20261130-080102", "stderr.log.old"]
)
def test_what_was_rotated_away_by_renaming_is_read_too(tmp_path: Path, rotated: str) -> None:
    (tmp_path / rotated).write_text("".join(TRACEBACK.splitlines(keepends=True)[:2]))
    log = tmp_path / "stderr.log"
    log.write_text("ValueError: bad sample 17\n")
    assert read_log_words([str(log)]).raised == "ValueError: bad sample 17"


def test_a_log_that_is_gone_is_read_where_it_was_rotated_to(tmp_path: Path) -> None:
    (tmp_path / "stderr.log.1").write_text(TRACEBACK)
    assert read_log_words([str(tmp_path / "stderr.log")]).raised == "ValueError: bad sample 17"


def test_rotated_files_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    for age, name in enumerate(["stderr.log.1", "stderr.log-20261129", "stderr.log.3"]):
        (tmp_path / name).write_text(f"{age}\n")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / "stderr.log.gz").write_text("other\n")
    (tmp_path / "stderr.log").write_text("now\n")
    assert read_tail(tmp_path / "stderr.log") == "2\n1\n0\nnow\n"
    assert read_tail(tmp_path / "stderr.log", size_bytes=7) == "0\nnow\n"


def test_a_log_that_was_copied_and_truncated_under_its_writer(tmp_path: Path) -> None:
    """``copytruncate``: the writer goes on at its old offset, and the file begins with a hole."""
    log = tmp_path / "stderr.log"
    with log.open("wb", buffering=0) as writer:
        writer.write(b"before\n" * 1000)
        (tmp_path / "stderr.log.1").write_bytes(log.read_bytes())
        os.truncate(log, 0)
        writer.write(TRACEBACK.encode())
    assert log.stat().st_size > 7000
    assert "\0" not in read_tail(log)
    assert read_log_words([str(log)]).raised == "ValueError: bad sample 17"


def test_a_compressed_neighbour_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "stderr.log.1").write_bytes(b"\x1f\x8b\x08garbage")
    (tmp_path / "stderr.log").write_text("a\n")
    assert read_tail(tmp_path / "stderr.log") == "a\n"


def test_torn_and_binary_bytes_are_no_hindrance(tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    log.write_bytes(b"\xff\xfe\x00\x01" * 500 + b"\n" + TRACEBACK.encode() + "ü".encode()[:1])
    assert read_log_words([str(log)]).raised == "ValueError: bad sample 17"


def test_a_pipe_a_socket_a_folder_and_nothing_are_no_logs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name in ("fifo", "socket", ".", "missing", "missing/log", "a" * 5000, "nul\0l"):
            assert read_tail(f"{tmp_path}/{name}") == ""
    assert read_tail("") == ""
    assert read_tail("/dev/urandom") == ""


def test_a_pipe_that_somebody_writes_to_is_not_drained(tmp_path: Path) -> None:
    """With log capture the workers write into FIFOs: what they say is the drain's."""
    os.mkfifo(tmp_path / "fifo")
    reader = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "fifo", os.O_WRONLY)
    try:
        os.write(writer, b"for the drain\n")
        assert read_tail(tmp_path / "fifo") == ""
        assert os.read(reader, 100) == b"for the drain\n"
    finally:
        os.close(reader)
        os.close(writer)


def test_an_unreadable_log_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert read_tail(tmp_path / "loop") == ""


def test_last_lines_that_are_on_their_way_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With log capture another process writes the file, a little later than the worker ends."""
    log = tmp_path / "stderr.log"
    waits: list[float] = []

    def arrives(seconds: float) -> None:
        waits.append(seconds)
        log.write_text(TRACEBACK)

    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=arrives)
    monkeypatch.setattr("rankscope.agent.failures.reading.time", clock)
    now = time.time()
    failure = root_failure(
        [WorkerEnd(0, 0, "n", 1, now, logs=(str(log),)), WorkerEnd(1, 1, "n", -9, now + 1)]
    )
    assert failure is not None
    assert (failure.rank, failure.message) == (0, "ValueError: bad sample 17")
    assert len(waits) == 1
    assert 0 < waits[0] <= LOG_LAG
    # Nothing is waited for that has had its time, or can say nothing.
    root_failure([WorkerEnd(0, 0, "n", 3, now - 60, logs=("/missing",)), WorkerEnd(1, 1, "n", -9, now + 1)])
    assert len(waits) == 1


def test_the_first_log_that_says_something_counts(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_text("warning: nothing much\n")
    (tmp_path / "stdout.log").write_text(TRACEBACK)
    words = read_log_words([str(tmp_path / "stderr.log"), str(tmp_path / "stdout.log")])
    assert words.raised == "ValueError: bad sample 17"
