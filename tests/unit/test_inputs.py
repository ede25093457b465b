"""Bytes of an input: compressed or not, whole, cut, damaged, or a bomb."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from tests.deadline import DEADLINE

from rankscope.diag.dumps.inputs import Limits, chunks_of

TEXT = b"".join(b"line %d of a log: %x\n" % (at, at * at * 2_654_435_761) for at in range(12_000))
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "bzip2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
}
Packer = Callable[[bytes], bytes]
each_format = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS.keys())


def read(path: Path, **limits: int) -> tuple[bytes, list[str]]:
    notes: list[str] = []
    data = b"".join(chunks_of(path, note=notes.append, limits=Limits(**limits)))
    return data, notes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "input"


@pytest.mark.parametrize("data", [b"", b"x", b"\x1f", b"\x1f\x8b", b"BZh91", b"BZhang et al.\n", TEXT])
def test_a_plain_file_is_given_as_it_is(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    assert read(file) == (data, [])


@each_format
def test_compressed_data_is_told_by_its_first_bytes(file: Path, pack: Packer) -> None:
    file.write_bytes(pack(TEXT))
    assert read(file) == (TEXT, [])


@each_format
def test_members_behind_each_other_are_one_text(file: Path, pack: Packer) -> None:
    file.write_bytes(pack(TEXT) + pack(b"second\n") + bytes(8) + pack(b"third\n"))
    assert read(file) == (TEXT + b"second\nthird\n", [])


@each_format
@pytest.mark.parametrize("outer", PACKERS.values(), ids=PACKERS.keys())
def test_what_is_compressed_twice_is_undone_twice(file: Path, pack: Packer, outer: Packer) -> None:
    file.write_bytes(outer(pack(TEXT)))
    assert read(file) == (TEXT, [])


def test_what_is_compressed_three_times_stays_so_once(file: Path) -> None:
    file.write_bytes(gzip.compress(gzip.compress(gzip.compress(b"text"))))
    data, _ = read(file)
    assert gzip.decompress(data) == b"text"


@each_format
def test_a_cut_file_gives_what_came_before_and_says_so(file: Path, pack: Packer) -> None:
    text = os.urandom(200_000).hex().encode()  # several blocks of every format
    packed = pack(text)
    file.write_bytes(packed[: len(packed) * 3 // 4])
    data, notes = read(file)
    assert text.startswith(data)
    assert pack is bz2.compress or len(data) > len(text) // 4
    assert len(notes) == 1
    assert "cut off" in notes[0]
    assert str(len(data)) in notes[0]


@each_format
def test_a_damaged_file_gives_what_came_before_and_says_so(file: Path, pack: Packer) -> None:
    packed = bytearray(pack(TEXT))
    for at in range(len(packed) // 2, len(packed) // 2 + 9):
        packed[at] ^= 0x55
    file.write_bytes(packed)
    data, notes = read(file)
    assert len(data) <= 2 * len(TEXT)
    assert len(notes) == 1
    assert "damaged" in notes[0] or "cut off" in notes[0]


@each_format
def test_what_stands_behind_the_end_is_told(file: Path, pack: Packer) -> None:
    file.write_bytes(pack(TEXT) + b"something else behind it")
    data, notes = read(file)
    assert data == TEXT
    assert len(notes) == 1


@each_format
def test_a_bomb_is_read_to_the_limit_in_bounded_memory(file: Path, pack: Packer) -> None:
    file.write_bytes(pack(bytes(40_000_000)))
    size = 0
    notes: list[str] = []
    tracemalloc.start()
    try:
        for chunk in chunks_of(file, note=notes.append, limits=Limits(free_bytes=1 << 20, ratio=100)):
            size += len(chunk)
            assert 0 < len(chunk) <= 1 << 18
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (1 << 18) < size <= max(1 << 20, 100 * file.stat().st_size)
    assert len(notes) == 1
    assert "more than 100 times" in notes[0]
    assert peak < 30 << 20


def test_a_bomb_in_a_bomb_meets_the_limit_of_the_file(file: Path) -> None:
    file.write_bytes(gzip.compress(gzip.compress(bytes(100_000_000))))
    data, notes = read(file, free_bytes=1 << 20, ratio=100)
    assert len(data) <= 1 << 20
    assert notes


def test_a_log_that_repeats_itself_is_no_bomb(file: Path) -> None:
    text = b"the same line again\n" * 500_000
    file.write_bytes(gzip.compress(text))
    assert read(file) == (text, [])


def test_a_frame_that_asks_for_gigabytes_is_not_given_them(file: Path) -> None:
    file.write_bytes(b"\x28\xb5\x2f\xfd\x00\xa8\x03\x00\x00a")  # a window of 2 GiB
    data, notes = read(file)
    assert data == b""
    assert "damaged" in notes[0]


@each_format
def test_any_cut_of_the_first_bytes_is_read(file: Path, pack: Packer) -> None:
    packed = pack(b"short")
    for cut in range(len(packed)):
        file.write_bytes(packed[:cut])
        data, _ = read(file)
        assert data in {b"", packed[:cut]} or b"short".startswith(data)


def test_a_file_that_is_not_there_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        chunks_of(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        chunks_of(tmp_path)


def test_a_file_that_is_not_read_to_its_end_is_closed(file: Path) -> None:
    file.write_bytes(TEXT * 10)
    before = len(list(Path("/proc/self/fd").iterdir()))
    chunks = chunks_of(file)
    assert next(chunks)
    del chunks
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("pack", [bytes, gzip.compress, PACKERS["zstd"]], ids=["plain", "gzip", "zstd"])
def test_standard_input_is_read_like_a_file(pack: Packer) -> None:
    code = (
        "import sys; from rankscope.diag.dumps.inputs import chunks_of;"
        "print(sum(len(chunk) for chunk in chunks_of(None)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=pack(TEXT), capture_output=True, timeout=DEADLINE, check=True
    )
    assert int(done.stdout) == len(TEXT)


def test_a_device_without_an_end_is_refused_by_name_and_by_a_link_to_it(tmp_path: Path) -> None:
    link = tmp_path / "rank0.txt"
    link.symlink_to("/dev/zero")
    for path in (Path("/dev/zero"), link):
        with pytest.raises(OSError, match="it is a device"):
            list(chunks_of(path))
    assert list(chunks_of(Path(os.devnull))) == []


def test_a_named_pipe_that_nobody_writes_to_is_waited_for_aloud_and_not_for_ever(tmp_path: Path) -> None:
    pipe = tmp_path / "rank0.txt"
    os.mkfifo(pipe)
    said: list[str] = []
    with pytest.raises(TimeoutError, match="nobody wrote"):
        list(chunks_of(pipe, say=said.append, limits=Limits(writer_seconds=0.2)))
    assert said == [f"{pipe}: waiting for a writer"]


def test_a_named_pipe_gives_what_is_written_to_it(tmp_path: Path) -> None:
    pipe = tmp_path / "rank0.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a dump\n" * 100_000,))
    writer.start()
    assert b"".join(chunks_of(pipe)) == b"a dump\n" * 100_000
    writer.join(10)
