"""What torch's own words in logs add to a diagnosis: lines of evidence, and a culprit where there is none.

A barrier that names who did not come, a debug mode that names who called something else, a watchdog that
stands still: each is the word of one rank, without a stack, so the confidence is never above low. A verdict
that stacks, records or ends gave stays, unless that end is only what the missing rank brought about.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from rankscope.diag.classify.log_named import BARRIER, RULE, Named, lacks_an_id, named_by_log, stuck_watchdogs
from rankscope.diag.classify.wording import join, name_ranks, verb
from rankscope.diag.model import Diagnosis, Evidence, RankFinding
from rankscope.diag.ranks import fold_ranks
from rankscope.diag.read import FactKind, LogFact
from rankscope.diag.read.vain_waits import waited_in_vain

_SOURCE: Final = "log"
_MOST_LINES: Final = 16  # of evidence; a job of 1,000 ranks says the same 1,000 times
_LONGEST: Final = 240  # characters of a line
_WENT_ON: Final = ": no end, steps are logged behind it"
_PAST: Final = frozenset({"handled", "earlier"})
_SIGTERM: Final = -15
_RAN: Final = re.compile(r"ran for \d{1,15} milliseconds")
_RAN_FOR: Final = "ran for milliseconds"
_ACCUSED: Final = frozenset({"flight_recorder", "stalled"})
"""Kinds of which the rank is not the one that says it."""
_IN_EXITS: Final = frozenset({"failure", "root_failure", "signalled", "raised", "crashed", "task_ended"})
"""Kinds whose content the snapshots have as ends; each counts as used."""
_WORDS: Final[dict[FactKind, str]] = {
    "raised": "exceptions of ranks that have stacks",
    "left": "warnings of programs that ended",
    "child_crashed": "crashes of child processes",
    "cancelled": "lines of a job that was ended from outside",
    "oom_kill": "lines about processes that were killed for their memory",
    "task_ended": "tasks that srun names",
    "handled": "exceptions that were handled",
    "interrupted": "interruptions",
    "earlier": "ends of earlier attempts",
    "watchdog_timeout": "lines of NCCL's watchdog",
    "watchdog_status": "lines of NCCL's watchdog",
    "watchdog_stuck": "lines of a watchdog that got stuck",
    "stalled": "ranks that a stall inspector misses",
    "mismatch": "lines about different collectives",
    "connection_closed": "lines about closed connections",
    "wait_timeout": "lines about waits in vain",
    "flight_recorder": "ranks that torch's own analysis names",
}


def with_log_facts(diagnosis: Diagnosis, facts: Sequence[LogFact]) -> tuple[Diagnosis, dict[str, int]]:
    """The diagnosis with what log lines say.

    Args:
        diagnosis: what snapshots gave.
        facts: what log lines say, in the order of the inputs.

    Returns:
        The diagnosis, and what of the facts is neither in it nor in its evidence, with how often.
    """
    living = {row.rank for row in diagnosis.ranks if row.observed and row.state != "exited"}
    raised = [fact for fact in facts if fact.kind == "raised" and fact.rank in living]
    tasks = [fact for fact in facts if fact.kind == "task_ended" and fact.rank is None]
    lines, left = _evidence([*(fact for fact in facts if fact.kind not in _IN_EXITS), *raised, *tasks])
    named = named_by_log(facts, diagnosis.world_size) if _may_name(diagnosis, facts) else None
    told = _as_named(diagnosis, named) if named is not None else _interrupted(diagnosis, facts)
    told = _left_by_itself(_before_the_exit(told, raised), facts)
    if told.verdict == "Unknown":
        told = _ended_tasks(told, tasks) if tasks else _cancelled(told, facts)
    vain = waited_in_vain(facts)
    summary = join(
        told.summary,
        stuck_watchdogs(facts) if told.verdict == "Unknown" else "",
        f"{name_ranks(vain)} ended as a consequence" if vain else "",
    )
    evidence = (*told.evidence, *_consequences(vain), *lines)
    return msgspec.structs.replace(told, summary=summary, evidence=evidence), left


def _evidence(facts: Iterable[LogFact]) -> tuple[list[Evidence], dict[str, int]]:
    """A line for each sentence, with the ranks that it is of; how many of which kind are left out."""
    said: dict[tuple[FactKind, str], list[LogFact]] = defaultdict(list)
    for fact in facts:
        said[fact.kind, _folding(fact)].append(fact)
    others = {text for kind, text in said if kind != "flight_recorder"}
    keys = [key for key in said if key[0] != "flight_recorder" or key[1] not in others]
    keys.sort(key=lambda key: key[0] in _PAST)
    left: Counter[str] = Counter()
    for key in keys[_MOST_LINES:]:
        left[f"{_WORDS.get(key[0], key[0])}, which are not shown"] += len(said[key])
    return [_line(said[key]) for key in keys[:_MOST_LINES]], dict(left)


def _folding(fact: LogFact) -> str:
    """What lines of ranks that say the same have in common: each waited some milliseconds more or less."""
    text = fact.text.strip()[:_LONGEST]
    return _RAN.sub(_RAN_FOR, text) if fact.seconds is not None else text


def _line(facts: Sequence[LogFact]) -> Evidence:
    """The first one's words, and the ranks of all that say them."""
    first = facts[0]
    ranks = sorted({one.rank for one in facts if one.rank is not None and one.kind not in _ACCUSED})
    text = first.text.strip()[:_LONGEST]
    if first.kind == "handled":
        text = f"{text[: _LONGEST - len(_WENT_ON)]}{_WENT_ON}"
    waited = sorted({round(one.seconds * 1000) for one in facts if one.seconds is not None})
    if len(waited) > 1:
        text = _RAN.sub(f"ran for {waited[0]} to {waited[-1]} milliseconds", text)
    if len(ranks) == 1:
        return Evidence(_SOURCE, text, ranks[0])
    return Evidence(_SOURCE, f"{name_ranks(ranks)}: {text}" if ranks else text)


