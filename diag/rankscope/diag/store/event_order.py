"""The events of several nodes as one list. Pure.

Those of a node stay in their order, whatever its wall clock did. Between nodes they come by the wall clocks
at the nodes' first events, and what has passed since by each node's monotonic clock.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Sequence

from rankscope.diag.store.events import Event, seconds_between, unix_time


def merged(nodes: Iterable[Sequence[Event]]) -> list[Event]:
    """The events of all nodes in order.

    Args:
        nodes: the events of each, in the order of its log.
    """
    placed = [_placed(events) for events in nodes if events]
    return [event for _at, event in heapq.merge(*placed, key=operator.itemgetter(0))]


def _placed(events: Sequence[Event]) -> list[tuple[float, Event]]:
    at, before = unix_time(events[0].time) or 0.0, events[0]
    found: list[tuple[float, Event]] = []
    for event in events:
        at, before = at + seconds_between(before, event), event
        found.append((at, event))
    return found
