"""torch's error file: its formats, its time, and what is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.failures_factory import T0
from torch.distributed.elastic.multiprocessing.errors import ErrorHandler

from rankscope.agent.failures.error_file import parse_error_file, read_error_file


def a_file(timestamp: object = str(int(T0)), message: object = "ValueError: bad") -> bytes:
    info = {"timestamp": timestamp, "py_callstack": "the stack"}
    return json.dumps({"message": {"message": message, "extraInfo": info}}).encode()


def load_sample() -> None:
    raise ValueError("bad\nsecond line")


def test_torchs_own_handler_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    try:
        load_sample()
    except ValueError as error:
        ErrorHandler().record_exception(error)
    found = read_error_file(str(path))
    assert found is not None
    assert found.message == "ValueError: bad\nsecond line"
    assert "in load_sample" in found.stack
    assert (found.at, found.uncertainty) == (path.stat().st_mtime, 0.0)


def test_the_fraction_of_a_second_is_the_files_own() -> None:
    found = parse_error_file(a_file(), changed=T0 + 0.25)
    assert found is not None
    assert (found.at, found.uncertainty) == (T0 + 0.25, 0.0)


@pytest.mark.parametrize("changed", [T0 + 86_400, T0 - 3, None])
def test_a_file_that_was_copied_has_whole_seconds(changed: float | None) -> None:
    found = parse_error_file(a_file(), changed=changed)
    assert found is not None
    assert (found.at, found.uncertainty) == (T0, 1.0)


@pytest.mark.parametrize("timestamp", ["", "x", None, [], True, "nan", "inf", "-1", 10**40])
def test_a_time_that_is_none_is_unknown(timestamp: object) -> None:
    found = parse_error_file(a_file(timestamp), changed=T0)
    assert found is not None
    assert found.at is None


def test_the_format_of_torch_1_is_read() -> None:
    found = parse_error_file(b'{"message": "ValueError: old", "timestamp": 1700000000}')
    assert found is not None
    assert (found.message, found.at) == ("ValueError: old", 1_700_000_000.0)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff", b"{}", b'{"message": null}', b'{"message": {"message": ""}}']
)
def test_what_says_nothing_is_none(data: bytes) -> None:
    assert parse_error_file(data) is None


def test_a_pipe_a_folder_and_nothing_are_no_error_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", ".", "missing", "nul\0l"):
        assert read_error_file(f"{tmp_path}/{name}") is None
    assert read_error_file("") is None
