"""The loop of ``diag top``: waits for a key, a signal, a panel or the next look, and draws what changed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass, replace
from typing import Final

from rankscope.diag.top.following import Following
from rankscope.diag.top.keys import keys_of
from rankscope.diag.top.model import TopPage
from rankscope.diag.top.pages import Pages
from rankscope.diag.top.panels import Panels, analysis_target
from rankscope.diag.top.screen import HELP, draw, rows_that_fit
from rankscope.diag.top.signals import ENDING, Wakeful, signals_as_bytes, stop_here
from rankscope.diag.top.terminal import Terminal
from rankscope.diag.top.view import View, press, scrolled

_MOST_KEYS: Final = 1024


def show(following: Following, *, interval: float, colours: bool) -> int:
    """Show a job on the terminal until the user is done.

    Args:
        following: the job.
        interval: seconds between two looks.
        colours: whether colours are wanted.

    Returns:
        0, or 128 and the number of the signal that ended it.
    """
    with contextlib.ExitStack() as stack:
        wakeful = stack.enter_context(signals_as_bytes())
        pages = stack.enter_context(contextlib.closing(Pages(following)))
        panels = stack.enter_context(contextlib.closing(Panels(wakeful.wake)))
        first = pages.take()
        terminal = stack.enter_context(Terminal(colours=colours))
        return _Screen(following, pages, panels, terminal, wakeful, first).run(interval)


@dataclass(slots=True)
class _Screen:
    following: Following
    pages: Pages
    panels: Panels
    terminal: Terminal
    wakeful: Wakeful
    page: TopPage
    view: View = View()  # noqa: RUF009 - it is frozen

    def run(self, interval: float) -> int:
        due = time.monotonic()
        while not self.view.ended:
            self._draw()
            due = max(due, time.monotonic() - interval)
            wait = max(0.0, due + interval - time.monotonic())
            ready = select.select((0, self.wakeful.fd), (), (), wait)[0]
            if self.wakeful.fd in ready:
                ended = self._signals()
                if ended:
                    return 128 + ended
            if 0 in ready and not self._keys():
                return 128 + signal.SIGHUP  # the terminal is gone
            if time.monotonic() >= due + interval:
                due += interval
                if not self.view.paused:
                    self.page = self.pages.take()
        return 0

    def _draw(self) -> None:
        width, height = self.terminal.size()
        self.view = scrolled(self.view, self.page.ranks, rows_that_fit(height))
        self.terminal.draw(draw(self.page, self.view, self.panels.lines, width=width, height=height))

    def _signals(self) -> int:
        """See to the signals that came; the number of one that ends it, else 0."""
        for number in self.wakeful.signals():
            if number in ENDING:
                return int(number)
            if number is signal.SIGTSTP:
                self.terminal.give_back()
                stop_here()
                self.terminal.take()
            elif number is signal.SIGCONT:
                self.terminal.take()
            else:
                self.terminal.clear()
        return 0

    def _keys(self) -> bool:
        """See to the keys that were pressed; whether there may be more."""
        try:
            data = os.read(0, _MOST_KEYS)
        except OSError:
            return False
        for key in keys_of(data):
            self._press(key)
        return bool(data)

    def _press(self, key: str) -> None:
        width, height = self.terminal.size()
        text = HELP if self.view.mode == "help" else self.panels.lines
        if key == "enter" and self.view.mode != "stack":
            self.view = replace(self.view, top=0)
        self.view = press(self.view, key, self.page.ranks, rows_that_fit(height), len(text))
        if self.view.asked == "stack":
            self.panels.ask_stack(self.following.rank(self.view.rank))
        elif self.view.asked == "analysis":
            self.panels.ask_analysis(self._target(), width)
        elif self.view.asked == "redraw":
            self.terminal.clear()

    def _target(self) -> tuple[str, ...]:
        folder = self.following.folder
        pids = {row.rank: row.pid for row in self.page.ranks}
        return analysis_target(str(folder.path) if folder is not None else None, self.following.name, pids)
