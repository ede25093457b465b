"""What is wanted to be known of a job that nobody suspects: by a person, and by whoever finds it slow.

One question of each kind at a time. It must not know how the job is asked.
"""

from __future__ import annotations

from typing import Final

from rankscope.agent.nodes.messages import Opening
from rankscope.agent.watching.questions import AskedQuestion, Question

PERSONS_PATIENCE: Final = 40.0
"""Seconds for the answer where a person waits for it; then this agent looks at its own ranks."""
PATIENCE: Final = 90.0
"""The same where nobody does: looks for what is slow take ten seconds."""


class Wishes:
    """The questions that are not answered yet."""

    def __init__(self) -> None:
        self._waiting: dict[bool, AskedQuestion] = {}

    def add(self, question: Question, now: float) -> None:
        """Wait for the answer to a question, in place of an earlier one of its kind."""
        about_pace = question.opening.slow is not None
        patience = PATIENCE if about_pace else PERSONS_PATIENCE
        self._waiting[about_pace] = AskedQuestion(question, now + patience, is_sent=True)

    def answered_by(self, opening: Opening) -> Question | None:
        """Whoever wanted to know what the verdict of this incident says; it waits no more."""
        return self._take(about_pace=opening.slow is not None)

    def overdue(self, now: float) -> list[Question]:
        """Those that have waited for too long; they wait no more."""
        late = [kind for kind, asked in self._waiting.items() if now > asked.until]
        return [self._waiting.pop(kind).question for kind in late]

    def take_all(self) -> list[Question]:
        """All of them; they wait no more."""
        waiting, self._waiting = self._waiting, {}
        return [asked.question for asked in waiting.values()]

    def _take(self, *, about_pace: bool) -> Question | None:
        asked = self._waiting.pop(about_pace, None)
        return asked.question if asked is not None else None
