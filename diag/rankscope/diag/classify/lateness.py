"""Row S1 from flight records: one rank, or all ranks of one node, reach most collectives last, by far.

Source: DIAGNOSIS.md, "Naming the culprit". Lateness is how long those late kept all others waiting: the gap
between the first of them and the last of the others, so that two ranks late together blame nobody, unless
they are all ranks of their node. Across hosts the offset of the clocks is taken, of those that the
collectives leave open (``clocks``) and that the clocks may have where they were compared, that makes the
accused least late: what is left is late by any clock.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from rankscope.diag.classify.arrivals import Arrivals, Calls, arrivals_of, windows
from rankscope.diag.classify.clocks import HostTimes, clocks_ahead, host_times, split_impossible
from rankscope.diag.classify.records import GroupKey
from rankscope.diag.classify.slow_limits import (
    LEAST_COLLECTIVES,
    LEAST_GAP_NS,
    LEAST_OF_ALL,
    LEAST_SHARE,
    LEAST_TIMES,
    MOST_STEPS,
    ONSET_GAPS,
    PARTS,
    RESYNCED,
    RESYNCED_TO,
)
from rankscope.diag.classify.view import JobView

_MOST_ACCUSED: Final = 32  # hosts that are compared with all others


@dataclass(frozen=True, slots=True)
class Lateness:
    """Who holds up a group.

    Attributes:
        key: the group.
        ranks: those late, one or all of a node.
        node: that node, ``""`` for a single rank.
        gap: median of how long the others waited for them alone, seconds.
        times: collectives they were last in, by a noticeable gap; of how many.
        share: of the window's time, 0 to 1.
        factor: how many times as long as the others they take from one collective to the next, at least: what
            the collective itself takes counts for both. 0 when that cannot be told.
        since_seq: the first collective of the row that they were late in; -1 when they were late from the
            beginning of what the record has.
    """

    key: GroupKey
    ranks: tuple[int, ...]
    node: str
    gap: float
    times: int
    of: int
    share: float
    factor: float = 0.0
    since_seq: int = -1

    @property
    def rank(self) -> int:
        """The first of them."""
        return self.ranks[0]


def late_fact(late: Lateness) -> str:
    """The lateness as a fact."""
    return (
        f"last into {late.times} of {late.of} collectives, by {1000 * late.gap:.0f} ms (median): the others"
        f" wait {100 * late.share:.0f} % of the time for {'it' if len(late.ranks) == 1 else 'them'} alone"
    )


def latest_rank(job: JobView) -> Lateness | None:
    """The rank that holds up a group of the job most, ``None`` when no single one does by far."""
    late = latest(job)
    return late if late is not None and len(late.ranks) == 1 else None


def latest(job: JobView) -> Lateness | None:
    """Who holds up a group of the job, ``None`` when nobody does by far.

    Who is late in one group because it waits in another for somebody who is late there is a victim: the way
    is followed to those who wait for nobody.
    """
    nodes = {view.rank: view.latest.node for view in job.ranks}
    within = job.slow.clocks_within if job.slow is not None else None
    found = [
        one
        for key, calls in sorted(job.told.entries.items())
        if (one := lateness(key, calls, nodes, clocks_within=within))
    ]
    worst = max(found, key=lambda one: one.share, default=None)
    passed = list[Lateness]()
    while worst is not None and worst not in passed:
        passed.append(worst)
        held = set(worst.ranks)
        above = [one for one in found if held <= set(job.told.entries[one.key]) and not held & set(one.ranks)]
        worst = max(above, key=lambda one: one.share, default=worst)
    return worst


def lateness(
    key: GroupKey, calls: Calls, nodes: Mapping[int, str], *, clocks_within: float | None = None
) -> Lateness | None:
    """Who holds up one group.

    Args:
        key: the group.
        calls: its recorded collectives.
        nodes: host of each rank. Ranks of an unknown one (``""``) are taken to be on one host, unless their
            times show that they cannot be.
        clocks_within: by how much the clocks of hosts may be apart, seconds; ``None`` for by anything.
    """
    arrivals = arrivals_of(calls) if len(calls) > 1 else None
    if arrivals is None or len(arrivals.seqs) < arrivals.least:
        return None
    nodes = split_impossible(arrivals.times, nodes, arrivals.together)
    for begin in windows(arrivals):
        part = arrivals.since(begin)
        found = [
            one
            for accused in _accusations(part, nodes, clocks_within)
            if (one := _late(key, part, accused)) is not None
        ]
        worst = max(found, key=lambda one: one.share, default=None)
        if worst is not None:
            return _with_onset(worst, _accusations(arrivals, nodes, clocks_within), arrivals.seqs)
    return None


def waiting_share(job: JobView) -> float | None:
    """Share of the time that ranks of one host wait for the last of them, on average, whoever that is.

    ``None`` where records do not tell it: the largest of all groups counts, if it has all ranks.
    """
    nodes = {view.latest.node for view in job.ranks}
    whole = [calls for calls in job.told.entries.values() if len(calls) >= job.latest.world_size > 1]
    if len(nodes) > 1 or not whole:
        return None
    arrivals = arrivals_of(max(whole, key=lambda calls: sum(map(len, calls.values()))))
    if len(arrivals.seqs) < LEAST_COLLECTIVES:
        return None
    part = arrivals.since(next(iter(windows(arrivals)), 0))
    columns = list(zip(*part.times.values(), strict=True))
    waited = sum(max(column) - sum(column) / len(column) for column in columns)
    return waited / part.span_ns if part.span_ns > 0 else None


@dataclass(frozen=True, slots=True)
class _Accused:
    """Somebody who may be late.

    Attributes:
        ranks: who.
        node: their node, where all of its ranks are accused together.
        gaps: how long the others waited for them alone, in each collective, ns.
        all_gaps: how long any last rank or node was waited for alone.
        is_across: whether that was measured across hosts whose clocks were not compared.
    """

    ranks: tuple[int, ...]
    node: str
    gaps: Sequence[int]
    all_gaps: Sequence[int]
    is_across: bool


def _accusations(
    arrivals: Arrivals, nodes: Mapping[int, str], clocks_within: float | None
) -> Iterator[_Accused]:
    """Whoever was last alone in some collective: a rank, or the ranks of a node that are several."""
    hosts = host_times(arrivals.times, nodes)
    accused = _most_likely(hosts) if len(hosts) > 1 else tuple(hosts)
    ahead = _clocks_ahead(hosts, accused, arrivals.together, clocks_within)
    if ahead is None:
        return
    is_across = len(hosts) > 1 and clocks_within is None
    count = len(arrivals.seqs)
    alone = {host: _behind_other_hosts(host, hosts, ahead, hosts[host].last) for host in accused}
    all_gaps = [0] * count
    of_rank: dict[int, list[int]] = {}
    for host in accused:
        own = hosts[host]
        for at in range(count):
            gap = (
                alone[host][at] if own.second[at] < 0 else min(alone[host][at], own.last[at] - own.second[at])
            )
            if gap > 0 and arrivals.counts((own.last_rank[at],), at, gap):
                of_rank.setdefault(own.last_rank[at], [0] * count)[at] = gap
                all_gaps[at] = max(all_gaps[at], gap)
    of_node: dict[str, list[int]] = {}
    for host in accused if len(hosts) > 1 else ():
        if len(hosts[host].ranks) > 1:
            gaps = _behind_other_hosts(host, hosts, ahead, hosts[host].first)
            ranks = hosts[host].ranks
            gaps = [gap if arrivals.counts(ranks, at, gap) else 0 for at, gap in enumerate(gaps)]
            of_node[host] = gaps
            all_gaps = [max(one, gap) for one, gap in zip(all_gaps, gaps, strict=True)]
    for rank, gaps in of_rank.items():
        yield _Accused((rank,), "", gaps, all_gaps, is_across)
    for host, gaps in of_node.items():
        yield _Accused(hosts[host].ranks, host, gaps, all_gaps, is_across)


def _clocks_ahead(
    hosts: Mapping[str, HostTimes], accused: Sequence[str], together: Sequence[bool], within: float | None
) -> dict[tuple[str, str], int] | None:
    """By how many ns at most each accused host's clock is ahead of each other's, ``None`` for by anything."""
    if len(hosts) == 1:
        return {}
    found = clocks_ahead(hosts, accused, together)
    if within is None:
        return found
    most = round(within * 1e9)
    pairs = ((host, other) for host in accused for other in hosts if other != host)
    return {pair: min(most, (found or {}).get(pair, most)) for pair in pairs}


def _behind_other_hosts(
    host: str, hosts: Mapping[str, HostTimes], ahead: Mapping[tuple[str, str], int], times: Sequence[int]
) -> list[int]:
    """How much later than all other hosts these times of a host are at least, 0 where they are not."""
    others = [(its.last, ahead[host, other]) for other, its in hosts.items() if other != host]
    if not others:
        return [1 << 62] * len(times)
    return [max(0, min(time - last[at] - shift for last, shift in others)) for at, time in enumerate(times)]


def _most_likely(hosts: Mapping[str, HostTimes]) -> tuple[str, ...]:
    """The hosts that are compared with all others: those most often last, by clocks set in the middle."""
    if len(hosts) <= _MOST_ACCUSED:
        return tuple(hosts)
    reference = next(iter(hosts.values()))
    count = len(reference.first)
    behind: dict[str, list[int]] = {}
    for host, own in hosts.items():
        most = min(own.first[at + 1] - reference.last[at] for at in range(count - 1))
        least = max(own.last[at] - reference.first[at + 1] for at in range(count - 1))
        behind[host] = [last - (most + least) // 2 for last in own.last]
    ordered = [statistics.median(column) for column in zip(*behind.values(), strict=True)]
    lost = {
        host: sum(max(0, int(time - usual)) for time, usual in zip(times, ordered, strict=True))
        for host, times in behind.items()
    }
    return tuple(sorted(hosts, key=lambda host: -lost[host])[:_MOST_ACCUSED])


def _late(key: GroupKey, arrivals: Arrivals, accused: _Accused) -> Lateness | None:
    window, gaps = arrivals.span_ns, accused.gaps
    noticeable = [gap for gap in gaps if gap >= LEAST_GAP_NS]
    lost = sum(noticeable)
    if window <= 0 or lost < LEAST_SHARE * window or not _most_steps(arrivals.likes, gaps):
        return None
    if not _all_along(gaps, accused.all_gaps):
        return None
    if accused.is_across and not _resync(gaps):
        return None
    return Lateness(
        key,
        accused.ranks,
        accused.node,
        statistics.median(noticeable) / 1e9,
        len(noticeable),
        len(gaps),
        min(1.0, lost / window),
        _factor(arrivals.times[accused.ranks[0]], gaps),
    )


def _most_steps(likes: Sequence[object], gaps: Sequence[int]) -> bool:
    """Whether the others waited noticeably in most steps: in most of the collectives of one kind."""
    called = Counter(likes)
    awaited = Counter(like for like, gap in zip(likes, gaps, strict=True) if gap >= LEAST_GAP_NS)
    return any(count >= max(LEAST_TIMES, MOST_STEPS * called[like]) for like, count in awaited.items())


def _resync(gaps: Sequence[int]) -> bool:
    """Whether a wait is over at the next collective."""
    follow = [after <= RESYNCED_TO * gap for gap, after in pairwise(gaps) if gap >= LEAST_GAP_NS]
    return sum(follow) >= RESYNCED * len(follow) > 0


def _all_along(gaps: Sequence[int], all_gaps: Sequence[int]) -> bool:
    """Whether most of the waiting for a last one is for these, in every part of the window."""
    count, whole = len(gaps), sum(gaps)
    for part in range(PARTS):
        begin, end = part * count // PARTS, (part + 1) * count // PARTS
        own, all_of_it = sum(gaps[begin:end]), sum(all_gaps[begin:end])
        if own < LEAST_OF_ALL * all_of_it or own * PARTS * 2 < whole:
            return False
    return True


def _factor(times: Sequence[int], gaps: Sequence[int]) -> float:
    """Times of the others' own time between collectives, by one clock.

    All were in a collective: from there to the next arrival it takes as long as that takes, and the others
    arrive earlier by the gap.
    """
    mine = times[-1] - times[0]
    others = mine - sum(gaps[1:])
    return mine / others if others > 0 else 0.0


def _with_onset(late: Lateness, accused: Iterable[_Accused], seqs: Sequence[int]) -> Lateness:
    """Since when: back from the newest noticeable wait until they lie much further apart than usual."""
    gaps = next((one.gaps for one in accused if one.ranks == late.ranks), ())
    at = [index for index, gap in enumerate(gaps) if gap >= max(LEAST_GAP_NS, late.gap * 1e9 / 2)]
    if len(at) < 2:  # noqa: PLR2004 - a distance
        return late
    distance = ONSET_GAPS * statistics.median(after - one for one, after in pairwise(at))
    begin = at[-1]
    for index in reversed(at[:-1]):
        if begin - index > distance:
            break
        begin = index
    if begin <= distance:
        return late
    return replace(late, since_seq=seqs[begin])
