"""Whom the lines of a log name where stacks, records and ends name nobody, or that they point at nobody.

Barriers that name who did not come, time-outs of everyone in one collective, a store that waited for clients:
each is the word of some rank. The confidence of what they name is never above low.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rankscope.diag.classify.wording import name_ranks, verb
from rankscope.diag.model import Collective, Kind, Severity, Verdict
from rankscope.diag.read import LogFact

BARRIER: Final = "monitoredBarrier"
RULE: Final = "log"
_DEFAULT: Final = "default_pg"
_STATUS: Final = frozenset({"watchdog_timeout", "watchdog_status"})
# NCCL 2.4 to 2.29: "with error 12", "with status=12", "with status=IBV_WC_RETRY_EXC_ERR(12)".
_COMPLETION: Final = re.compile(
    r"NET/IB[\w/]{0,8} ?: ?Got completion (?:from peer (\S{1,200}) )?"
    r"with (?:error |status=)(?:\w{1,40}\()?(\d{1,3})"
)
_FLUSHED: Final = "5"  # what an error before it left behind
# TCPStore, and the barrier on the store behind it: how many have joined, of how many.
_JOINED: Final = (
    re.compile(r"(?P<joined>\d{1,7})/(?P<size>\d{1,7}) clients joined"),
    re.compile(r"world_size=(?P<size>\d{1,7}), (?:worker_count|num_workers_joined)=(?P<joined>\d{1,7})"),
)


_NCCL_ID: Final = re.compile(
    r"\[(\d{1,7})\] is setting up NCCL communicator and retr(?:ie|ei)ving ncclUniqueId from \[(\d{1,7})\]"
)
"""torch's words (``ProcessGroupNCCL::broadcastUniqueNCCLID``; until 2.0 spelled the other way): ranks of the
group in brackets, the one that waits and the one that puts the id into the store."""
_IN_VAIN: Final = re.compile(r"[Tt]imeout|[Tt]imed out")


@dataclass(frozen=True, slots=True)
class Named:
    """Ranks that the log names, and why; without culprits, what it says of all.

    Attributes:
        would_change: ``""`` for what the culprits' stacks would say.
    """

    culprits: tuple[int, ...]
    summary: str
    kind: Kind = "none"
    verdict: Verdict = "RankNonCommHang"
    victims: tuple[int, ...] = ()
    severity: Severity = "warning"
    rule: str = RULE
    would_change: str = ""


def named_by_log(facts: Sequence[LogFact], world_size: int) -> Named | None:
    """Whom the lines name, ``None`` for nobody, or for everybody."""
    found = (
        _did_not_come(facts),
        _did_not_submit(facts),
        _called_another(facts),
        _gave_no_id(facts),
        _is_behind(facts),
        _lost_packets(facts, world_size),
        _all_timed_out(facts, world_size),
        _did_not_join(facts),
        _watchdog_is_stuck(facts, world_size),
    )
    return next((one for one in found if one is not None and len(one.culprits) < max(world_size, 2)), None)


def _did_not_come(facts: Sequence[LogFact]) -> Named | None:
    """Ranks that a barrier, or torch's analysis of its records, names."""
    named = [fact for fact in facts if fact.kind == "flight_recorder" and fact.rank is not None]
    if not named:
        return None
    ranks = _ranks(named)
    if not any(BARRIER in fact.text for fact in named):
        return Named(ranks, f"torch's own analysis names {name_ranks(ranks)}")
    told = {fact.text for fact in named}
    waited = [fact for fact in facts if fact.kind == "wait_timeout" and fact.text in told]
    witnesses = tuple(rank for rank in _ranks(waited) if rank not in ranks)
    text = f"{name_ranks(ranks)} did not come to monitored_barrier"
    if witnesses:
        text += f"; {name_ranks(witnesses)} waited {_longest(waited):g} s for {verb(ranks, 'it', 'them')}"
    return Named(ranks, text, victims=witnesses)


def _did_not_submit(facts: Sequence[LogFact]) -> Named | None:
    """Ranks that Horovod's stall inspector misses."""
    ranks = _ranks(stalled := [fact for fact in facts if fact.kind == "stalled"])
    if not ranks:
        return None
    text = f"{name_ranks(ranks)} did not submit tensors that others have waited for {_longest(stalled):g} s"
    return Named(ranks, text)


