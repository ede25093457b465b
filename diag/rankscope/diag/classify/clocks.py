"""When the hosts of a group called its collectives, and by how much their clocks can differ.

``time_created_ns`` is wall clock: ranks of one host compare directly. Between two hosts the collectives bound
the offset. Nobody can leave one before the last has entered it, so a rank calls the next one after every
other has called this one; where calls are asynchronous only a later one, and how much later is found out: on
sound bounds the least offset is not above the largest. Pure; who is late is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_DEPTHS: Final = (1, 2, 4, 8, 16, 32)
"""Calls that a rank may be ahead of a collective it has not left: torch's DDP has one a bucket in flight."""


@dataclass(frozen=True, slots=True)
class HostTimes:
    """The arrivals of one host's ranks, one a collective, ns by its clock.

    Attributes:
        ranks: of this host in the group.
        first: when the first of them came; last when the last came, last_rank which that was.
        second: when the last but one came, -1 on a host with a single rank.
    """

    ranks: tuple[int, ...]
    first: Sequence[int]
    last: Sequence[int]
    last_rank: Sequence[int]
    second: Sequence[int]


def host_times(times: Mapping[int, Sequence[int]], nodes: Mapping[int, str]) -> dict[str, HostTimes]:
    """Group arrivals by host.

    Args:
        times: arrivals by rank, all of one length.
        nodes: host by rank. Ranks of an unknown one (``""``) are taken to be on one.
    """
    of_host: dict[str, list[int]] = {}
    for rank in sorted(times):
        of_host.setdefault(nodes.get(rank, ""), []).append(rank)
    return {host: _of_host(ranks, times) for host, ranks in of_host.items()}


def _of_host(ranks: Sequence[int], times: Mapping[int, Sequence[int]]) -> HostTimes:
    first, last, last_rank, second = list[int](), list[int](), list[int](), list[int]()
    for column in zip(*(times[rank] for rank in ranks), strict=True):
        newest = max(column)
        at = column.index(newest)
        first.append(min(column))
        last.append(newest)
        last_rank.append(ranks[at])
        second.append(max((*column[:at], *column[at + 1 :]), default=-1))
    return HostTimes(tuple(ranks), first, last, last_rank, second)


def split_impossible(
    times: Mapping[int, Sequence[int]], nodes: Mapping[int, str], together: Sequence[bool]
) -> dict[int, str]:
    """The hosts, where ranks of one name cannot share a clock each as a host of its own.

    Containers may have one name, and dumps none.
    """
    of_host: dict[str, list[int]] = {}
    for rank in sorted(times):
        of_host.setdefault(nodes.get(rank, ""), []).append(rank)
    return {
        rank: host if is_one else f"{host} (rank {rank})"
        for host, ranks in of_host.items()
        for is_one in [clocks_ahead({host: _of_host(ranks, times)}, (host,), together) is not None]
        for rank in ranks
    }


def clocks_ahead(
    hosts: Mapping[str, HostTimes], of: Sequence[str], together: Sequence[bool]
) -> dict[tuple[str, str], int] | None:
    """By how many ns at most the clock of each host is ahead of that of each other one.

    Args:
        hosts: their arrivals.
        of: the hosts whose clocks are asked for.
        together: of each collective, whether its members leave it together.

    Returns:
        The bound by host and other host; ``None`` where no depth of calls in flight makes the bounds sound.
    """
    for depth in _DEPTHS:
        at = [index for index in range(len(together) - depth) if together[index]]
        if not at:
            break
        found = dict[tuple[str, str], int]()
        for name in of:
            bounds = _bounds(hosts, name, at, depth)
            if bounds is None:
                break
            found |= bounds
        else:
            return found
    return None


def _bounds(
    hosts: Mapping[str, HostTimes], name: str, at: Sequence[int], depth: int
) -> dict[tuple[str, str], int] | None:
    """One host's clock against all others; ``None`` where there is no room, or it is not one clock itself."""
    mine = hosts[name]
    if any(mine.first[index + depth] < mine.last[index] for index in at):
        return None
    found = dict[tuple[str, str], int]()
    for other, its in hosts.items():
        if other == name:
            continue
        most = min(mine.first[index + depth] - its.last[index] for index in at)
        least = max(mine.last[index] - its.first[index + depth] for index in at)
        if least > most:
            return None
        found[name, other] = most
    return found