def _consequences(vain: Mapping[int, str]) -> list[Evidence]:
    """A line for each reason for which ranks ended that is no cause of a hang."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, reason in sorted(vain.items()):
        ranks[reason].append(rank)
    return [
        Evidence(
            _SOURCE,
            f"the end of {name_ranks(own)} is a consequence: {reason}",
            own[0] if len(own) == 1 else None,
        )
        for reason, own in ranks.items()
    ]


def _may_name(diagnosis: Diagnosis, facts: Sequence[LogFact]) -> bool:
    """Whether nobody is named, or only ranks that ended because a barrier told them of others."""
    if diagnosis.verdict == "Unknown":
        return True
    if diagnosis.verdict != "Exited":
        return False
    ends: dict[int, str] = {
        fact.rank: fact.text for fact in facts if fact.rank is not None and fact.kind == "raised"
    }
    if diagnosis.culprits and all(BARRIER in ends.get(rank, "") for rank in diagnosis.culprits):
        return True
    return bool(ends) and all(map(lacks_an_id, (*ends.values(), *_ends_without_words(facts, ends))))


def _ends_without_words(facts: Iterable[LogFact], ends: Mapping[int, str]) -> list[str]:
    """What launchers say of failures that are told by no exception; a SIGTERM is no failure."""
    return [
        fact.text
        for fact in facts
        if fact.kind in ("failure", "root_failure")
        and fact.rank not in ends
        and not (fact.exit is not None and fact.exit.code == _SIGTERM)
    ]


def _interrupted(diagnosis: Diagnosis, facts: Sequence[LogFact]) -> Diagnosis:
    """What was judged by tracebacks of an interruption: one moment, as the user chose it."""
    ranks = _ranks(fact for fact in facts if fact.kind == "interrupted")
    if not ranks or all(evidence.source != "traceback" for evidence in diagnosis.evidence):
        return diagnosis
    text = f"{name_ranks(ranks)} {verb(ranks, 'was', 'were')} interrupted from outside: judged by where"
    return msgspec.structs.replace(
        diagnosis,
        confidence=diagnosis.confidence if diagnosis.verdict == "Exited" else "low",
        summary=f"{diagnosis.summary}; {text} {verb(ranks, 'it', 'they')} stood then",
    )


def _before_the_exit(diagnosis: Diagnosis, raised: Sequence[LogFact]) -> Diagnosis:
    """Who stands in the end of the program behind an exception stands there because of it."""
    if diagnosis.kind != "exit" or not raised:
        return diagnosis
    ranks = _ranks(raised)
    told = f"before, {name_ranks(ranks)} raised {raised[0].text[:_LONGEST]}"
    changed = msgspec.structs.replace(diagnosis, summary=f"{diagnosis.summary}; {told}")
    if diagnosis.verdict != "Unknown" or len(ranks) < sum(row.observed for row in diagnosis.ranks):
        return changed
    return msgspec.structs.replace(changed, verdict="Exited", severity="error")


def _ended_tasks(diagnosis: Diagnosis, tasks: Sequence[LogFact]) -> Diagnosis:
    """What srun says of tasks of which nobody knows which ranks they are: who ended first is to blame."""
    first = [fact for fact in tasks if fact.line == tasks[0].line]
    numbers = sorted({fact.task for fact in first if fact.task is not None})
    which = f"task{'s' * (len(numbers) > 1)} {fold_ranks(numbers)} on {first[0].node}"
    text = f"srun says of {which}: {first[0].text.rpartition(': ')[2]}; which ranks that are is not told"
    return msgspec.structs.replace(
        diagnosis,
        verdict="Exited",
        kind="dead",
        severity="error",
        confidence="low",
        nodes=(first[0].node,),
        summary=f"{diagnosis.summary}; {text}",
        rule=RULE,
    )


def _cancelled(diagnosis: Diagnosis, facts: Sequence[LogFact]) -> Diagnosis:
    """A job of which no stack was taken, and which somebody outside ended: that is nobody's fault."""
    lines = [fact.text for fact in facts if fact.kind == "cancelled"]
    has_failed = any(fact.kind in _IN_EXITS and fact.kind != "signalled" for fact in facts)
    if not lines or diagnosis.observed or has_failed:
        return diagnosis
    return msgspec.structs.replace(
        diagnosis,
        verdict="Exited",
        kind="dead",
        severity="info",
        confidence="medium",
        summary=f"the job was ended from outside: {lines[0][:_LONGEST].strip()}; whether it stood still "
        "before is not told",
        rule=RULE,
    )


