"""Row S2: all arrive together, and yet communication takes long: a slow link or group.

Source: DIAGNOSIS.md, row S2. Its own baseline is the job's pace: more of a step is spent in communication
than a whole one took before. Where no pace is known, the links are each other's: bytes are on their way on
one of them at most looks, and hardly ever on others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rankscope.diag.classify.blame import Finding, calls
from rankscope.diag.classify.lateness import waiting_share
from rankscope.diag.classify.links import Link, read_links, shared_by, shown_pairs
from rankscope.diag.classify.pace import RankLooks, all_looks, are_enough, share_evidence
from rankscope.diag.classify.slow_limits import (
    INSIDE_ALL,
    LINK_SHARE,
    LINK_TIMES,
    MOST_WAITING,
    OPEN_SHARE,
)
from rankscope.diag.classify.slow_rank import pace_evidence
from rankscope.diag.classify.view import JobView, waiting_ranks
from rankscope.diag.classify.wording import join, name_ranks, wait_phrase
from rankscope.diag.model import Confidence, Evidence, Location

_CLEARLY: Final = 1.5
"""Times the old step from which its pace alone, without a link that shows it, makes communication slow."""


def slow_link(job: JobView, looks: Mapping[int, RankLooks]) -> Finding | None:
    """Row S2, of a job that moves and in which nobody is late."""
    if job.unseen or not are_enough(looks):
        return None
    if any(one.share < INSIDE_ALL for one in looks.values()):
        return None
    slow = _slow_links(list(read_links(all_looks(job)).values()))
    paced = _communication_grew(job, looks)
    if not slow and not (paced and _grew_clearly(job)):
        return None
    pairs = [link.pair for link in slow]
    ranks = (
        shared_by(pairs, {view.rank: view.latest.node for view in job.ranks}) if slow else _open_group(job)
    )
    confidence: Confidence = "medium" if slow and paced and len(ranks) == 1 else "low"
    return _finding(job, looks, slow, ranks, confidence)


def _slow_links(links: Sequence[Link]) -> tuple[Link, ...]:
    """Those on which something is on its way at most looks, where it is not so on others."""
    slow = tuple(link for link in links if link.share >= LINK_SHARE)
    rest = [link.share for link in links if link.share < LINK_SHARE]
    if not slow or not rest or max(rest) * LINK_TIMES > min(link.share for link in slow):
        return ()
    return slow


def _communication_grew(job: JobView, looks: Mapping[int, RankLooks]) -> bool:
    """Whether every rank spends more of a step in communication than a whole step took before.

    Outside of it no more than that, and none of it in waiting for whoever comes last this time: the records
    show that all come together.
    """
    slowdown = job.slowdown
    if slowdown is None or any(
        one.share * slowdown.now < slowdown.before or (1 - one.share) * slowdown.now > slowdown.before
        for one in looks.values()
    ):
        return False
    waiting = waiting_share(job)
    return waiting is not None and waiting <= MOST_WAITING * min(one.share for one in looks.values())


def _grew_clearly(job: JobView) -> bool:
    slowdown = job.slowdown
    return slowdown is not None and slowdown.now >= _CLEARLY * slowdown.before


def _open_group(job: JobView) -> tuple[int, ...]:
    """The members of the one group whose collectives are open at most looks, if it is not everybody's."""
    seen: dict[tuple[str, int], int] = {}
    members: dict[tuple[str, int], set[int]] = {}
    open_looks = 0
    for look in all_looks(job):
        here: set[tuple[str, int]] = set()
        for rank in look.ranks:
            for group in rank.progress.groups if rank.progress else ():
                members.setdefault((group.name, group.members), set()).add(rank.rank)
                if group.enqueued > group.completed:
                    here.add((group.name, group.members))
        open_looks += bool(here)
        for key in here:
            seen[key] = seen.get(key, 0) + 1
    often = [key for key, count in seen.items() if open_looks and count >= OPEN_SHARE * open_looks]
    if len(often) != 1 or len(members[often[0]]) == job.latest.world_size:
        return ()
    return tuple(sorted(members[often[0]]))


def _finding(
    job: JobView,
    looks: Mapping[int, RankLooks],
    slow: Sequence[Link],
    ranks: tuple[int, ...],
    confidence: Confidence,
) -> Finding:
    least = min(one.share for one in looks.values())
    what = f"communication is slow: every rank is in it in {100 * least:.0f} % of the looks or more"
    slowdown = job.slowdown
    pace = f", {slowdown.now:.2g} s a step since step {slowdown.since_step}" if slowdown is not None else ""
    if slow:
        where = f"bytes are held up between ranks {shown_pairs([link.pair for link in slow])}"
        whose = f"the link of {name_ranks(ranks)} is slow" if len(ranks) == 1 else ""
    else:
        where = f"the group of {name_ranks(ranks)}" if ranks else "no link or group stands out"
        whose = ""
    victims = [view.rank for view in job.ranks if view.rank not in ranks]
    return Finding(
        verdict="RankCommSlow",
        kind="network",
        severity="info",
        confidence=confidence,
        rule="S2",
        summary=join(whose, what + pace, where, wait_phrase(calls(waiting_ranks(job)), for_whom=())),
        culprits=ranks,
        victims=dict.fromkeys(victims, ranks) if ranks else {},
        location=_place(job, looks, ranks),
        evidence=(*pace_evidence(job), *map(_fact, slow), *share_evidence(looks)),
    )


def _fact(link: Link) -> Evidence:
    one, other = link.pair
    return Evidence(
        "/proc/net/tcp",
        f"ranks {one} and {other}: bytes on their way at {100 * link.share:.0f} % of"
        f" {len(link.on_their_way)} looks, {max(link.on_their_way)} at most",
    )


def _place(job: JobView, looks: Mapping[int, RankLooks], ranks: Sequence[int]) -> Location | None:
    """The line of the call that the first of them is in most often last."""
    of_whom = looks[ranks[0]] if ranks and ranks[0] in looks else next(iter(looks.values()))
    inside = [one for one, is_in in zip(of_whom.looks, of_whom.inside, strict=True) if is_in]
    frame = inside[-1].position.user_frame if inside and inside[-1].position is not None else None
    if frame is None:
        return None
    source = job.source_line(frame.file, frame.line)
    return Location(frame.function, frame.file, frame.line, source, of_whom.rank)
