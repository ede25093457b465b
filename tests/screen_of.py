"""A program on a terminal of its own, and what stands on its screen.

A pseudo-terminal and as much of a VT100 as ``diag top`` uses; a sequence that it does not know is an error.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from tests import deadline

DEADLINE = deadline.DEADLINE
MAIN = "import sys; from rankscope.diag.main import main; sys.exit(main())"
_TOKEN = re.compile(rb"\x1b\[(?P<args>[?0-9;]*)(?P<code>[A-Za-z])|(?P<char>[^\x1b])", re.DOTALL)


class Screen:
    """The two screens of a terminal, and its cursor."""

    def __init__(self, columns: int, lines: int, *, strict: bool = True) -> None:
        self.strict = strict
        self.resize(columns, lines)
        self.is_other = False
        self.cursor_shown = True
        self.wraps = True
        self.cleared = 0
        self.sgr: set[str] = set()
        self.received = b""
        self._rest = b""

    def resize(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.cells = [[" "] * columns for _ in range(lines)]
        self.first = [[" "] * columns for _ in range(lines)]
        self.row = self.column = 0

    def feed(self, data: bytes) -> None:
        self.received += data
        if not self.strict:
            return
        text, end = self._rest + data, 0
        for token in _TOKEN.finditer(text):
            if token.start() != end:
                break
            end = token.end()
            if token["char"] is not None:
                self._put(token["char"].decode("latin-1"))
            else:
                self._sequence(token["args"].decode(), token["code"].decode())
        self._rest = text[end:]

    def text(self) -> str:
        cells = self.cells if self.is_other else self.first
        return "\n".join("".join(line).rstrip() for line in cells)

    def _put(self, char: str) -> None:
        cells = self.cells if self.is_other else self.first
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.row = min(self.row + 1, self.lines - 1)
        elif char >= " ":
            assert self.column < self.columns or not self.is_other, "a line is longer than the screen"
            if self.column < self.columns:
                cells[self.row][self.column] = char
                self.column += 1

    def _sequence(self, args: str, code: str) -> None:
        if code in "hl":
            on = code == "h"
            assert args in ("?1049", "?25", "?7"), args
            if args == "?1049":
                self.is_other, self.row, self.column = on, 0, 0
            elif args == "?25":
                self.cursor_shown = on
            else:
                self.wraps = on
        elif code == "H":
            row, _, column = args.partition(";")
            self.row, self.column = int(row) - 1, int(column) - 1
            assert 0 <= self.row < self.lines, f"line {self.row} of {self.lines}"
        elif code == "K":
            self.cells[self.row][self.column :] = [" "] * (self.columns - self.column)
        elif code == "J":
            self.cleared += args == "2"
            begin = 0 if args == "2" else self.row
            self.cells[begin:] = [[" "] * self.columns for _ in range(self.lines - begin)]
        else:
            assert code == "m", code
            self.sgr.add(args)


class OnTerminal:
    """A process that has a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, slave: int, screen: Screen) -> None:
        self.process = process
        self.screen = screen
        self.master = master
        self.slave = slave
        self.before = termios.tcgetattr(slave)

    def wait_for(self, condition: Callable[[Screen], bool], what: str) -> None:
        """Read until the screen is as wanted."""
        deadline = time.monotonic() + DEADLINE
        while not condition(self.screen):
            left = deadline - time.monotonic()
            assert left > 0, f"{what}: not within {DEADLINE} s; the screen is\n{self.screen.text()}"
            self.read(min(left, 0.2))

    def read(self, within: float) -> bytes:
        if not select.select((self.master,), (), (), within)[0]:
            return b""
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            return b""
        self.screen.feed(data)
        return data

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(columns, lines)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def end(self) -> int:
        """Wait for its end; the exit status."""
        deadline = time.monotonic() + DEADLINE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end; the screen is\n{self.screen.text()}"
            self.read(0.1)
        while self.read(0.1):
            pass
        return self.process.returncode

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as it was: settings, screen, cursor."""
        same = termios.tcgetattr(self.slave) == self.before
        return same and not self.screen.is_other and self.screen.cursor_shown and self.screen.wraps


@contextmanager
def on_terminal(
    *words: str,
    environ: Mapping[str, str] | None = None,
    columns: int = 80,
    lines: int = 24,
    main: str = MAIN,
    strict: bool = True,
) -> Generator[OnTerminal]:
    """``diag`` with these words, as a shell on a terminal starts it.

    Args:
        words: of the command.
        environ: variables to add.
        columns: of the terminal.
        lines: likewise.
        main: what Python runs.
        strict: whether an unknown sequence is an error; else it is only kept.
    """
    master, slave = os.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", main, *words],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", **(environ or {})},
        start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509 - a test has one thread here
    )
    shown = OnTerminal(process, master, slave, Screen(columns, lines, strict=strict))
    try:
        yield shown
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(DEADLINE)
        os.close(master)
        os.close(slave)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
