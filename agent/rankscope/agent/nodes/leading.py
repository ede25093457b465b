"""Leading an incident: who does, what it collects, the verdict that it writes. Pure.

A part of the protocol. Group rank 0 leads as soon as its own looks are posted; if nobody leads in time the
next one does. It must not know what a look or a verdict holds.
"""

from __future__ import annotations

from rankscope.agent.nodes import keys
from rankscope.agent.nodes import transitions as why
from rankscope.agent.nodes.affair import Affair
from rankscope.agent.nodes.collecting import Collection
from rankscope.agent.nodes.ending import Ending
from rankscope.agent.nodes.events import Answered, CompareSet, Fetch, Judge, Learn
from rankscope.agent.nodes.limits import most_parts
from rankscope.agent.nodes.messages import Lead, encode


class Leading(Ending):
    """Leads, or waits for who does."""

    def _advance_lead(self, affair: Affair) -> None:
        limits = self._limits
        waited = self._now - affair.term_since
        if affair.term == 0:
            is_due = self._me.rank == 0 or waited >= limits.patience + limits.wait_before_lead(self._me.rank)
        else:
            is_due = waited >= limits.lead + limits.wait_before_lead(self._me.rank)
        if is_due:
            mine = encode(Lead(self._me.rank, affair.term, self._me.node))
            call = CompareSet(keys.lead(affair.number, affair.term), b"", mine)
            self._ask(call, lambda answered: self._claimed(affair, is_mine=answered.value == mine))

    def _claimed(self, affair: Affair, *, is_mine: bool) -> None:
        affair.term_since = self._now
        if not is_mine:
            affair.term += 1
        elif self.state == "reported":
            size = self._me.size
            affair.collection = Collection(affair.number, size=size, most_parts=most_parts(size))
            self._go("leading", why.LEADS)
            affair.collection.begin_sweep()

    def _advance_collection(self, affair: Affair) -> None:
        collection = affair.collection
        if collection is None:
            return
        call = collection.call()
        waited = self._now - affair.state_since
        if call is not None:
            self._ask(call, lambda answered: self._said.extend(collection.answer(answered)))
        elif collection.is_complete or waited > self._limits.collect:
            self._identify_missing(affair, collection)
        elif self._may_sweep:
            self._may_sweep = False
            collection.begin_sweep()

    def _identify_missing(self, affair: Affair, collection: Collection) -> None:
        missing = collection.missing(self._now - affair.since)
        ranks = sorted({one.rank for one in missing})

        def known(answered: Answered) -> None:
            if self.state != "leading":
                return
            self._go("judging", why.COLLECTED)
            rosters = tuple(zip(ranks, answered.values, strict=True))
            marks = tuple(collection.marks.items())
            self._said.append(Judge(affair.opening, missing, rosters, tuple(affair.marks), marks))

        self._ask(Fetch(tuple(map(keys.roster, ranks))), known)

    def _write_verdict(self, affair: Affair) -> None:
        key = keys.verdict(affair.number)
        call = CompareSet(key, b"", affair.own_verdict)
        self._ask(call, lambda answered: self._knows(affair, answered.value))

    def _knows(self, affair: Affair, verdict: bytes) -> None:
        affair.verdict = verdict
        self._go("judged", why.KNOWS)
        self._said.append(Learn(affair.opening, verdict))
