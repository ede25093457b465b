"""What would change the mind of a finding: for each rule one short sentence about the very ranks it names.

A verdict is read from what was seen in a few seconds; who acts on it should know what it stands on. Source:
DIAGNOSIS.md, "Naming the culprit": the evidence of each row, turned round. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rankscope.diag.classify.blame import Finding
from rankscope.diag.classify.view import JobView
from rankscope.diag.classify.wording import name_ranks, verb

_Doubt = Callable[[JobView, Finding], str]


def would_change(job: JobView, found: Finding) -> str:
    """The sentence for a finding, ``""`` where nothing could change it."""
    if found.verdict == "Unknown":
        return _missing(job, found)
    if found.verdict == "Healthy":
        return "" if found.rule == "1" else "a later look in which nothing has moved since this one"
    if found.rule == "S2":
        return "looks at which nothing is held up on these links, or steps as quick as before"
    if found.rule == "S3":
        return "one rank that spends its time elsewhere: then the others may be waiting for it"
    if found.verdict.endswith("Slow"):
        return f"as many collectives again in which {_who(found)} {_verb(found, 'is', 'are')} not the last"
    return _DOUBTS.get(found.rule, _moves)(job, found)


def _missing(job: JobView, found: Finding) -> str:
    """An answer that is not known changes with what is missing for it."""
    if job.unseen:
        stack = "a stack" if any(view.seen for view in job.ranks) else "a stack or a flight record"
        return f"{stack} of {name_ranks(job.unseen)}"
    if not job.paired and not job.by_log:
        return "a second look some seconds later: one shows no movement"
    if found.culprits:
        return f"{_who(found)} still there, without working, in a later look"
    if not job.waits.known:
        return "flight records or a progress page: they number the collectives that ranks wait in"
    return "a later look in which the same ranks stand where they stand now"


def _ended(_job: JobView, found: Finding) -> str:
    if not found.culprits:
        return "an error that one of the ranks reported before the signal came"
    return f"proof that another rank ended, or lost its connection, before {_who(found)} did"


def _runs_again(_job: JobView, found: Finding) -> str:
    if not found.culprits:
        return "a rank that runs: its process state is another than the rest's"
    return f"{_who(found)} running again: another process state, or any counter that moves"


def _other_majority(_job: JobView, found: Finding) -> str:
    if found.is_tie:
        return "the program: which of the two calls comes next there, both sides are as likely"
    return (
        f"the program: should it make the call of {_who(found)} there, the others are the ones that strayed"
    )


def _enters(_job: JobView, found: Finding) -> str:
    return f"{_who(found)} entering what the others wait in, or waiting in something unseen"


def _a_wait_ends(_job: JobView, _found: Finding) -> str:
    return "any of the waits in the circle ending by itself"


def _finishes(_job: JobView, found: Finding) -> str:
    return f"newer numbers in which {_who(found)} {_verb(found, 'has', 'have')} ended it as well"


def _one_stands_out(_job: JobView, found: Finding) -> str:
    if found.culprits:
        return f"an answer on any of the connections of {_who(found)} that have none"
    return "numbers that show a member missing, or native frames and counters in which one rank differs"


def _by_stacks(_job: JobView, found: Finding) -> str:
    return f"sequence numbers that show {_who(found)} inside of it, or nobody in need of {_them(found)}"


def _other_groups(_job: JobView, found: Finding) -> str:
    return f"sequence numbers: {_who(found)} may be in a group of {_verb(found, 'its', 'their')} own by right"


def _one_leaves(job: JobView, _found: Finding) -> str:
    if job.latest.world_size == 1:
        return "any sign that the rank goes on by itself"
    return "one rank that leaves the place or stands elsewhere: then the others may wait for it"


def _arrives(_job: JobView, found: Finding) -> str:
    if not found.culprits:
        return "one rank that is seen elsewhere, or the key that is waited for"
    return f"{_who(found)} arriving, or already past what the others wait for"


def _moves(_job: JobView, found: Finding) -> str:
    if not found.culprits:
        return "a later look in which a rank has moved"
    return f"{_who(found)} moving on by {_verb(found, 'itself', 'themselves')}"


_DOUBTS: Final[dict[str, _Doubt]] = {
    "1": _ended,
    "2": _runs_again,
    "3": _other_majority,
    "4": _enters,
    "5": _a_wait_ends,
    "6": _finishes,
    "7": _one_stands_out,
    "8": _by_stacks,
    "9": _other_groups,
    "10": _one_leaves,
    "11": _arrives,
}


def _who(found: Finding) -> str:
    return name_ranks(found.culprits) if found.culprits else "a rank"


def _verb(found: Finding, one: str, many: str) -> str:
    ranks: Sequence[int] = found.culprits or (0,)
    return verb(ranks, one, many)


def _them(found: Finding) -> str:
    return _verb(found, "it", "them")
