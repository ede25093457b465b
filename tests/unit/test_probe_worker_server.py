"""What the thread that starts torch's worker server leaves as it was."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from rankscope.watchdog.probe import worker_server
from rankscope.watchdog.probe.worker_server import WorkerServer

TURNS = 3000


@pytest.fixture
def made_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which servers were made; there is a lot of garbage then, and no end of its making."""
    threads: list[str] = []

    class Server:
        def __init__(self, _path: str) -> None:
            threads.append(threading.current_thread().name)
            for _ in range(TURNS):
                itself: list[object] = []
                itself.append(itself)

    module = ModuleType(worker_server.MODULE)
    module.__dict__["_WorkerServer"] = Server
    monkeypatch.setitem(sys.modules, worker_server.MODULE, module)
    return threads


@pytest.fixture(params=[True, False])
def enabled(request: pytest.FixtureRequest) -> Iterator[bool]:
    if not request.param:
        gc.disable()
    yield bool(request.param)
    gc.enable()


@contextmanager
def collecting_threads() -> Generator[list[str]]:
    """The threads that collected garbage."""
    found: list[str] = []

    def note(_phase: str, _info: dict[str, int]) -> None:
        found.append(threading.current_thread().name)

    gc.callbacks.append(note)
    try:
        yield found
    finally:
        gc.callbacks.remove(note)


def test_no_garbage_is_collected_in_the_thread_that_has_no_descriptors(
    tmp_path: Path, made_in: list[str], *, enabled: bool
) -> None:
    """A file of the user's that ended there would not be closed, and what it still held not written."""
    with collecting_threads() as found:
        WorkerServer(str(tmp_path)).look()
        assert gc.isenabled() is enabled
        _garbage: list[list[object]] = [[] for _ in range(TURNS)]
    assert made_in == ["rankscope-server"]
    assert "rankscope-server" not in found
    assert bool(found) is enabled


def test_a_child_that_is_forked_meanwhile_collects_its_garbage(tmp_path: Path, made_in: list[str]) -> None:
    server = WorkerServer(str(tmp_path))
    with server._no_collection():
        assert not gc.isenabled()
        server.silence()  # as the forked child does
        assert gc.isenabled()
    assert made_in == []
