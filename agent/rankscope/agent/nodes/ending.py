"""The end of an incident: a ruling is proposed, stands, is acknowledged; the closer tidies up. Pure.

A part of the protocol; whoever comes second takes what the first one wrote. It must not know what a ruling
means.
"""

from __future__ import annotations

from rankscope.agent.nodes import keys
from rankscope.agent.nodes import transitions as why
from rankscope.agent.nodes.affair import Affair
from rankscope.agent.nodes.closing import Closing
from rankscope.agent.nodes.events import Answered, CompareSet, Delete, Follow, Put
from rankscope.agent.nodes.messages import Ruling, decode, encode
from rankscope.agent.nodes.speaker import Speaker


class Ending(Speaker):
    """Rules, and what follows."""

    def _propose(self, ruling: Ruling) -> None:
        affair = self._affair
        if affair is not None and affair.proposal is None and affair.ruling is None:
            affair.proposal = ruling

    def _progressed(self, reason: str) -> None:
        self._wants = None
        if self._affair is not None:
            self._propose(self._nothing(self._affair, reason, goes_on=True))

    def _nothing(self, affair: Affair, reason: str, *, goes_on: bool = False) -> Ruling:
        incident = affair.opening.incident
        return Ruling(incident, self._me.rank, self._me.node, reason, goes_on=goes_on)

    def _rule(self, affair: Affair, proposal: Ruling) -> None:
        call = CompareSet(keys.ruling(affair.number), b"", encode(proposal))
        self._ask(call, lambda answered: self._is_ruled(affair, answered.value))

    def _is_ruled(self, affair: Affair, written: bytes) -> None:
        ruling = decode(written, Ruling)
        self._go("ruled", why.RULED)
        if ruling is None:  # over since long: what it was is nobody's business any more
            affair.ruling = self._nothing(affair, "it is over")
            return
        affair.ruling = ruling
        if ruling == affair.proposal:
            deadline = self._now + self._limits.ack
            affair.closing = Closing(affair.number, size=self._me.size, terms=affair.term, deadline=deadline)
        self._said.append(Follow(affair.number, ruling))

    def _finish(self, affair: Affair) -> None:
        """Acknowledge; whoever wrote the ruling is the closer, and waits for the others' word."""
        if not affair.acknowledged:
            self._acknowledge(affair)
        elif affair.closing is None:
            self._is_over(affair)
        elif (call := affair.closing.call(self._now)) is not None:
            closing = affair.closing
            self._ask(call, lambda answered: closing.answer(call, answered))
        elif affair.closing.is_done:
            self._is_over(affair)
        elif self._may_sweep:
            self._may_sweep = False
            affair.closing.begin_sweep()

    def _acknowledge(self, affair: Affair) -> None:
        def told(_answered: Answered) -> None:
            affair.acknowledged = True

        def deleted(_answered: Answered) -> None:
            key = keys.ack(affair.number, self._me.rank)
            self._ask(Put(((key, self._me.node.encode() or b"?"),)), told)

        self._ask(Delete(tuple(affair.written)), deleted)

    def _is_over(self, affair: Affair) -> None:
        self.over = affair.number
        self._go("watching", why.CLOSED)
        self._affair = None
