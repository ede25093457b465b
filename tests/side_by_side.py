"""What the commands that run many real jobs share: so many at a time, each as it ends, given up together.

It must not know what a job is, nor what is right.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import FrameType
from typing import TypeVar

_Item = TypeVar("_Item")
_Outcome = TypeVar("_Outcome")


def as_they_end(
    run: Callable[[_Item, threading.Event], _Outcome], items: Iterable[_Item], *, jobs: int
) -> Iterator[_Outcome]:
    """What becomes of each item, in the order in which they end.

    Args:
        run: is called in a thread, with an event that is set once nobody wants to know any more: then it
            must come back soon.
        items: to be run, those that are not begun by then are not.
        jobs: so many at a time.
    """
    given_up = threading.Event()
    with ThreadPoolExecutor(jobs, thread_name_prefix="job") as pool:
        running = [pool.submit(run, item, given_up) for item in items]
        try:
            yield from (future.result() for future in as_completed(running))
        finally:
            given_up.set()
            pool.shutdown(cancel_futures=True)


def positive(text: str) -> int:
    """A number of the command line.

    Raises:
        ValueError: it is none above 0.
    """
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def leave(number: int, _frame: FrameType | None) -> None:
    """The handler of SIGTERM: leave through the context managers, which end the jobs.

    Raises:
        SystemExit: always.
    """
    sys.exit(128 + number)
