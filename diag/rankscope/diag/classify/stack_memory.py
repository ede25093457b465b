"""What was found of a stack, remembered by its identity: in a job's look the ranks share their stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from rankscope.diag.model import Frame

T = TypeVar("T")
_MOST: Final = 1024
"""Stacks; a look in which more differ gains nothing, and one that is gone holds no more memory than that."""


class StackMemory:
    """Answers of pure functions of a stack. Equal stacks that are two objects are two stacks."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[tuple[Frame, ...], Any]] = {}

    def once(self, what: str, frames: tuple[Frame, ...], find: Callable[[tuple[Frame, ...]], T]) -> T:
        """The answer to a question about a stack.

        Args:
            what: the question's name; one function answers it.
            frames: the stack; it is kept, so that no other one can have its identity.
            find: answers it.
        """
        key = what, id(frames)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[key] = frames, find(frames)
        answer: T = known[1]
        return answer
