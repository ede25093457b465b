"""The agent's side of notices: which events, to whom, and what becomes of them.

``offer`` puts an event into a lane for each target and returns. A thread hands what is due to the desk, a
process of its own that does everything that can hang (``desk``); it reads the answers and tells of notices
that were given up. A desk that does not answer in time is ended and the next one started: its tries count as
tries that failed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rankscope.agent.notices.desk_process import DeskProcess, wait_for
from rankscope.agent.notices.failures import Failures
from rankscope.agent.notices.lane import Lane, Limits, Outcome
from rankscope.agent.notices.payload import CLOUDEVENTS_TYPE, JSON_TYPE, cloudevent, slack
from rankscope.agent.notices.targets import Target, Webhook, WebhookFormat, is_open, read_targets
from rankscope.agent.notices.topics import is_for_the_records_only, wanted_types
from rankscope.diag.errors import UsageError
from rankscope.diag.store.events import Event

logger = logging.getLogger(__name__)
CLOSE_TIMEOUT: Final = 5.0
"""Seconds that the job's end waits for its last notices: a sixth of what Slurm and Kubernetes leave a job
between SIGTERM and SIGKILL (30 s)."""
_IDLE: Final = 60.0
_LEAVE: Final = 1.0
_CLOSING_PAUSE: Final = 0.5
_TOO_LATE: Final = "the job ended before it was delivered"
_TOLD_AT_END: Final = 10
"""Of what is left at the end so many are recorded one by one, the rest as a number: each costs a flush."""


class Wanted(Protocol):
    """What the settings say of notices; ``settings.values`` has what each means."""

    @property
    def notify_on(self) -> Iterable[str]:
        """Kinds of events."""
        ...

    @property
    def webhooks(self) -> Sequence[str]:
        """Addresses, or where they stand."""
        ...

    @property
    def webhook_format(self) -> WebhookFormat:
        """What is posted."""
        ...

    @property
    def notify_command(self) -> str:
        """A program and its arguments, empty for none."""
        ...

    @property
    def sources(self) -> Mapping[str, str]:
        """Where each setting came from."""
        ...


@dataclass(frozen=True, slots=True)
class _Trying:
    lane: int
    number: int
    overdue: float


class Notices:
    """Sends events to webhooks and to a command. No method raises, ``offer`` never waits.

    Args:
        settings: which events, and where to.
        say: shows a line to the person at the terminal; called from the thread.
        on_failed: gets the data of a ``notice.failed`` for each notice that was not delivered; called from
            the thread, without any lock held.
        job: the run id.
        limits: how often and how long.

    Attributes:
        targets: where notices go; none: nothing is started.
    """

    def __init__(
        self,
        settings: Wanted,
        say: Callable[[str], None],
        on_failed: Callable[[dict[str, object]], None],
        *,
        job: str = "",
        limits: Limits | None = None,
    ) -> None:
        self._say = say
        self._failures = Failures(say, on_failed)
        self._job = job
        self._limits = limits or Limits()
        self._types = wanted_types(settings.notify_on)
        self.targets = self._targets_of(settings)
        self._lanes = tuple(Lane(self._limits) for _ in self.targets)
        self._trying: list[_Trying] = []
        self._number = 0
        self._lock = threading.Lock()
        self._closing: float | None = None
        self._desk: DeskProcess | None = None
        self._thread: threading.Thread | None = None
        if self.targets and self._types:
            self._open()

    def _targets_of(self, settings: Wanted) -> tuple[Target, ...]:
        try:
            targets = read_targets(
                settings.webhooks, settings.webhook_format, settings.notify_command, os.environ
            )
        except UsageError as error:  # whoever launches has checked it; a file may be gone since
            self._say(f"no notices: {error}")
            return ()
        if settings.sources.get("webhook") == "--webhook" and any(map(is_open, settings.webhooks)):
            self._say("--webhook: its address shows in the process list; @FILE or env:NAME keeps it secret")
        return targets

    def _open(self) -> None:
        try:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as error:
            self._say(f"no notices: {error.strerror}")
            return
        with contextlib.suppress(OSError):  # the first try says so
            self._desk = DeskProcess(self.targets)
        self._thread = threading.Thread(target=self._run, name="rankscope-notices", daemon=True)
        self._thread.start()

    def offer(self, event: Event) -> None:
        """Have an event delivered, if its type is wanted; returns at once (any thread)."""
        if self._thread is None or event.type not in self._types or is_for_the_records_only(event):
            return
        with self._lock:
            if self._closing is not None:
                return
            for lane in self._lanes:
                lane.offer(event)
            self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake
            os.eventfd_write(self._wake, 1)

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Deliver what is left, ``timeout`` seconds long; the rest is given up, in one more at most."""
        thread = self._thread
        if thread is None:
            return
        with self._lock:
            if self._closing is None:
                now = time.monotonic()
                self._closing = now + timeout
                for lane in self._lanes:
                    lane.hurry(now)
                self._ring()
        thread.join(timeout + _LEAVE)

    # The thread.

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception:  # the thread's edge
            logger.exception("rankscope could not go on sending notices")
        try:
            self._finish()
        except Exception:  # the thread's edge
            logger.exception("rankscope could not end its notices")

    def _turn(self) -> bool:
        """Begin what is due, wait, and take what has ended; False when nothing is left to do."""
        now = time.monotonic()
        with self._lock:
            closing = self._closing
            is_done = all(lane.is_empty for lane in self._lanes)
        if closing is not None and (is_done or now >= closing):
            return False
        for index, at in enumerate(self._due()):
            if at is not None and at <= now:
                self._begin(index, now)
        times = [at for at in self._due() if at is not None]
        times += [each.overdue for each in self._trying]
        times += [closing] if closing is not None else []
        wait_for(self._desk, self._wake, min(times, default=now + _IDLE) - now)
        with contextlib.suppress(OSError):
            os.eventfd_read(self._wake)
        self._listen()
        return True

    def _due(self) -> list[float | None]:
        with self._lock:
            return [lane.due() for lane in self._lanes]

    def _begin(self, index: int, now: float) -> None:
        with self._lock:
            event = self._lanes[index].begin(now)
        self._number += 1
        limits, target = self._limits, self.targets[index]
        try:
            desk = self._desk = self._desk or DeskProcess(self.targets)
        except OSError as error:
            self._end(index, Outcome(f"no process for it: {error.strerror}", again=True))
            return
        try:
            content_type, body = _content(target, event, self._job)
        except Exception as error:  # noqa: BLE001 - whatever its data are, the next event must go out
            self._end(index, Outcome(f"no JSON can be made of it: {type(error).__name__}"))
            return
        self._trying.append(_Trying(index, self._number, now + limits.try_seconds + limits.desk_late))
        if not desk.begin(
            self._number, index, seconds=limits.try_seconds, content_type=content_type, body=body
        ):
            self._replace("does not take it")

    def _listen(self) -> None:
        try:
            while self._desk is not None and (done := self._desk.receive()) is not None:
                for each in [each for each in self._trying if each.number == done.done]:
                    self._trying.remove(each)
                    self._end(each.lane, done.outcome)
        except EOFError:
            self._replace("has ended")
        now = time.monotonic()
        if any(now >= each.overdue for each in self._trying):
            self._replace("does not answer")

    def _replace(self, why: str) -> None:
        """End the desk; the next try starts another one."""
        desk, self._desk = self._desk, None
        if desk is not None:
            desk.end()
        trying, self._trying = self._trying, []
        for each in trying:
            self._end(each.lane, Outcome(f"the process that sends notices {why}", again=True))

    def _end(self, index: int, outcome: Outcome) -> None:
        with self._lock:
            lane = self._lanes[index]
            given_up = lane.end(outcome, time.monotonic(), chance=random.random())  # noqa: S311 - a pause
            if self._closing is not None:
                lane.hurry(time.monotonic() + min(self._limits.first_pause, _CLOSING_PAUSE))
            dropped, lane.dropped = lane.dropped, 0
        label = self.targets[index].label
        if given_up is not None:
            self._failures.given_up(label, given_up)
        elif not outcome.reason:
            self._failures.delivered(label)
        if dropped:
            self._failures.left_out(label, dropped, "too many notices were waiting")

    def _finish(self) -> None:
        if self._desk is not None:
            self._desk.end()
            self._desk = None
        with self._lock:
            # Nobody takes notices any more, whatever ended the thread.
            self._closing = self._closing or time.monotonic()
            self._thread = None
            os.close(self._wake)
            now = time.monotonic()
            left = [(lane.abandon(_TOO_LATE, now), lane.dropped) for lane in self._lanes]
        for target, (given_up, dropped) in zip(self.targets, left, strict=True):
            for each in given_up[:_TOLD_AT_END]:
                self._failures.given_up(target.label, each)
            if rest := given_up[_TOLD_AT_END:]:
                self._failures.left_out(target.label, len(rest), _TOO_LATE)
            if dropped:
                self._failures.left_out(target.label, dropped, "too many notices were waiting")


def _content(target: Target, event: Event, job: str) -> tuple[str, bytes]:
    if isinstance(target, Webhook) and target.format == "slack":
        return JSON_TYPE, slack(event, job=job)
    body = cloudevent(event, job=job)
    # A program that reads lines wants its end.
    return CLOUDEVENTS_TYPE, body if isinstance(target, Webhook) else body + b"\n"
