"""Runs the protocol of one agent: its thread gives it time, answers and words, and does what it asks for.

The thread never calls the store itself (``store_link``), so a store that is frozen does not keep it from its
deadlines. It must not know what a look or a verdict is: whoever owns it does (``Owner``).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from rankscope.agent.nodes.events import (
    Alone,
    Event,
    Follow,
    Instruction,
    Judge,
    Keep,
    Learn,
    Left,
    Look,
    Tick,
)
from rankscope.agent.nodes.limits import Limits
from rankscope.agent.nodes.messages import Member
from rankscope.agent.nodes.protocol import NodeProtocol
from rankscope.agent.nodes.store_link import CALL_TIMEOUT, Store, StoreLink

logger = logging.getLogger(__name__)
_STOP_TIMEOUT: Final = 5.0
_MOMENT: Final = 0.01


class Owner(Protocol):
    """Whom the protocol speaks to; called in the driver's thread, returns soon, answers through ``tell``."""

    def look(self, asked: Look) -> None:
        """Look at the own workers; ``LookTaken`` is expected."""

    def keep(self, kept: Keep) -> None:
        """Another agent's look, or the own one, for a verdict."""

    def judge(self, asked: Judge) -> None:
        """Find the verdict; ``Judged`` is expected."""

    def learn(self, learned: Learn) -> None:
        """The verdict of the whole job."""

    def follow(self, follow: Follow) -> None:
        """How it ends."""

    def alone(self, alone: Alone) -> None:
        """The store does not answer."""


class NodeDriver:
    """One agent in one round.

    Args:
        me: this agent.
        connect: opens a connection to the store of the round.
        owner: does what is asked for.
        limits: of the protocol.
        call_timeout: seconds for one call to the store.
    """

    def __init__(
        self,
        me: Member,
        connect: Callable[[], Store],
        owner: Owner,
        *,
        limits: Limits | None = None,
        call_timeout: float = CALL_TIMEOUT,
    ) -> None:
        self._protocol = NodeProtocol(me, limits)
        self._owner = owner
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self.link = StoreLink(connect, self._events.put, timeout=call_timeout)
        self._thread = threading.Thread(target=self._run, name="rankscope-nodes", daemon=True)

    @property
    def state(self) -> str:
        """Where the protocol is."""
        return self._protocol.state

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def tell(self, event: Event) -> None:
        """Tell the protocol something (any thread)."""
        self._events.put(event)

    def stop(self, timeout: float = _STOP_TIMEOUT) -> None:
        """The round is over, or the job: nothing is said after this.

        A ruling that stands is acknowledged first, and the own looks deleted, if that is a matter of moments.
        """
        until = time.monotonic() + timeout
        while self._thread.is_alive() and self._protocol.state == "ruled" and time.monotonic() < until:
            time.sleep(_MOMENT)
        self._events.put(Left(time.monotonic()))
        self._events.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout)
        self.link.close()

    def _run(self) -> None:
        next_tick = time.monotonic()
        while True:
            try:
                event = self._next_event(next_tick)
                if event is None:
                    return
                self._handle(event)
                if isinstance(event, Tick):
                    next_tick = event.now + self._protocol.pause
                next_tick = min(next_tick, time.monotonic() + self._protocol.pause)
            except Exception:  # the thread's edge
                logger.exception("rankscope's protocol of many nodes failed once; training is untouched")

    def _next_event(self, next_tick: float) -> Event | None:
        while True:
            now = time.monotonic()
            self.link.give_up_overdue(now)
            due = self.link.due
            until = min(next_tick, due) if due is not None else next_tick
            try:
                return self._events.get(timeout=max(0.001, until - now))
            except queue.Empty:
                now = time.monotonic()
                if now >= next_tick:
                    return Tick(now)

    def _handle(self, event: Event) -> None:
        for one in self._protocol.handle(event):
            self._carry_out(one)

    def _carry_out(self, one: Instruction) -> None:
        owner = self._owner
        try:
            match one:
                case Look():
                    owner.look(one)
                case Keep():
                    owner.keep(one)
                case Judge():
                    owner.judge(one)
                case Learn():
                    owner.learn(one)
                case Follow():
                    owner.follow(one)
                case Alone():
                    owner.alone(one)
                case _:
                    self.link.call(one)
        except Exception:  # what an owner raises is no reason to lose the call that comes after it
            logger.exception("rankscope could not do what the protocol of many nodes asked for")
