"""Ranks of tasks that srun names: a task is a rank only where each rank is a task of its own.

That is so where the tasks that ended first are just the ranks of which no stack was taken, and no agent
started several ranks in a task. Those that end behind them are ended by srun. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rankscope.diag.read import LogFact


def tasks_placed(said: Sequence[tuple[int, LogFact]], seen: Collection[int]) -> list[tuple[int, LogFact]]:
    """The facts, the tasks that ended first with their ranks where these can be told.

    Args:
        said: facts with the index of their input.
        seen: ranks of which there are stacks.
    """
    first: dict[int, int] = {}  # by input the line of its first
    for at, fact in said:
        if fact.kind == "task_ended":
            first[at] = min(first.get(at, fact.line), fact.line)
    if not first or any(fact.local_rank is not None or fact.kind == "signalled" for _, fact in said):
        return list(said)
    tasks = {fact.task for at, fact in said if _is_first(at, fact, first) and fact.task is not None}
    together = tasks | set(seen)
    if not seen or tasks & set(seen) or together != set(range(len(together))):
        return list(said)
    return [
        (at, replace(fact, rank=fact.task) if _is_first(at, fact, first) else fact)
        for at, fact in said
        if fact.kind != "task_ended" or _is_first(at, fact, first)
    ]


def _is_first(at: int, fact: LogFact, first: dict[int, int]) -> bool:
    return fact.kind == "task_ended" and fact.line == first.get(at)
