"""A worker function under its own name, with the probe around it."""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import tempfile
from pathlib import Path

import pytest
from tests.probe_factory import sum_of

from rankscope.watchdog.probe.entry import ProbedEntrypoint, redirect


def test_it_keeps_the_functions_name_and_signature_and_calls_it() -> None:
    entrypoint = ProbedEntrypoint(sum_of)
    assert entrypoint.__name__ == "sum_of"
    assert entrypoint.__qualname__ == "sum_of"
    assert entrypoint.__module__ == sum_of.__module__
    assert entrypoint.__doc__ == sum_of.__doc__
    assert inspect.signature(entrypoint) == inspect.signature(sum_of)
    assert entrypoint(2, second=3) == 5


def test_it_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(ProbedEntrypoint(sum_of)))
    assert copy.__qualname__ == "sum_of"
    assert copy(2, 3) == 5


def test_a_callable_without_a_name_gets_one() -> None:
    entrypoint = ProbedEntrypoint(functools.partial(sum_of, 2))
    assert entrypoint.__name__ == "partial"
    assert pickle.loads(pickle.dumps(entrypoint))(3) == 5


def test_its_exceptions_are_the_functions_own() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        ProbedEntrypoint(sum_of)(2, "three")


def test_output_goes_to_the_fifo_and_writing_blocks_as_a_pipe_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo = tmp_path / "stdout"
    os.mkfifo(fifo)
    listener = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setenv("RANKSCOPE_STDOUT", str(fifo))
    stdout = os.open(os.devnull, os.O_WRONLY)
    try:
        assert redirect("RANKSCOPE_STDOUT", fd=stdout)
        assert os.get_blocking(stdout)
        assert os.get_inheritable(stdout)
        os.write(stdout, b"epoch 1\n")
        assert os.read(listener, 100) == b"epoch 1\n"
    finally:
        os.close(stdout)
        os.close(listener)


@pytest.mark.parametrize("kind", ["unset", "missing", "unread", "file"])
def test_without_a_fifo_that_is_read_output_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "stdout"
    if kind == "unread":
        os.mkfifo(path)
    if kind == "file":
        path.write_text("mine")
    if kind != "unset":
        monkeypatch.setenv("RANKSCOPE_STDOUT", str(path))
    with tempfile.TemporaryFile() as stdout:
        before = os.fstat(stdout.fileno()).st_ino
        assert not redirect("RANKSCOPE_STDOUT", fd=stdout.fileno())
        assert os.fstat(stdout.fileno()).st_ino == before
