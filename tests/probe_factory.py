"""Ranks as the agent starts them, without the agent: a page, an environment, a real process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from tests import deadline

from rankscope.watchdog import environment, probe
from rankscope.watchdog.page import PageReader, SlotView, create_page

DEADLINE = deadline.DEADLINE


def wait_until(condition: Callable[[], bool], what: str, within: float = DEADLINE) -> None:
    """Look every 10 ms until ``condition`` holds."""
    pause = threading.Event()
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        pause.wait(0.01)


class Workers:
    """The workers of one node, started in a folder of their own; none outlives the ``with`` block."""

    def __init__(self, folder: Path, slots: int) -> None:
        self.folder = folder
        self.page = folder / "progress.page"
        self.answers = folder / "answers"
        self.answers.mkdir(mode=0o700)
        create_page(self.page, slots)
        self.reader = PageReader(self.page)
        self._processes: list[subprocess.Popen[str]] = []

    def script(self, source: str, name: str = "train.py") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        return path

    def environment(self, rank: int | None, **more: str | None) -> dict[str, str]:
        """What the agent gives to a worker; ``more`` adds, or takes away with None."""
        settings: dict[str, str | None] = dict(os.environ)
        settings |= {
            "PYTHONPATH": probe.pythonpath(os.environ.get("PYTHONPATH")),
            "MASTER_ADDR": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
            environment.PAGE: str(self.page),
            environment.ANSWERS: str(self.answers),
            environment.AGENT_PID: str(os.getpid()),
            environment.RANK_PID: None,
        }
        if rank is not None:
            settings |= {"RANK": str(rank), environment.SLOT: str(rank)}
        settings |= more
        return {name: value for name, value in settings.items() if value is not None}

    def start(self, *command: str | Path, rank: int | None = 0, **more: str | None) -> subprocess.Popen[str]:
        """Start ``python <command>`` as a rank, or as no rank with None."""
        process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            env=self.environment(rank, **more),
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def slot(self, slot: int = 0) -> SlotView:
        return self.reader.read(slot)

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=DEADLINE)
        self.reader.close()


@contextmanager
def workers(folder: Path, slots: int = 1) -> Generator[Workers]:
    """An empty page and nobody running yet."""
    made = Workers(folder, slots)
    try:
        yield made
    finally:
        made.close()


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a worker that ends by itself."""
    out, err = process.communicate(timeout=DEADLINE)
    return process.returncode, out, err


def sum_of(first: int, second: int) -> int:
    """A worker function that a child process can import."""
    return first + second