def _called_another(facts: Sequence[LogFact]) -> Named | None:
    """The rank that all others say called another collective than they did; without a majority, none."""
    accused: dict[int, set[int]] = defaultdict(set)
    for fact in facts:
        if fact.kind == "mismatch" and fact.rank is not None and fact.other is not None:
            accused[fact.other[0]].add(fact.rank)
    if not accused:
        return None
    most = max(len(by) for by in accused.values())
    ranks = tuple(sorted(rank for rank, by in accused.items() if len(by) == most))
    if len(ranks) != 1 or most < 2:  # noqa: PLR2004 - two ranks accuse each other
        return None
    by = tuple(sorted(accused[ranks[0]]))
    text = f"{name_ranks(by)} say that {name_ranks(ranks)} called another collective than they did"
    return Named(ranks, text, kind="desync", victims=by)


def _gave_no_id(facts: Sequence[LogFact]) -> Named | None:
    """The rank that has not put the id of a NCCL communicator into the store, by those who waited for it.

    The numbers are ranks of the group. Where what stands before the lines shows that they are not those of
    the job, nobody can be named.
    """
    sources: set[int] = set()
    waiting: set[int] = set()
    for fact in facts:
        found = _NCCL_ID.search(fact.text) if lacks_an_id(fact.text) else None
        if found is None:
            continue
        if fact.rank is not None and fact.rank != int(found[1]):
            return None
        waiting.add(int(found[1]))
        sources.add(int(found[2]))
    if len(sources) != 1 or sources & waiting:
        return None
    (source,) = sources
    witnesses = tuple(sorted(waiting))
    text = (
        f"rank {source} has not given the id of a NCCL communicator that {name_ranks(witnesses)}"
        f" {verb(witnesses, 'waits', 'wait')} for in the store: it has not come to the first collective,"
        " or has ended"
    )
    return Named((source,), text, kind="startup", victims=witnesses)


def lacks_an_id(text: str) -> bool:
    """Whether it tells that a rank waited in vain for the id of a communicator."""
    return _NCCL_ID.search(text) is not None and _IN_VAIN.search(text) is not None


def _is_behind(facts: Sequence[LogFact]) -> Named | None:
    """Ranks whose watchdog says that a collective has not ended which it has on the others."""
    ended = _ended(facts)
    if len(ended) < 3:  # noqa: PLR2004 - a majority
        return None
    newest = max(ended.values())
    ranks = tuple(sorted(rank for rank, number in ended.items() if number < newest))
    if not ranks or 2 * len(ranks) >= len(ended):
        return None
    last = min(ended[rank] for rank in ranks)
    text = (
        f"{name_ranks(ranks)} {verb(ranks, 'is', 'are')} still in collective {last + 1},"
        f" which has ended on {name_ranks(set(ended) - set(ranks))}"
    )
    return Named(ranks, text, verdict="RankCommHang", victims=tuple(sorted(set(ended) - set(ranks))))


def _ended(facts: Sequence[LogFact]) -> Mapping[int, int]:
    """The last collective of the default group that has ended, of each rank that is in one after it."""
    ended: dict[int, int] = {}
    for fact in facts:
        if fact.kind in _STATUS and fact.rank is not None and fact.record is not None:
            for group in fact.record.groups:
                if 0 <= group.completed < group.enqueued and group.description in {"", _DEFAULT}:
                    ended[fact.rank] = group.completed
    return ended


def _lost_packets(facts: Sequence[LogFact], world_size: int) -> Named | None:
    """Ranks of which NCCL says that an InfiniBand connection failed.

    Only beside a collective that ran out of time: what else brought the job down is not known here.
    """
    found = [
        (fact, said) for fact in facts if (said := _COMPLETION.search(fact.text)) and said[2] != _FLUSHED
    ]
    late = _timed_out(facts)
    if not found or not late:
        return None
    ranks = _ranks(fact for fact, _ in found)
    if 2 * len(ranks) >= max(world_size, 2):
        ranks = ()  # both ends of every connection say it: no rank stands out
    peers = ", ".join(dict.fromkeys(said[1].split("<")[0] for _, said in found if said[1]))
    whose = f"{name_ranks(ranks)} {verb(ranks, 'says', 'say')}" if ranks else "NCCL says"
    text = f"{whose} that InfiniBand failed (status {found[0][1][2]})" + f" towards {peers}" * bool(peers)
    victims = tuple(rank for rank in late if rank not in ranks)
    text += f"; {name_ranks(late)} waited {_longest(facts):g} s in {next(iter(late.values())).op}"
    return Named(
        ranks,
        text,
        kind="network",
        verdict="RankCommHang",
        victims=victims,
        severity="error",
        would_change="counters of the links: of two ends of a connection either may be the broken one",
    )


