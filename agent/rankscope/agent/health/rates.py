"""How much one peer may ask: a token bucket each. Pure: it is told the time.

Two kinds of questions have buckets of their own, so that a peer that reads records without end does not use
up what its probes need.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

PEERS: Final = 2048
"""Peers that are remembered; past it the one that was silent longest is forgotten."""
_IPV6_PREFIX: Final = 64
"""One host has all addresses of such a network."""


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Buckets:
    """The buckets of all peers for one kind of question.

    Args:
        rate: questions a second.
        burst: questions at once, after a pause.
    """

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._peers: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, peer: str, now: float, *, cost: float = 1.0) -> float:
        """Take ``cost`` from a peer's bucket.

        Args:
            peer: its address.
            now: seconds, of any clock that only goes forward.
            cost: what a question costs.

        Returns:
            0 when it may ask, else seconds after which it may.
        """
        bucket = self._peers.pop(peer, None)
        if bucket is None:
            bucket = _Bucket(self._burst, now)
            if len(self._peers) >= PEERS:
                self._peers.popitem(last=False)
        self._peers[peer] = bucket
        bucket.left = min(self._burst, bucket.left + max(0.0, now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.left >= cost:
            bucket.left -= cost
            return 0.0
        return (cost - bucket.left) / self._rate

    def charge(self, peer: str, cost: float) -> None:
        """Take more for a question that turned out to be dear; the peer may owe some of it."""
        bucket = self._peers.get(peer)
        if bucket is not None:
            bucket.left = max(-self._burst, bucket.left - cost)


def peer_of(address: str) -> str:
    """What counts as one peer: an IPv4 address, or a network of IPv6."""
    try:
        found = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False).network_address)


def whole_seconds(wait: float) -> int:
    """A ``Retry-After`` that is long enough."""
    return max(1, math.ceil(wait))
