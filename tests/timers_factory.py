"""Real servers and programs for the tests of the timers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from typing import Protocol

from tests import deadline

from rankscope.watchdog.timers import Event, FileTimerRequest, FileTimerServer

DEADLINE = deadline.DEADLINE
OUR_CLIENT = "from rankscope.watchdog.timers import FileTimerClient\n"
OUR_BLOCKS = "from rankscope.watchdog.timers import FileTimerClient, expires\n"


class Starter(Protocol):
    """Starts Python programs that the test's end kills."""

    def __call__(self, text: str, *arguments: str, folder: str | None = None) -> subprocess.Popen[str]: ...


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; fails after the deadline."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.005)


def let_pass(seconds: float) -> None:
    """Let real time pass that is the very subject of a test."""
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end)


def programs() -> Generator[Starter]:
    """What a fixture yields from: a starter whose programs are killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str, *arguments: str, folder: str | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", text, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


class Watched:
    """A server as the agent has it, with what it was told."""

    def __init__(self, path: str, is_known_pid: Callable[[int], bool] | None = None) -> None:
        self.expired: list[tuple[int, list[str]]] = []
        self.expired_at: list[float] = []
        self.events: list[Event] = []
        self.server = FileTimerServer(
            path,
            "run",
            on_expired=self._on_expired,
            on_event=self.events.append,
            is_known_pid=is_known_pid,
        )

    def _on_expired(self, pid: int, requests: tuple[FileTimerRequest, ...]) -> None:
        self.expired_at.append(time.monotonic())
        self.expired.append((pid, [request.scope_id for request in requests]))

    def requests(self) -> int:
        return self.server.counts().requests

    def scopes(self) -> list[str]:
        """Scopes of the running timers, the next to expire first."""
        return [timer.scope for timer in self.server.active_timers()]


def a_watched_server(path: str, *, started: bool = True) -> Generator[Watched]:
    """What a fixture yields from."""
    watched = Watched(path)
    if started:
        watched.server.start()
    yield watched
    watched.server.stop()


def said(process: subprocess.Popen[str]) -> str:
    """The next line that a program prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], line: str = "go") -> None:
    """Give a program a line to read."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def finished(process: subprocess.Popen[str]) -> str:
    """Wait for a program that must end well; what it printed."""
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err) == (0, ""), err
    return out.strip()
