"""Counts the batches that data loaders hand to the training script, at no cost for a batch.

Torch's loader iterators count themselves (``_num_yielded``). All that is added is a ``__new__`` that
remembers each iterator by a weak reference, before its ``__init__`` runs: no frame of ours stands in any
stack, and no iterator, dataset or worker lives longer. The probe's thread adds the counts up once a beat.
Torch is not imported from here; where it lacks one of these names nothing is counted.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Final, NamedTuple

LOADER_MODULE: Final = "torch.utils.data.dataloader"
"""Module whose ``_BaseDataLoaderIter`` is the root of all loader iterators (also torchdata's)."""
_ROOT: Final = "_BaseDataLoaderIter"
_COUNT: Final = "_num_yielded"
_MAX_NEW: Final = 4096
"""Iterators remembered between two beats at most: a beat that never comes must not cost memory."""

Remember = Callable[[object], None]


class _Followed(NamedTuple):
    """An iterator and how much of it is in the total."""

    iterator: weakref.ref[object]
    counted: int


class Batches:
    """The sum over all loader iterators of this process; it never falls.

    A lower bound: an iterator that ended between two looks keeps what it had at the last one, and counts as
    one batch when it was never looked at; of one that began again between two looks only the new run counts.
    """

    def __init__(self) -> None:
        """Nothing is counted before ``attach``."""
        self._new: deque[weakref.ref[object]] = deque(maxlen=_MAX_NEW)
        self._followed: list[_Followed] = []
        self._total = 0
        self._is_on = True

    def attach(self, loader_module: ModuleType) -> None:
        """Have an imported ``torch.utils.data.dataloader`` announce its iterators."""
        root = getattr(loader_module, _ROOT, None)
        # A __new__ of torch's own has arguments that nobody here knows.
        if isinstance(root, type) and "__new__" not in vars(root):
            _announce(root, self._remember)

    def silence(self) -> None:
        """Switch it off: a forked child is no rank."""
        self._is_on = False
        self._new.clear()

    def total(self) -> int:
        """Batches so far; for one thread, which calls it now and then."""
        while self._new:
            self._followed.append(_Followed(self._new.popleft(), -1))
        still: list[_Followed] = []
        for reference, counted in self._followed:
            iterator = reference()
            if iterator is None:
                self._total += counted < 0
                continue
            seen = _yielded_by(iterator)
            before = max(counted, 0)
            self._total += seen - before if seen >= before else seen
            still.append(_Followed(reference, seen))
        self._followed = still
        return self._total

    def _remember(self, iterator: object) -> None:
        if self._is_on:
            self._new.append(weakref.ref(iterator))


def _yielded_by(iterator: object) -> int:
    """0 also while ``__init__`` has not come as far, and for what a user's subclass has made of the name."""
    try:
        count: object = getattr(iterator, _COUNT, 0)
    except Exception:  # noqa: BLE001 - a property of the user's
        return 0
    return max(count, 0) if isinstance(count, int) else 0


def _announce(root: type, remember: Remember) -> None:
    def __new__(cls: type, *args: object, **kwargs: object) -> object:  # noqa: N807 - it becomes one
        # A subclass may have further bases: the next in line decides how it is made.
        make: Callable[..., object] = super(root, cls).__new__  # type: ignore[arg-type] # a type all the same
        made: object = make(cls) if make is object.__new__ else make(cls, *args, **kwargs)
        try:  # noqa: SIM105 - as short a frame as can be
            remember(made)
        except Exception:  # noqa: BLE001, S110 - the edge to the user's loop
            pass
        return made

    __new__.__qualname__ = f"{root.__qualname__}.__new__"
    root.__new__ = __new__  # type: ignore[method-assign,assignment]
