"""Takes stacks that were read before out of py-spy's JSON, so that only the rest needs decoding.

The ranks of a job show the same stacks, thread by thread, and nine tenths of a dump are stacks. Comparing
bytes with those of the thread in the same place of earlier dumps is far cheaper than going through them as
JSON. Where one is new, the whole dump is decoded as ever. It knows no frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

_KEY: Final = b'"frames":'
_MOST_THREADS: Final = 256  # places in a dump, and
_MOST_STACKS: Final = 4  # stacks of each, that are remembered
_LONGEST: Final = 1 << 15  # bytes
_NUMBERS: Final = tuple(b"%d" % number for number in range(_MOST_THREADS))

Stack = TypeVar("Stack")


class KnownStacks(Generic[Stack]):
    """What threads showed, newest first, by their place in the dump; bounded to some ten MB."""

    def __init__(self) -> None:
        self._by_place: list[tuple[tuple[bytes, Stack], ...]] = []

    def learn(self, place: int, raw: bytes, stack: Stack) -> None:
        """Remember what the JSON of a thread's frames stands for."""
        if place >= _MOST_THREADS or len(raw) > _LONGEST:
            return
        while len(self._by_place) <= place:
            self._by_place.append(())
        known = self._by_place[place]
        if all(raw != one for one, _ in known):
            self._by_place[place] = ((raw, stack), *known[: _MOST_STACKS - 1])

    def take_out(self, data: bytes) -> tuple[bytes, Sequence[Stack]] | None:
        """The document with the number of a stack in place of its frames, and those stacks.

        Returns:
            ``None`` when it shows a stack that is not known. Inside of a JSON string the key has its quotes
            escaped, and is no key.
        """
        find, startswith = data.find, data.startswith
        pieces: list[bytes] = []
        stacks: list[Stack] = []
        at, key = 0, _KEY
        for number, known in zip(_NUMBERS, self._by_place, strict=False):
            found = find(key, at)
            if found < 0:
                break
            start = found + len(key)
            if not stacks and data[start : start + 1] == b" ":  # py-spy's own pretty print
                key += b" "
                start += 1
            for raw, stack in known:
                if startswith(raw, start):
                    pieces += (data[at:start], number)
                    stacks.append(stack)
                    at = start + len(raw)
                    break
            else:
                return None
        if not stacks or find(_KEY, at) >= 0:
            return None
        return b"".join((*pieces, data[at:])), stacks
