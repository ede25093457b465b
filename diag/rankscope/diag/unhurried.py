"""Reading much at once, without the garbage collector going through all of it again and again."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Generator


@contextlib.contextmanager
def without_collector() -> Generator[None]:
    """While much is read that is no garbage: finding that out takes a tenth to a fifth of the time.

    What is all the same (a pickle may hold a value that contains itself) goes with the next collection.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            try:
                _call_it_old()
            finally:
                gc.enable()


class _Frozen:
    """Whether somebody in this process has frozen objects, which are theirs to thaw."""

    is_known = False


def _call_it_old() -> None:
    """What was made is no more looked at by every young collection."""
    # To count the frozen ones is to go through them all: with a million it took longer than what was read.
    if _Frozen.is_known or gc.get_freeze_count():
        _Frozen.is_known = True
        return
    gc.freeze()
    gc.unfreeze()
