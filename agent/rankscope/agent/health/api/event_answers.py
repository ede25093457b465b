"""The answers that are made of the events of all nodes: pieces of one log. Blocking: files are read."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from rankscope.agent.health.api import answers, questions
from rankscope.agent.health.api.event_files import JobEvents
from rankscope.agent.health.api.refusal import NoAnswerError
from rankscope.diag.store.events import Event, unix_time
from rankscope.diag.store.job import JobFolder


class EventAnswers:
    """Answers questions about the events of one job folder."""

    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._known = JobEvents(folder)

    def read(self, question: questions.ReadEvents) -> bytes:
        """``EventsAnswer`` as JSON; stored events as their lines are.

        Raises:
            NoAnswerError: ``since`` is neither an event that is known nor a time.
        """
        known = self.read_on()
        first = self._place(question.since)
        limit = min(question.limit, questions.MOST_EVENTS)
        lines = [msgspec.Raw(line) for _entry, line in known.lines(first, limit)]
        more = first + limit < len(known.entries)
        unwritten: list[Event] = []
        if not more:
            room = limit - len(lines)
            waiting = [one for one in question.unwritten.events if known.place_after(one.id) is None]
            unwritten, more = waiting[:room], len(waiting) > room
        events = [*lines, *(msgspec.Raw(msgspec.json.encode(one)) for one in unwritten)]
        head = answers.EventsAnswer(
            self._folder.run_id, (), more=more, waiting=len(unwritten), skipped=known.skipped
        )
        return msgspec.json.encode({**msgspec.structs.asdict(head), "events": events})

    def read_on(self) -> JobEvents:
        """All events that are stored now.

        Raises:
            NoAnswerError: there are too many for one answer's time; the next goes on where this one ended.
        """
        if not self._known.read_on():
            done, size = (one >> 20 for one in self._known.progress)
            raise NoAnswerError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"the events are still being read ({done} of {size} MiB so far)",
            )
        return self._known

    def _place(self, since: str) -> int:
        if not since:
            return 0
        after = self._known.place_after(since)
        if after is not None:
            return after
        moment = unix_time(since)
        if moment is None:
            raise NoAnswerError(
                HTTPStatus.NOT_FOUND,
                "since: no event of that id, and no time as 2026-11-29T16:40:00Z; left out: all",
            )
        return self._known.place_since(moment)

    def follow(self, question: questions.FollowEvents) -> questions.Followed:
        """What came after a place; from the first event on when the place is not known any more."""
        known = self.read_on()
        if question.generation == known.generation:
            return self._piece(question.position, question.limit, reset=False)
        if question.after:
            place = known.place_after(question.after)
            return self._piece(place or 0, question.limit, reset=place is None)
        if question.generation:
            return self._piece(0, question.limit, reset=True)
        return self._piece(len(known.entries) if question.at_end else 0, question.limit, reset=False)

    def _piece(self, place: int, limit: int, *, reset: bool) -> questions.Followed:
        lines = self._known.lines(place, limit)
        events = tuple(questions.FollowedEvent(entry.id, entry.name, line) for entry, line in lines)
        end = place + len(events)
        last = self._known.entries[end - 1].id if 0 < end <= len(self._known.entries) else ""
        return questions.Followed(self._known.generation, end, events, reset, last)
