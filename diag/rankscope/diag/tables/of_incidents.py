"""Tables made of stored incidents' diagnoses: incidents, ranks, stacks, evidence. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Final

from rankscope.diag.merge.groups import split_stacks
from rankscope.diag.model import Decision, Diagnosis, Evidence
from rankscope.diag.ranks import unfold_ranks
from rankscope.diag.store.events import Event
from rankscope.diag.tables.declare import (
    Row,
    Rows,
    Table,
    integer,
    integers,
    maybe_integer,
    moment,
    number,
    seconds,
    text,
    texts,
    truth,
)
from rankscope.diag.tables.looks import BriefRank
from rankscope.diag.tables.told import NOTHING, Told

INCIDENTS = Table(
    "incidents",
    "an incident: a suspicion or failure whose diagnosis was stored, or published",
    "`diagnosis.json`, `decision.json`, and the events whose subject it is: all incidents of the folder, as "
    "`diag analyze JOB --all --json` shows them. Suspicions that were cleared have no diagnosis and are in "
    "`events()` only (`suspected`, `cleared`)",
    (
        text("incident", "id"),
        moment("time", "of the diagnosis"),
        text("verdict", "`RankNonCommHang`, ..., `Unknown` ([cli](cli.md#the-words-of-a-verdict))"),
        text("kind", "`data_loading`, `lock`, ..., `none`"),
        text("severity", "`error`, `warning`, `info`, `none`"),
        text("confidence", "`high`, `medium`, `low`"),
        integers("culprits", "ranks to blame"),
        texts("nodes", "nodes of the culprits"),
        text("summary", "the verdict in a sentence"),
        text("rule", "row of [the rules](rules.md) that decided"),
        text("would_change", "what would change the verdict, empty when nothing would"),
        integer("world_size", "ranks of the job"),
        text("observed", "ranks that were observed, folded: `0-3,6`"),
        maybe_integer("location_rank", "rank whose line it is"),
        text("function", "function of the place that is named"),
        text("file", "its file"),
        maybe_integer("line", "its line"),
        text("source", "the text of that line"),
        moment("suspected", "when a limit was passed first (event `suspected`)"),
        text("suspicion", "whose limit: `quiet`, `busy`, `stage`, ... (`clock` of that event)"),
        moment("confirmed", "when it was published (event `incident.confirmed`)"),
        seconds("no_progress", "without progress when it was published"),
        moment("slow", "when it was told to be slow (event `slow`)"),
        maybe_integer("since_step", "step since which its culprits are slow, about, where that is known"),
        maybe_integer("pace_since_step", "first step that took longer than before, whoever is slow"),
        seconds("step_seconds", "that a step takes now"),
        seconds("usual_step_seconds", "that a step took before"),
        moment(
            "recovered", "when it went away by itself (event `incident.recovered`): published, and no hang"
        ),
        seconds("recovered_after", "without progress until then"),
        text("action", "what was decided last: `log`, `notify`, `hold`, `restart`, `isolate`, `fail`"),
        text("decision", "the reason, a sentence"),
        moment("decided", "when"),
        maybe_integer("exit_code", "the agent's, where the decision names one"),
        truth("is_stored", "whether its diagnosis can be read; if not, the row is what the events say"),
    ),
)
RANKS = Table(
    "ranks",
    "a rank in an incident",
    "`ranks` of `diagnosis.json` (up to `reason`), and of the newest look of the incident what its page and "
    "its process said",
    (
        text("incident", "id"),
        moment("time", "of the diagnosis"),
        integer("rank", "global rank"),
        text("node", "its node"),
        integer("pid", "process, 0 when unknown (dumps)"),
        text("state", "`running`, `suspected`, `hung`, `waiting`, `slow`, `exited`, `unobserved`"),
        text("role", "`culprit`, `victim`, `bystander`"),
        text("class", "`RankCommHang`, ...; `<NA>` for a rank that is no culprit"),
        integers("waits_for", "ranks it waits for: `explode` gives the edges of the wait-for graph"),
        text("position", "where it stands, in short"),
        truth("observed", "whether its stacks were obtained"),
        text("reason", "why not, or what is missing"),
        text("source", "tool that gave the stacks"),
        maybe_integer("step", "optimizer steps since the worker started"),
        maybe_integer("user_step", "number the script gave its last step"),
        text("stage", "stage the script says it is in"),
        seconds("since_step", "since its last step, when it was looked at"),
        seconds("since_beat", "since its probe's last beat"),
        maybe_integer("batches", "that data loaders have given to the script, at least"),
        text("process_state", "the kernel's letter of the main thread: R, S, D, T, t, Z, X"),
        text("wchan", "kernel function that the main thread sleeps in"),
        number(
            "communication_share",
            "share of many looks at a slow job in which it was in communication, as `evidence()` says",
            "0 to 1",
        ),
        maybe_integer("ended_with", "exit code of a rank that has ended"),
        text("last_words", "last line of the error that it reported"),
        integer("threads", "threads whose stacks are stored, those of child processes included"),
        integer("children", "child processes"),
    ),
)
STACKS = Table(
    "stacks",
    "a stack, and all threads that show it",
    "`stacks` of `diagnosis.json`",
    (
        text("incident", "id"),
        moment("time", "of the diagnosis"),
        integer("group", "place in the diagnosis: 0 is the rarest of the stacks that were compared"),
        truth("is_compared", "whether it is one of the deciding threads, one a rank, or of all others"),
        integer("count", "threads that show it"),
        text("ranks", "their ranks, folded: `0-3,6`"),
        integers("rank_list", "the same as numbers; empty where that text is damaged, which is said"),
        texts("threads", "rank:thread id"),
        text("leaf", "innermost frame, `function (file:line)`"),
        integer("depth", "frames"),
        texts("stack", "all frames, leaf first"),
    ),
)
EVIDENCE = Table(
    "evidence",
    "an observed fact behind a diagnosis",
    "`evidence` of `diagnosis.json`",
    (
        text("incident", "id"),
        moment("time", "of the diagnosis"),
        integer("number", "place in the diagnosis, from 0"),
        maybe_integer("rank", "rank it is about"),
        text("source", "what saw it: `py-spy`, `flight record`, `page`, ..."),
        text("fact", "in words, with figures"),
    ),
)
_DIAGNOSED: Final = (
    "verdict",
    "kind",
    "severity",
    "confidence",
    "culprits",
    "nodes",
    "summary",
    "rule",
    "would_change",
    "world_size",
    "observed",
)
_diagnosed = operator.attrgetter(*_DIAGNOSED)
_SHARE: Final = re.compile(r"in communication in (\d+) % of \d+ looks")
"""The words of ``classify.pace.share_evidence``."""


def incident_rows(
    diagnoses: Mapping[str, Diagnosis], decisions: Mapping[str, Decision], told: Mapping[str, Told]
) -> list[Row]:
    """The rows of ``incidents()``, oldest first.

    Args:
        diagnoses: stored ones by incident; decisions likewise.
        decisions: stored ones by incident.
        told: what events tell of each.
    """
    lost = {name for name, one in told.items() if one.published is not None} - set(diagnoses)
    rows = list[Row]()
    for incident in sorted({*diagnoses, *lost}):
        tells = told.get(incident, NOTHING)
        diagnosis = diagnoses.get(incident)
        head = _of_diagnosis(diagnosis) if diagnosis is not None else _of_event(tells.published)
        since = diagnosis.since_step if diagnosis is not None else tells.whole("slow", "since_step")
        rows.append((incident, *head, *_of_events(tells, since), *_decided(decisions.get(incident), tells)))
    return [(*row, row[0] in diagnoses) for row in rows]


def _of_diagnosis(diagnosis: Diagnosis) -> Row:
    where = diagnosis.location
    place = (where.rank, where.function, where.file, where.line, where.source) if where else (None,) * 5
    return (diagnosis.time, *_diagnosed(diagnosis), *place)


def _of_event(event: Event | None) -> Row:
    """What an event says of a diagnosis that is not stored."""
    data: Mapping[str, object] = event.data if event is not None else {}
    words = {name: value for name, value in data.items() if isinstance(value, str)}
    culprits = data.get("culprits")
    ranks = tuple(one for one in culprits if isinstance(one, int)) if isinstance(culprits, list) else ()
    known = {**words, "culprits": ranks, "nodes": (), "world_size": 0}
    return (event.time if event else None, *map(known.get, _DIAGNOSED), *(None,) * 5)


def _of_events(told: Told, since_step: int | None) -> Row:
    return (
        told.time("suspected"),
        told.text("suspected", "clock"),
        told.time("incident.confirmed"),
        told.number("incident.confirmed", "seconds"),
        told.time("slow"),
        since_step,
        told.whole("slow", "pace_since_step"),
        told.number("slow", "step_seconds"),
        told.number("slow", "usual_step_seconds"),
        told.time("incident.recovered"),
        told.number("incident.recovered", "seconds"),
    )


def _decided(decision: Decision | None, told: Told) -> Row:
    if decision is not None:
        return decision.action, decision.reason, decision.time, decision.exit_code
    return (
        told.text("decision", "action"),
        told.text("decision", "reason"),
        told.time("decision"),
        told.whole("decision", "exit_code"),
    )


def stack_rows(incident: str, diagnosis: Diagnosis) -> Rows:
    """The rows of ``stacks()`` of one incident."""
    compared = set(map(id, split_stacks(diagnosis.stacks)[0]))
    for place, group in enumerate(diagnosis.stacks):
        stack = group.stack
        yield (
            incident,
            diagnosis.time,
            place,
            id(group) in compared,
            group.count,
            group.ranks,
            _ranks(group.ranks),
            group.threads,
            stack[0] if stack else None,
            len(stack),
            stack,
        )


def _ranks(folded: str) -> tuple[int, ...]:
    try:
        return unfold_ranks(folded)
    except ValueError:
        return ()


def evidence_rows(incident: str, diagnosis: Diagnosis) -> Rows:
    """The rows of ``evidence()`` of one incident."""
    for place, one in enumerate(diagnosis.evidence):
        yield incident, diagnosis.time, place, one.rank, one.source, one.fact


def rank_rows(incident: str, diagnosis: Diagnosis, look: Mapping[int, BriefRank]) -> Rows:
    """The rows of ``ranks()`` of one incident.

    Args:
        incident: its id.
        diagnosis: what was found.
        look: the ranks in its newest look, those that can be read.
    """
    shares = communication_shares(diagnosis.evidence)
    for one in diagnosis.ranks:
        yield (
            incident,
            diagnosis.time,
            one.rank,
            one.node,
            one.pid,
            one.state,
            one.role,
            one.rank_class,
            one.waits_for,
            one.position,
            one.observed,
            one.reason,
            *_seen(look.get(one.rank, _UNSEEN), shares.get(one.rank)),
        )


_UNSEEN: Final = BriefRank(rank=-1)


def _seen(rank: BriefRank, share: float | None) -> Row:
    page, facts, end = rank.progress, rank.facts, rank.exit
    of_page = (
        (
            page.step,
            page.user_step,
            page.stage,
            page.seconds_since_step,
            page.seconds_since_beat,
            page.batches,
        )
        if page is not None
        else (None,) * 6
    )
    threads = len(rank.threads) + sum(len(child.threads) for child in rank.children)
    return (
        rank.source,
        *of_page,
        facts.state if facts is not None else None,
        facts.wchan if facts is not None else None,
        share,
        end.code if end is not None else None,
        end.message if end is not None else None,
        threads,
        len(rank.children),
    )


def communication_shares(evidence: Sequence[Evidence]) -> dict[int, float]:
    """The share of looks in communication by rank, as the evidence has it in words: 0 to 1."""
    found: dict[int, float] = {}
    for one in evidence:
        match = _SHARE.fullmatch(one.fact)
        if match is not None and one.rank is not None:
            found[one.rank] = int(match[1]) / 100
    return found
