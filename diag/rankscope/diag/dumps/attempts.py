"""Several attempts in one log: what stands before the last restart of the workers is history.

The launcher writes a line when it starts them again (``read.log_failures.restart_fact``). The ranks before it
were other processes, so neither their ends nor their stacks say anything of the newest ones. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rankscope.diag.dumps.pieces import Source
from rankscope.diag.read import LogFact

_ENDS: Final = frozenset({"failure", "root_failure", "raised"})


def newest_attempt(source: Source, notes: list[str]) -> Source:
    """The input without what was written before its workers were last started again.

    How earlier attempts ended is kept as history (``earlier``).
    """
    contents = source.contents
    marks = [fact for fact in contents.facts if fact.kind == "restarted"]
    if not marks:
        return source
    last = max(fact.line for fact in marks)
    before = [fact for fact in contents.facts if fact.line < last and fact.kind != "restarted"]
    dumps = tuple(dump for dump in contents.dumps if dump.line > last)
    if before or len(dumps) < len(contents.dumps):
        notes.append(
            f"{source.shown}: workers were started again at line {last}: what is before it is history"
        )
    facts = (
        *(_as_history(fact) for fact in before if fact.kind in _ENDS),
        *(fact for fact in contents.facts if fact.line > last and fact.kind != "restarted"),
    )
    return replace(source, contents=replace(contents, dumps=dumps, facts=facts))


def _as_history(fact: LogFact) -> LogFact:
    return replace(fact, kind="earlier", text=f"in an earlier attempt: {fact.text}", exit=None, pid=0)
