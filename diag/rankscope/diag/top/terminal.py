"""A terminal while ``diag top`` has it: the other screen, no echo; and as it was, whatever ends it.

Only lines that changed are written, so nothing flickers and a slow connection has little to carry. Writing
has a deadline: a terminal that takes nothing holds up nobody, and a signal still ends the program. No
sequence is used that a VT100 lacks, but for xterm's second screen (``1049``), which all of today's know.
"""

from __future__ import annotations

import contextlib
import os
import select
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final

from rankscope.diag.top.screen import Line, Style

if TYPE_CHECKING:
    from typing_extensions import Self

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_LEAVE: Final = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_PLAIN: Final = "\x1b[0m"
_PATIENCE: Final = 1.0
"""Seconds that a frame may take to be written."""
_COLOURS: Final[Mapping[Style, str]] = {
    "head": "\x1b[7m",
    "cursor": "\x1b[7m",
    "title": "\x1b[1m",
    "bad": "\x1b[1;31m",
    "warn": "\x1b[33m",
    "good": "\x1b[32m",
    "dim": "\x1b[2m",
}
_NO_COLOURS: Final[Mapping[Style, str]] = {
    "head": "\x1b[7m",
    "cursor": "\x1b[7m",
    "title": "\x1b[1m",
    "bad": "\x1b[1m",
    "warn": "\x1b[1m",
}
_DUMB: Final = frozenset({"", "dumb", "unknown"})
_Attributes = list[int | list[bytes | int]]


def can_draw(environ: Mapping[str, str]) -> bool:
    """Whether input and output are a terminal that can be drawn on."""
    return os.isatty(0) and os.isatty(1) and environ.get("TERM", "") not in _DUMB


class Terminal:
    """Has the terminal within a ``with`` block."""

    def __init__(self, *, colours: bool) -> None:
        """Nothing is changed yet.

        Args:
            colours: whether colours are wanted (``NO_COLOR``); bold and reverse are none.
        """
        self._styles = _COLOURS if colours else _NO_COLOURS
        self._before: _Attributes | None = None
        self._shown: list[Line] = []
        self._out = _own_output()

    def __enter__(self) -> Self:
        """Take the terminal."""
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back as it was."""
        self.give_back()
        if self._out > 2:  # noqa: PLR2004 - not a standard stream
            os.close(self._out)

    def take(self) -> None:
        """The other screen, no echo, keys as they are pressed; signals by key stay."""
        with contextlib.suppress(termios.error):
            if self._before is None:
                self._before = termios.tcgetattr(0)
            wanted = termios.tcgetattr(0)
            wanted[3] &= ~(termios.ECHO | termios.ICANON)
            wanted[0] &= ~termios.IXON  # Ctrl-S would hold the screen still
            termios.tcsetattr(0, termios.TCSANOW, wanted)
        self._shown = []
        self._write(_ENTER)

    def give_back(self) -> None:
        """The first screen with what stood there, and the settings as they were."""
        self._write(_LEAVE)
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(0, termios.TCSANOW, self._before)

    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            size = os.get_terminal_size(1)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    def clear(self) -> None:
        """The next frame is drawn as a whole."""
        self._shown = []

    def draw(self, lines: Sequence[Line]) -> None:
        """Show a frame; lines that are shown already are not written again."""
        if list(lines) == self._shown:
            return
        parts = [] if self._shown else ["\x1b[2J"]
        for at, line in enumerate(lines):
            if at >= len(self._shown) or self._shown[at] != line:
                style = self._styles.get(line.style, "")
                text = f"{style}{line.text}{_PLAIN}" if style else line.text
                parts.append(f"\x1b[{at + 1};1H{text}\x1b[K")
        if len(lines) < len(self._shown):
            parts.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._shown = list(lines) if self._write("".join(parts)) else []

    def _write(self, text: str) -> bool:
        """Whether all of it was taken in time."""
        data = text.encode("utf-8", "replace")
        deadline = time.monotonic() + _PATIENCE
        while data:
            try:
                data = data[os.write(self._out, data) :]
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select((), (self._out,), (), left)[1]:
                    return False
            except OSError:
                return False  # it is gone
        return True


def _own_output() -> int:
    """The terminal, opened anew: that it must not block stays ours, and does not become the shell's."""
    try:
        return os.open(os.ttyname(1), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 1
