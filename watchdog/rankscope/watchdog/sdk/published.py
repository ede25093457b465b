"""This process's own values, and the one place from which they reach the agent.

One object a process. Any thread may call it, also from a signal handler or a finalizer in the middle of
another call; a forked child starts afresh. Nothing is raised: what cannot be done is said once. What
belongs into the record and finds the pipe full is kept (``unsent``) and sent later.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import Final

from rankscope.watchdog.page import SlotWriter
from rankscope.watchdog.sdk.config import OFF
from rankscope.watchdog.sdk.edge import is_ours
from rankscope.watchdog.sdk.link import CHILD, Link, find_link, is_helper_process, late_variables
from rankscope.watchdog.sdk.pipe_line import FULL, PATIENCE
from rankscope.watchdog.sdk.scopes import OpenStage, Scopes
from rankscope.watchdog.sdk.unsent import Lines, Unsent
from rankscope.watchdog.timers.wire import Event, encode_event

Limits = tuple[float | None, float | None, str]
"""Interval, stage's limit, stage's name: what the page has."""


class Unchanged:
    """Stands for a value that is not given."""


UNCHANGED: Final = Unchanged()
_AGAIN_NS: Final = 10**9
"""Steps try again once a second what they could not do: to find the slot, to send what is unsent."""
_NO_EFFECT: Final = "job_monitor has no effect here, training goes on"
_LATER: Final = "sent again until it is recorded, training goes on"


class Published:
    """What this rank says of itself."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        self._interval: float | None = None
        self._detect = True
        self._forget(forked=False)

    def _forget(self, *, forked: bool) -> None:
        self._forked = forked
        # Reentrant: a signal handler or finalizer may come in while its own thread holds it.
        self._lock = threading.RLock()
        # Its own: sending may wait for a full pipe, which must not hold the steps of other threads.
        self._send_lock = threading.RLock()
        self._scopes = Scopes()
        self._link = Link()
        self._asked: tuple[str | None, ...] | None = None
        self._look_again_ns = self._send_again_ns = 0
        self._unsent = Unsent()
        self._written: Limits = (None, None, "")
        self._writing = self._due = False
        # The slot, while a step has nothing to do but to write into it: it takes no lock then.
        self._straight: SlotWriter | None = None

    def start_afresh(self) -> None:
        """In a forked child: the parent's stages and slot are the parent's.

        What a launcher's script has set before it forked its ranks holds for them.
        """
        self._forget(forked=True)

    def enter(self, stage: OpenStage) -> None:
        """Open a stage."""
        try:
            self._change(lambda: self._scopes.enter(stage))
        except BaseException:
            # Raised by a signal handler: whoever wanted to enter is not inside.
            self.leave(stage)
            raise

    def leave(self, stage: OpenStage) -> None:
        """End a stage, whoever opened it."""
        self._scopes.end(stage)  # counts even if what follows is interrupted
        self._change(lambda: None)

    def set_limits(
        self, *, interval: float | Unchanged | None = UNCHANGED, detect: bool | None = None
    ) -> None:
        """Set the rank's own limit (seconds, -1 for off, ``None`` for the launcher's), or switch it off."""

        def change() -> None:
            if not isinstance(interval, Unchanged):
                self._interval = interval
            if detect is not None:
                self._detect = detect

        self._change(change)

    def step(self, number: int) -> None:
        """Tell the agent the script's own step number, an integer of 64 bits."""
        writer = self._straight
        if writer is None or self._scopes.over:
            self._step_with_care(number)
            return
        try:
            writer.user_step(number, monotonic_ns())
        except Exception as error:  # noqa: BLE001 - the edge to the training loop
            self._failed("a step", error)

    def _step_with_care(self, number: int) -> None:
        """Find the slot, write what is due, send what is unsent."""
        if sys.is_finalizing():
            return
        try:
            with self._lock:
                link = self._linked()
                if link.writer is not None:
                    link.writer.user_step(number, monotonic_ns())
                    if self._due or self._scopes.over:
                        self._publish()
            if self._unsent and monotonic_ns() >= self._send_again_ns:
                self._send_unsent(patience=0.0)
            with self._lock:
                # First set and then taken back: a signal handler may change what is asked for.
                self._straight = self._link.writer
                if self._due or self._unsent or self._link.is_first_come:
                    self._straight = None
        except Exception as error:  # noqa: BLE001 - the edge to the training loop
            self._failed("a step", error)

    def record(self, name: str, lines: Lines) -> str:
        """Send events for the record; those of a full pipe are kept and sent by later steps and calls.

        Returns:
            Why they are not sent (yet), ``""`` when they are in the agent's pipe.
        """
        self._unsent.put(name, lines)
        self._straight = None
        return self._send_unsent(patience=PATIENCE)

    def _send_unsent(self, *, patience: float) -> str:
        self._send_again_ns = monotonic_ns() + _AGAIN_NS
        with self._send_lock:
            for name, lines in self._unsent.all():
                reason = ""
                for line in lines:
                    reason = self._send_line(name, line, patience)
                    if reason == FULL:
                        self._say(f"{reason}: {name} not recorded", _LATER)
                        return reason
                    if reason:
                        break  # nobody will ever hear it
                self._unsent.settle(name, lines)
                if reason:
                    return reason
        return ""

    def send(self, name: str, data: Mapping[str, object]) -> str:
        """Send an event, the rank added to ``data``; waits half a second for a full pipe at most.

        Returns:
            Why it was not sent, ``""`` when it is in the agent's pipe.
        """
        reason = self._send_line(name, data, PATIENCE)
        if not reason and self._unsent:
            self._send_unsent(patience=0.0)
        return reason

    def _send_line(self, name: str, data: Mapping[str, object], patience: float) -> str:
        if sys.is_finalizing():
            return "the interpreter ends"
        try:
            with self._lock:
                link = self._linked()
            if link.pipe is None:
                return link.reason
            with self._send_lock:
                event = Event(name, os.getpid(), {"rank": link.rank, **data})
                return link.pipe.send(encode_event(event), patience=patience)
        except Exception as error:
            if not is_ours(error):
                raise
            return f"cannot be sent ({error!r})"

    def _change(self, change: Callable[[], None]) -> None:
        # A thread that the interpreter's end froze may hold the lock for ever.
        if sys.is_finalizing():
            return
        try:
            # ``with`` on the lock itself: no signal handler can run between taking it and being inside.
            with self._lock:
                change()
                self._publish()
        except Exception as error:  # noqa: BLE001 - the edge to the training loop
            self._failed("limits", error)

    def _publish(self) -> None:
        """Write the limits that hold now. A call that comes in meanwhile only asks for another round."""
        self._due, self._straight = True, None
        if self._writing:
            return
        self._writing = True
        try:
            while self._due:
                self._due = False
                self._write()
        except BaseException:
            self._due = True  # the next step or change does it
            raise
        finally:
            self._writing = False

    def _failed(self, what: str, error: Exception) -> None:
        if sys.is_finalizing():
            return
        if not is_ours(error):
            try:
                raise error
            finally:
                del error  # this frame stands in its traceback: together they would keep the script's stages
        self._say(f"cannot report {what} ({error!r})")

    def _write(self) -> None:
        writer = self._linked().writer
        stage_limit, stage = self._scopes.limit()
        limits = (self._interval if self._detect else OFF, stage_limit, stage)
        if writer is not None and limits != self._written:
            writer.intervals(*limits)
            self._written = limits

    def _linked(self) -> Link:
        """The link; looked for again as long as there is no slot and the environment changes.

        A worker that is a function imports the script before its launcher has told it its rank.
        """
        if self._link.writer is not None:
            if self._link.is_first_come and self._link.writer.holder() != os.getpid():
                # An ancestor has come, which is the rank: this was a child that spoke first.
                self._link = Link(reason=CHILD)
                self._asked = late_variables(os.environ)
            return self._link
        asked = late_variables(os.environ)
        if asked != self._asked or (self._link.is_held and monotonic_ns() >= self._look_again_ns):
            self._look_again_ns = monotonic_ns() + _AGAIN_NS
            self._link = find_link(os.environ, forked=self._forked)
            # Finding it may have left the probe's mark.
            self._asked = late_variables(os.environ) if self._link.writer is not None else asked
            self._due = True  # what was set before the rank was known
            if self._link.reason and self._link.reason != CHILD and not is_helper_process(os.environ):
                self._say(self._link.reason)
        return self._link

    def _say(self, what: str, then: str = _NO_EFFECT) -> None:
        """One line, once; written to the descriptor, ``sys.stderr`` may be closed or replaced."""
        if what in self._said:
            return
        self._said.add(what)
        try:  # noqa: SIM105 - contextlib is another import
            os.write(2, f"rankscope: {what}; {then}\n".encode())
        except OSError:
            pass


PUBLISHED: Final = Published()
"""This process's."""

os.register_at_fork(after_in_child=PUBLISHED.start_afresh)
