"""Taking part in an incident: the own looks are posted, and it is heard what the others have come to. Pure.

A part of the protocol. It must not know how a look is taken.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from rankscope.agent.nodes import keys
from rankscope.agent.nodes import transitions as why
from rankscope.agent.nodes.affair import Affair
from rankscope.agent.nodes.events import Answered, Fetch, Learn, Look, LookTaken, Put
from rankscope.agent.nodes.keys import Which
from rankscope.agent.nodes.leading import Leading
from rankscope.agent.nodes.limits import most_parts
from rankscope.agent.nodes.messages import LookHead, with_head

_LOOKS: Final[tuple[Which, ...]] = ("a", "b")


class TakingPart(Leading):
    """Looks, posts, and listens."""

    def _look(self, which: Which, affair: Affair) -> None:
        affair.asked.add(which)
        self._said.append(Look(which, affair.opening))

    def _look_taken(self, event: LookTaken) -> None:
        affair = self._affair
        if affair is None or event.opening not in (None, affair.opening):
            return
        if event.which in affair.asked and event.which not in affair.looks:
            affair.looks[event.which] = event.parts[: most_parts(self._me.size)]
            affair.looked_at[event.which] = self._now

    def _ask_for_news(self, affair: Affair) -> None:
        wanted = Fetch((keys.ruling(affair.number), keys.verdict(affair.number)))
        self._ask(wanted, lambda found: self._news(affair, found))

    def _news(self, affair: Affair, found: Answered) -> None:
        ruled, verdict = found.values
        if ruled:
            if verdict and not affair.verdict:
                self._said.append(Learn(affair.opening, verdict))
            self._is_ruled(affair, ruled)
        elif verdict and not affair.verdict:
            self._knows(affair, verdict)
        elif self._marks_often(affair):
            self._mark(affair, lambda: None)

    def _marks_often(self, affair: Affair) -> bool:
        near = self._me.rank < self._limits.dense or self.state == "leading"
        return near and self.state in ("looking", "reported", "leading") and not affair.verdict

    def _advance(self, affair: Affair) -> None:
        if not affair.verdict and affair.proposal is None and self._is_too_long(affair):
            self._propose(self._nothing(affair, "no verdict came in time"))
        if affair.proposal is not None:
            self._rule(affair, affair.proposal)
        elif affair.own_verdict and not affair.verdict:
            self._write_verdict(affair)
        elif self.state == "looking":
            self._advance_looks(affair)
        elif self.state == "reported":
            self._advance_lead(affair)
        elif self.state == "leading":
            self._advance_collection(affair)
        elif self.state == "judging" and self._now - affair.state_since > self._limits.judge:
            self._go("reported", why.SLOW)
            affair.term, affair.term_since = affair.term + 1, self._now

    def _is_too_long(self, affair: Affair) -> bool:
        return self._now - affair.since > self._limits.incident

    def _advance_looks(self, affair: Affair) -> None:
        for which in _LOOKS:
            if which in affair.looks and which not in affair.posted:
                self._mark(affair, partial(self._post, affair, which))
                return
        first = affair.looked_at.get("a")
        if first is not None and "b" not in affair.asked and self._now - first >= self._limits.second_look:
            self._look("b", affair)
        if len(affair.posted) == len(_LOOKS) or self._now - affair.since > self._limits.look:
            self._go("reported", why.SEEN)
            affair.term_since = self._now
            self._advance_lead(affair)

    def _post(self, affair: Affair, which: Which) -> None:
        parts = affair.looks[which] or (b"",)
        head = LookHead(self._me.rank, self._me.node, len(parts), tuple(affair.marks))
        names = [keys.look(affair.number, which, self._me.rank, part) for part in range(len(parts))]
        values = (with_head(head, parts[0]), *parts[1:])
        affair.written += names
        items = tuple(zip(names, values, strict=True))

        def posted(_answered: Answered) -> None:
            affair.posted.add(which)
            affair.looks[which] = ()  # it may be large

        self._ask(Put((*items[1:], items[0])), posted)
