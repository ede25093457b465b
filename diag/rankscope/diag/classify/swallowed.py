"""Row 7 with further evidence: a link between ranks swallows what is sent, and the ranks at its ends wait.

Source: DIAGNOSIS.md, row 7: "a rank only with further evidence (native state, counters)". The counters are
the kernel's retransmission timeouts of a connection that both ranks have open.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from rankscope.diag.classify.blame import Finding, calls, pair_evidence, victim_evidence
from rankscope.diag.classify.links import Link, Pair, cut_off, read_links, shared_by, shown_pairs
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.wording import join, name_ranks, verb, wait_phrase
from rankscope.diag.model import Confidence, Evidence

_DEAD_RETRIES: Final = 3
"""Timeouts in a row without an answer: 1.4 s at least on Linux (0.2 s, doubled each time)."""
_DEAD_RETRIES_ONCE: Final = 5
"""The same where there is one look only: 6 s."""
_SHOWN: Final = 16  # links, a page's worth


def swallowed_packets(job: JobView) -> Finding | None:
    """Row 7. Nothing comes through between some ranks that wait for each other in communication.

    Rules before it have taken the jobs that advanced, and those with ranks that cannot run.
    """
    if job.entered_new:
        return None
    looks = [one for one in (job.earlier, job.latest) if one is not None]
    views = {view.rank: view for view in job.ranks}
    links = read_links(looks)
    dead = [
        link for link in links.values() if _is_dead(link) and all(views[rank].waits for rank in link.pair)
    ]
    if not dead:
        return None
    pairs = [link.pair for link in dead]
    ranks = shared_by(pairs, {view.rank: view.latest.node for view in job.ranks})
    # One place explains it if every dead link has one end there and the other elsewhere.
    is_one = len(pairs) > 1 and all((one in ranks) != (other in ranks) for one, other in pairs)
    alone = None if is_one or job.unseen else cut_off(links, pairs)
    ranks = (alone,) if alone is not None else ranks
    victims = [view for view in job.ranks if view.waits and view.rank not in ranks]
    confidence: Confidence = "low" if not is_one else "medium" if not job.paired or job.unseen else "high"
    causes = [job.cause(views[rank]) for rank in ranks]
    return Finding(
        verdict="RankCommHang",
        kind="network",
        severity="error",
        confidence=confidence,
        rule="7",
        summary=join(
            f"the network lets nothing through between ranks {shown_pairs(pairs)}: {name_ranks(ranks)}"
            f" {verb(ranks, 'is', 'are')} cut off",
            wait_phrase(calls(victims), for_whom=ranks),
        ),
        culprits=ranks,
        victims=dict.fromkeys((view.rank for view in victims), ranks),
        location=next((cause.location for cause in causes if cause.location), None),
        evidence=(
            *map(_fact, dead[:_SHOWN]),
            *(_why_alone(links, alone, pairs) if alone is not None else ()),
            *victim_evidence(job.of(ranks)),
            *pair_evidence(job),
        ),
    )


def _why_alone(links: Mapping[Pair, Link], rank: int, dead: Collection[Pair]) -> list[Evidence]:
    """What is believed of links on which nothing was sent."""
    others = [pair for pair in links if rank in pair and pair not in dead]
    peers = sorted({one for pair in others for one in pair} - {rank})
    text = f"what rank {rank} has open with {name_ranks(peers)} is idle, and runs between the same addresses"
    return [Evidence("/proc/net/tcp", text, rank)] if peers else []


def _is_dead(link: Link) -> bool:
    """Whether no answer came: over a pair the number of timeouts must not have fallen either."""
    before, *after = link.retries
    if not after:
        return before >= _DEAD_RETRIES_ONCE
    return before > 0 and after[-1] >= max(_DEAD_RETRIES, before)


def _fact(link: Link) -> Evidence:
    one, other = link.pair
    return Evidence(
        "/proc/net/tcp",
        f"ranks {one} and {other}: {link.on_their_way[-1]} bytes not acknowledged,"
        f" sent again {link.retries[-1]} times in a row without an answer",
    )