def _all_timed_out(facts: Sequence[LogFact], world_size: int) -> Named | None:
    """Row 7. Everyone ran out of time in one collective: the wait was long, and nobody is missing."""
    late = _timed_out(facts)
    if world_size < 2 or len(late) < world_size:  # noqa: PLR2004 - nobody waits alone
        return None
    if len({(one.seq, one.op, one.input_sizes) for one in late.values()}) > 1 or not _share_a_group(facts):
        return None
    one = next(iter(late.values()))
    which = f"{one.op}, collective {one.seq}" if one.seq else one.op
    return Named(
        (),
        f"{name_ranks(late)} entered {which} and none left it for {_longest(facts):g} s;"
        " of those that the log names no rank stands out",
        kind="network",
        verdict="RankCommHang",
        victims=tuple(late),
        severity="error",
        rule="7",
        would_change="numbers that show a member missing, or native frames and counters in which one differs",
    )


def _timed_out(facts: Sequence[LogFact]) -> dict[int, Collective]:
    """The oldest collective that ran out of time on each rank."""
    late: dict[int, Collective] = {}
    for fact in facts:
        if fact.seconds is not None and fact.kind == "watchdog_timeout" and fact.rank is not None:
            for entry in fact.record.entries if fact.record else ():
                if fact.rank not in late or entry.seq < late[fact.rank].seq:
                    late[fact.rank] = entry
    return dict(sorted(late.items()))


def _share_a_group(facts: Sequence[LogFact]) -> bool:
    """Whether the groups that ran out of time, where they are named, are one."""
    named = {
        group.name
        for fact in facts
        if fact.kind == "watchdog_timeout" and fact.record is not None
        for group in fact.record.groups
    }
    return len(named) <= 1


def _did_not_join(facts: Sequence[LogFact]) -> Named | None:
    """A start-up in which some did not join; who, only where all the others say that they did."""
    said = [
        (fact, found)
        for fact in facts
        if fact.kind == "wait_timeout"
        if (found := next((one for form in _JOINED if (one := form.search(fact.text))), None))
    ]
    if not said:
        return None
    joined, size = max((int(found["joined"]), int(found["size"])) for _, found in said)
    missing = size - joined
    if missing <= 0:
        return None
    waited = _ranks(fact for fact, _ in said)
    away = tuple(sorted(set(range(size)).difference(waited))) if size <= joined + len(waited) else ()
    culprits = away if len(away) == missing else ()
    which = name_ranks(culprits) if culprits else f"{missing} of them"
    text = f"{joined} of {size} ranks joined in {_longest(fact for fact, _ in said):g} s: {which} did not"
    return Named(
        culprits,
        text if culprits else f"{text}, and the log does not tell which",
        kind="startup",
        victims=waited,
        rule="11",
        would_change="" if culprits else "a log or a stack of the ranks that say nothing of it",
    )


def _watchdog_is_stuck(facts: Sequence[LogFact], world_size: int) -> Named | None:
    """Few ranks whose watchdog cannot run: a CUDA call, or a thread that holds the GIL, keeps it.

    Where it stands on most, the hint is as true of each of them, and whoever is well is none the better.
    """
    ranks = _ranks(fact for fact in facts if fact.kind == "watchdog_stuck")
    if not ranks or 2 * len(ranks) >= max(world_size, 3):
        return None
    return Named(ranks, stuck_watchdogs(facts), kind="native_gil")


def stuck_watchdogs(facts: Sequence[LogFact]) -> str:
    """Whose watchdog stood still, ``""`` for nobody's."""
    stuck = [fact for fact in facts if fact.kind == "watchdog_stuck" and fact.rank is not None]
    if not stuck:
        return ""
    of = f"the NCCL watchdog of {name_ranks(_ranks(stuck))}"
    return f"{of} got stuck for {_longest(stuck):g} s: in a call of CUDA or NCCL, or for want of the GIL"


def _longest(facts: Iterable[LogFact]) -> float:
    return max((round(fact.seconds or 0.0) for fact in facts), default=0)


def _ranks(facts: Iterable[LogFact]) -> tuple[int, ...]:
    return tuple(sorted({fact.rank for fact in facts if fact.rank is not None}))
