"""A raising worker waits for the agent's word, and for nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest
from tests.probe_factory import wait_until

from rankscope.watchdog.page import PageReader, SlotWriter, create_page
from rankscope.watchdog.probe import raising
from rankscope.watchdog.probe.raising import Hold, last_line

FOR_EVER = 3600.0
"""A hold that is not released lasts longer than the test may."""


class Node:
    """The agent's end and the worker's end of a page with one slot."""

    def __init__(self, folder: Path) -> None:
        path = folder / "progress.page"
        create_page(path, 1)
        self.agent = PageReader(path)
        self.writer = SlotWriter(path, 0)
        self.pipe = folder / "timers"
        os.mkfifo(self.pipe)

    def hold(
        self, *, agent_pid: int | None = None, timeout: float = FOR_EVER, pipe: str | None = None
    ) -> Hold:
        return Hold(
            self.writer,
            rank=3,
            agent_pid=os.getpid() if agent_pid is None else agent_pid,
            timer_file=str(self.pipe) if pipe is None else pipe,
            timeout=timeout,
        )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.writer.close()
    made.agent.close()


def test_without_a_wish_to_hold_the_exception_is_reported_and_passes(node: Node) -> None:
    node.hold().report(ValueError("no such shard"))
    view = node.agent.read(0)
    assert view.raised_text == "ValueError: no such shard"
    assert view.raised_ns > 0


def test_a_held_worker_wakes_the_agent_and_goes_on_when_answered(node: Node) -> None:
    node.agent.want_hold(True)
    listener = os.open(node.pipe, os.O_RDONLY | os.O_NONBLOCK)
    worker = threading.Thread(target=node.hold().report, args=(ValueError("x"),))
    try:
        worker.start()
        wait_until(lambda: node.agent.read(0).raised_ns > 0, "the exception is in the page")
        seen = b""

        def event_arrived() -> bool:
            nonlocal seen
            try:
                seen += os.read(listener, 4096)
            except BlockingIOError:
                return False
            return seen.endswith(b"\n")

        wait_until(event_arrived, "the event is in the pipe")
        assert seen == b'{"rankscope":1,"event":"raised","pid":%d,"rank":3}\n' % os.getpid()
        assert worker.is_alive()
    finally:
        node.agent.answer(0, 1)
        worker.join(60)
        os.close(listener)
    assert not worker.is_alive()


@pytest.mark.parametrize("agent_pid", [0, "gone"])
def test_without_an_agent_nobody_is_waited_for(node: Node, agent_pid: int | str) -> None:
    node.agent.want_hold(True)
    with subprocess.Popen(["true"]) as process:
        process.wait()
        gone = process.pid
    node.hold(agent_pid=gone if agent_pid == "gone" else 0).report(ValueError("x"))


def test_the_wait_ends_when_the_agent_does(node: Node) -> None:
    node.agent.want_hold(True)
    with subprocess.Popen(["sleep", "3600"]) as agent:
        worker = threading.Thread(target=node.hold(agent_pid=agent.pid).report, args=(ValueError("x"),))
        worker.start()
        wait_until(lambda: node.agent.read(0).raised_ns > 0, "the exception is in the page")
        agent.kill()
        worker.join(60)
    assert not worker.is_alive()


def test_the_wait_ends_by_itself(node: Node) -> None:
    node.agent.want_hold(True)
    node.hold(timeout=0.05).report(ValueError("x"))
    assert not node.writer.answered()


@pytest.mark.parametrize("exception", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_and_an_exit_are_no_failures(node: Node, exception: BaseException) -> None:
    node.agent.want_hold(True)
    node.hold().report(exception)
    assert node.agent.read(0).raised_ns == 0


def test_silenced_it_reports_nothing(node: Node) -> None:
    node.agent.want_hold(True)
    hold = node.hold()
    hold.silence()
    hold.report(ValueError("x"))
    assert node.agent.read(0).raised_ns == 0


def test_a_timer_file_that_is_no_pipe_is_not_written_to(node: Node, tmp_path: Path) -> None:
    node.agent.want_hold(True)
    mine = tmp_path / "notes.txt"
    mine.write_text("the user's own file")
    node.hold(timeout=0.01, pipe=str(mine)).report(ValueError("x"))
    node.hold(timeout=0.01, pipe=str(tmp_path / "missing")).report(ValueError("x"))
    node.hold(timeout=0.01, pipe="").report(ValueError("x"))
    assert mine.read_text() == "the user's own file"


def test_a_page_that_was_closed_does_not_raise(node: Node, tmp_path: Path) -> None:
    writer = SlotWriter(tmp_path / "progress.page", 0)
    writer.close()
    Hold(writer, rank=0, agent_pid=os.getpid(), timer_file="").report(ValueError("x"))


def test_the_last_line_is_that_of_the_traceback() -> None:
    class Unspeakable(Exception):  # noqa: N818 - a user's exception
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert last_line(ValueError("one\ntwo")) == "ValueError: one"
    assert last_line(AssertionError()) == "AssertionError"
    assert last_line(subprocess.TimeoutExpired("x", 1)).startswith("subprocess.TimeoutExpired: Command")
    assert last_line(Unspeakable()).endswith("Unspeakable: <exception str() failed>")


def test_the_previous_hook_is_called_with_the_same_exception(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[BaseException] = []

    def previous(_kind: type[BaseException], exception: BaseException, _trace: TracebackType | None) -> None:
        seen.append(exception)

    monkeypatch.setattr(sys, "excepthook", previous)
    raising.install(node.hold())
    error = ValueError("x")
    sys.excepthook(ValueError, error, None)
    assert seen == [error]
    assert node.agent.read(0).raised_text == "ValueError: x"


def test_an_exception_hook_called_from_another_thread_reports_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    raising.install(node.hold())
    thread = threading.Thread(target=sys.excepthook, args=(ValueError, ValueError("x"), None))
    thread.start()
    thread.join(60)
    assert node.agent.read(0).raised_ns == 0
