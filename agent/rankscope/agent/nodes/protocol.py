"""The protocol of one incident over many agents, for one agent: events in, instructions out.

Pure: no clock, no store, no thread. Who wants to know what happens in which order reads ``transitions`` (the
states) and ``keys`` (what stands in the store). Whoever suspects opens an incident; every agent posts two
looks; one leads, merges what arrived and writes the verdict; anybody's policy may rule on it. Opening, lead,
verdict and ruling are each written by compare-and-set: whoever comes second takes what the first one wrote,
so two agents cannot decide differently, whatever they believe of each other.
"""

from __future__ import annotations

from typing import Final

from rankscope.agent.nodes import keys
from rankscope.agent.nodes import transitions as why
from rankscope.agent.nodes.affair import Affair
from rankscope.agent.nodes.events import (
    Add,
    Alone,
    Answered,
    CompareSet,
    Delete,
    Event,
    Failed,
    Fetch,
    Follow,
    Instruction,
    Judged,
    Left,
    LookTaken,
    Progressed,
    Proposed,
    Put,
    Suspected,
    Tick,
)
from rankscope.agent.nodes.messages import Opening, Ruling, decode, encode
from rankscope.agent.nodes.taking_part import TakingPart

_OPEN: Final = frozenset(("looking", "reported", "leading", "judging", "judged"))


class NodeProtocol(TakingPart):
    """One agent in one round; its arguments are ``Speaker``'s."""

    @property
    def pause(self) -> float:
        """Seconds until the next tick is due."""
        limits = self._limits
        if self.state == "watching" and self._wants is None:
            return limits.tick
        near = self._me.rank < limits.dense and self.state in ("looking", "reported")
        return limits.dense_tick if near or self.state == "leading" else limits.open_tick

    def handle(self, event: Event) -> tuple[Instruction, ...]:
        """Take one event; answers what is to be done, at most one call to the store among it."""
        self._said = []
        self._now = event.now
        if self._has_left:
            return ()
        match event:
            case Tick():
                self._tick()
            case Answered():
                self._answered(event)
            case Failed():
                self._failed(event.reason)  # what is still to be done is tried at the next tick
                return tuple(self._said)
            case Left():
                self._leave()
            case _:
                self._hear(event)
        self._go_on()
        return tuple(self._said)

    def _hear(self, event: Suspected | Progressed | LookTaken | Judged | Proposed) -> None:
        """What the own agent says; it is acted on when the store is free."""
        match event:
            case Suspected():
                # One that is ruled is all but over; into one that is open it goes.
                is_free = self._affair is None or self.state == "ruled"
                self._wants = event.opening if is_free else None
            case LookTaken():
                self._look_taken(event)
            case Judged():
                if self._affair is not None and event.opening in (None, self._affair.opening):
                    self._affair.own_verdict = event.verdict
            case Proposed():
                if self._affair is not None and event.ruling.incident == self._affair.opening.incident:
                    self._propose(event.ruling)
            case Progressed():
                self._progressed(event.reason)

    def _tick(self) -> None:
        self._may_sweep = True
        if self._then is not None:
            return  # the link has its own time-out, and answers or fails
        affair = self._affair
        if not self._is_named:
            key = keys.roster(self._me.rank)
            self._ask(Put(((key, encode(self._me)),)), self._named)
        elif affair is None:
            self._ask(Add(keys.TURN, 0), self._turn_read)
        elif self.state in _OPEN:
            self._ask_for_news(affair)

    def _named(self, _answered: Answered) -> None:
        self._is_named = True

    def _answered(self, answered: Answered) -> None:
        then, self._then = self._then, None
        self._trouble_since = None
        if then is not None:
            then(answered)

    def _failed(self, reason: str) -> None:
        self._then = None
        if self._trouble_since is None:
            self._trouble_since = self._now
        waited = self._now - self._trouble_since
        if waited < self._limits.alone or (self._affair is None and self._wants is None):
            return
        self._trouble_since = self._now
        wanted, self._wants = self._wants, None
        if self._affair is not None and self.state != "watching":
            has_ended = self.state == "ruled"
            if has_ended:
                self.over = self._affair.number
            self._go("watching", why.ALONE)
            self._affair = None
            if has_ended and wanted is None:
                return
        self._said.append(Alone(f"the job's store has not answered for {waited:.0f} s ({reason})"))

    def _turn_read(self, answered: Answered) -> None:
        if answered.number > self.over:
            number = answered.number
            read = Fetch((keys.ruling(number), keys.opening(number)))
            self._ask(read, lambda found: self._asked_to_join(number, found))
        elif self._wants is not None:
            self._open(self._wants)

    def _asked_to_join(self, number: int, found: Answered) -> None:
        ruled, opened = found.values
        if ruled:
            self._came_late(number, ruled)
            return
        opening = decode(opened, Opening)
        if opening is not None:
            self._affair = Affair(number, opening, self._now, self._now)
            self._join(why.ASKED)

    def _came_late(self, number: int, ruled: bytes) -> None:
        ruling = decode(ruled, Ruling)
        if ruling is None:  # over, or of another version
            self.over = number
            return
        opening = Opening(ruling.incident, ruling.rank, ruling.node, "", 0.0)
        self._affair = Affair(number, opening, self._now, self._now, ruling=ruling)
        self._go("ruled", why.RETURNS)
        self._said.append(Follow(number, ruling, late=True))

    def _open(self, opening: Opening) -> None:
        self._affair = Affair(self.over + 1, opening, self._now, self._now)
        self._go("opening", why.SUSPECTS)

    def _write_opening(self, affair: Affair) -> None:
        key = keys.opening(affair.number)
        mine = encode(affair.opening)

        def written(answered: Answered) -> None:
            if answered.value == mine:
                affair.written.append(key)
            affair.opening = decode(answered.value, Opening) or affair.opening
            before, after = str(affair.number - 1).encode(), str(affair.number).encode()
            self._ask(CompareSet(keys.TURN, before, after), lambda _: self._join(why.IS_OPEN))

        self._ask(CompareSet(key, b"", mine), written)

    def _join(self, reason: str) -> None:
        affair = self._affair
        if affair is None:
            return
        self._wants = None
        affair.since = self._now
        self._go("looking", reason)
        self._look("a", affair)

    def _go_on(self) -> None:
        """Do what can be done without news, until a call is out or nothing is left."""
        affair = self._affair
        if self._then is not None or affair is None:
            return
        if self.state == "opening":
            self._write_opening(affair)
        elif self.state == "ruled":
            self._finish(affair)
        elif self.state in _OPEN:
            self._advance(affair)

    def _leave(self) -> None:
        self._has_left = True
        is_free = self._then is None
        self._then = self._wants = None
        affair, self._affair = self._affair, None
        if self.state != "watching":
            self._go("watching", why.LEFT)
        if affair is not None and affair.written and is_free:
            self._said.append(Delete(tuple(affair.written)))