def _left_by_itself(diagnosis: Diagnosis, facts: Sequence[LogFact]) -> Diagnosis:
    """Who wrote torch's warning came to the end of its program: nothing killed it, whatever its exit code."""
    left = _ranks(fact for fact in facts if fact.kind == "left")
    if diagnosis.verdict != "Exited" or diagnosis.kind != "dead" or not diagnosis.culprits:
        return diagnosis
    failed = _ranks(fact for fact in facts if fact.kind in _IN_EXITS)
    if not set(diagnosis.culprits) <= set(left) - set(failed):
        return diagnosis
    ranks = diagnosis.culprits
    text = f"{name_ranks(ranks)} came to the end of {verb(ranks, 'its program', 'their programs')}"
    return msgspec.structs.replace(
        diagnosis, kind="exit", severity="warning", summary=f"{diagnosis.summary}; {text}"
    )


def _ranks(facts: Iterable[LogFact]) -> tuple[int, ...]:
    return tuple(sorted({fact.rank for fact in facts if fact.rank is not None}))


def _as_named(diagnosis: Diagnosis, named: Named) -> Diagnosis:
    return msgspec.structs.replace(
        diagnosis,
        verdict=named.verdict,
        kind=named.kind,
        severity=named.severity,
        confidence="low",
        culprits=named.culprits,
        summary=f"{named.summary}; by the log alone",
        location=None,
        rule=named.rule,
        would_change=named.would_change or f"a stack or a flight record of {name_ranks(named.culprits)}",
        ranks=tuple(_row(row, named) for row in diagnosis.ranks),
    )


def _row(row: RankFinding, named: Named) -> RankFinding:
    if row.rank in named.culprits:
        rank_class = "RankCommHang" if named.verdict == "RankCommHang" else "RankNonCommHang"
        return msgspec.structs.replace(row, role="culprit", rank_class=rank_class)
    if row.rank in named.victims:
        return msgspec.structs.replace(row, role="victim", waits_for=named.culprits)
    return row
