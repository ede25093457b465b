"""One text at a time, with all rules; the same text is looked at once. Pure but for that memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from rankscope.diag.redact.environment import exported, printed
from rankscope.diag.redact.names import Names
from rankscope.diag.redact.secrets import secrets_in
from rankscope.diag.redact.spans import REMOVED, Span, replaced

SECRETS: Final = "secrets"
USERS: Final = "users"
HOSTS: Final = "hosts"
ENVIRONMENT: Final = "environment"
VARIABLES: Final = "local variables"
_SHORTEST_SECRET: Final = 8
_MOST_REMEMBERED: Final = 200_000
_ROUNDS: Final = 4


class Redactor:
    """Takes out of texts what must not leave.

    Attributes:
        removed: how often what was taken out, since it was last asked (``counted``).
    """

    def __init__(self, names: Names, known_secrets: Collection[str] = (), *, is_output: bool = False) -> None:
        """Nothing is redacted yet.

        Args:
            names: what users and hosts are called instead.
            known_secrets: values that are taken out wherever they stand: the job's token, what variables with
                a secret's name have. Short ones are left out of account: they would stand everywhere.
            is_output: every text is what a program said.
        """
        self._names = names
        self._known = sorted(
            one for one in set(known_secrets) if len(one) >= _SHORTEST_SECRET and one not in REMOVED
        )
        self._seen: dict[tuple[str, bool], tuple[str, Mapping[str, int]]] = {}
        self._is_output = is_output
        self.removed: Counter[str] = Counter()

    def of_output(self) -> Redactor:
        """The same, counting together, for records in which every text is what a program said."""
        other = Redactor(self._names, self._known, is_output=True)
        other.removed = self.removed
        return other

    def text(self, text: str) -> str:
        """A text without what must not leave. One of several lines may be what a program printed."""
        return self._remembered(text, output=self._is_output or "\n" in text)

    def log(self, text: str) -> str:
        """Likewise, of what a program printed: its environment too."""
        return self._remembered(text, output=True)

    def counted(self) -> dict[str, int]:
        """What was taken out since the last call, and how often."""
        counts = {what: count for what, count in sorted(self.removed.items()) if count}
        self.removed.clear()
        return counts

    def _remembered(self, text: str, *, output: bool) -> str:
        seen = self._seen.get((text, output))
        if seen is None:
            seen = self._redacted(text, output=output)
            if len(self._seen) < _MOST_REMEMBERED:
                self._seen[text, output] = seen
        self.removed.update(seen[1])
        return seen[0]

    def _redacted(self, text: str, *, output: bool) -> tuple[str, Mapping[str, int]]:
        def spans(text: str) -> Iterator[Span]:
            return self._spans(text, output=output)

        found: Counter[str] = Counter()
        for _ in range(_ROUNDS):
            before = text
            text, kinds = replaced(text, spans, SECRETS)
            found.update(kinds)
            text, users = self._names.without_users(text)
            text, hosts = self._names.without_hosts(text)
            found.update({USERS: users, HOSTS: hosts})
            # A new name may have made a word of what was none: once more, until nothing changes.
            if text == before:
                break
        return text, {what: count for what, count in found.items() if count}

    def _spans(self, text: str, *, output: bool) -> Iterator[Span]:
        for value in self._known:
            at = text.find(value)
            while at >= 0:
                yield Span(at, at + len(value), SECRETS)
                at = text.find(value, at + len(value))
        yield from (Span(*place, SECRETS) for place in secrets_in(text))
        yield from (Span(*place, ENVIRONMENT) for place in exported(text))
        if output:
            yield from (Span(*place, ENVIRONMENT) for place in printed(text))
