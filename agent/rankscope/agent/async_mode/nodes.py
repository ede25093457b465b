"""Which nodes of the job still have work, told in the round's store: independent workers end hours apart.

torch's exit barrier waits 300 s for the other nodes, and the node that hosts the store takes it along when it
leaves, and with it the agents of those that still work. So a node that is done stays in torch's monitor loop
until all are. A node that says nothing for a while is not waited for. It must not know of workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

BEAT: Final = 5.0
"""Seconds between two words of a node, and between two looks at those of the others."""
GONE: Final = 60.0
"""Seconds of silence after which a node is not waited for: it was ended by its scheduler, or is lost."""
_DONE: Final = "done"
_AT_WORK: Final = "at work"


class Store(Protocol):
    """What is used of torch's store."""

    def set(self, key: str, value: str, /) -> None:
        """Set a key."""
        ...

    def check(self, keys: list[str], /) -> bool:
        """Whether all keys are there."""
        ...

    def get(self, key: str, /) -> bytes:
        """The value of a key that is there."""
        ...


@dataclass(frozen=True, slots=True)
class Heard:
    """What a node said last, and since when it says so (monotonic seconds)."""

    word: str
    since: float


def hear(heard: Mapping[int, Heard], words: Mapping[int, str], now: float) -> dict[int, Heard]:
    """What is known after looking at all words once more."""
    return {
        node: before if (before := heard.get(node)) is not None and before.word == word else Heard(word, now)
        for node, word in words.items()
    }


def at_work(heard: Mapping[int, Heard], now: float) -> list[int]:
    """Nodes that are not done and not gone."""
    return sorted(
        node for node, one in heard.items() if not one.word.startswith(_DONE) and now - one.since < GONE
    )


class Nodes:
    """The nodes of one round. For the main thread, whose loop asks the same store all the time.

    Args:
        store: the round's.
        group_rank: this node.
        size: nodes of the round.
        clock: monotonic seconds.
    """

    def __init__(
        self, store: Store, group_rank: int, size: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._me = group_rank
        self._size = size
        self._clock = clock
        self._count = 0
        self._said = ""
        self._next = clock()
        self._heard: dict[int, Heard] = {}

    def is_due(self, *, done: bool) -> bool:
        """Whether it is time for a word; a new one is said at once."""
        return self._clock() >= self._next or self._said != (_DONE if done else _AT_WORK)

    def tell(self, *, done: bool) -> None:
        """Say how this node does, and hear the others if it is done.

        Raises:
            RuntimeError: torch's; the store is gone.
        """
        self._said = _DONE if done else _AT_WORK
        self._count += 1
        self._next = self._clock() + BEAT
        self._store.set(_key(self._me), f"{self._said} {self._count}")
        if done:
            self._heard = hear(self._heard, self._words(), self._clock())

    def are_done(self) -> bool:
        """Whether nobody is waited for any more, as of the last ``tell``."""
        return self._said == _DONE and not at_work(self._heard, self._clock())

    def _words(self) -> dict[int, str]:
        others = [node for node in range(self._size) if node != self._me]
        return {
            node: self._store.get(_key(node)).decode() if self._store.check([_key(node)]) else ""
            for node in others
        }


def _key(group_rank: int) -> str:
    return f"rankscope/async/{group_rank}"
