"""Ranks that no variable names: the children of ``mp.spawn``, and scripts that are told by argument.

They are known by a process group of their own, or by torch's ``_wrap`` on their stack. Their numbers are
read from the variables on their stacks (py-spy, without stopping them), else from ``LOCAL_RANK``, else they
are numbered in the order of their start; the answer says which. A number holds only where all workers of a
launch have one and no two the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rankscope.diag.capture.tool import find_tool, run_tool
from rankscope.diag.discover.candidates import Nameless, Table, ancestors, is_fork_server
from rankscope.diag.discover.found import FoundJob, FoundRank
from rankscope.diag.discover.stack_variables import StackRank, rank_on_stack
from rankscope.diag.model import ThreadStack
from rankscope.diag.read.pyspy import parse_pyspy_json

_LOOK: Final = ("dump", "--json", "--locals", "--nonblocking")
_MOST_ASKED: Final = 128
_ASK_SECONDS: Final = 2.0  # a look takes 15-50 ms
_ALL_SECONDS: Final = 8.0
_TRIES: Final = 2  # a look that does not stop the process may meet a moving stack
_MOST_TOLD: Final = 4096
_Launch = tuple[str, str]
_told: dict[tuple[int, int], StackRank] = {}

Ask = Callable[[Sequence[int]], Mapping[int, StackRank]]


def ask_stacks(pids: Sequence[int]) -> Mapping[int, StackRank]:
    """What the stacks of some processes say, of those whose stacks can be read; stops none of them."""
    pyspy = find_tool("py-spy")
    if pyspy is None or not pids:
        return {}
    deadline = time.monotonic() + _ALL_SECONDS
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="rankscope-discover") as pool:
        stacks = pool.map(lambda pid: _main_thread(pyspy, pid, deadline=deadline), pids[:_MOST_ASKED])
        return {
            pid: rank_on_stack(stack) for pid, stack in zip(pids, stacks, strict=False) if stack is not None
        }


def function_jobs(
    nameless: Mapping[int, Nameless], table: Table, *, taken: Iterable[int], ask: Ask = ask_stacks
) -> tuple[FoundJob, ...]:
    """The jobs that processes without a rank in their environment form.

    Args:
        nameless: those processes.
        table: the process table.
        taken: ranks and launchers of other jobs; what runs below a rank is no rank.
        ask: reads what stacks say.
    """
    ranks = frozenset(taken)
    free = [one for one in nameless.values() if not ranks.intersection(ancestors(one.pid, table))]
    said = _ask_once(free, ask)
    workers = _without_children([one for one in free if _is_worker(one, said.get(one.pid))], table)
    by_launch: dict[_Launch, list[Nameless]] = {}
    for worker in sorted(workers, key=lambda one: (one.entry.start_ticks, one.pid)):
        by_launch.setdefault(_launch_of(worker, table), []).append(worker)
    return tuple(_job(found, said, table) for _launch, found in sorted(by_launch.items()))


def _ask_once(free: Sequence[Nameless], ask: Ask) -> Mapping[int, StackRank]:
    """What the stacks say. Who has told his number is not asked again: ``diag watch`` looks often."""
    known = {one.pid: _told.get((one.pid, one.entry.start_ticks)) for one in free}
    said = {pid: told for pid, told in known.items() if told is not None}
    said.update(ask([one.pid for one in free if one.pid not in said]))
    if len(_told) > _MOST_TOLD:
        _told.clear()
    for one in free:
        told = said.get(one.pid, StackRank())
        if told.rank is not None or told.index is not None:
            _told[one.pid, one.entry.start_ticks] = told
    return said


def _main_thread(pyspy: str, pid: int, *, deadline: float) -> ThreadStack | None:
    for _ in range(_TRIES):
        limit = min(deadline, time.monotonic() + _ASK_SECONDS)
        run = run_tool(
            [pyspy, "dump", "--json", "--locals", "--nonblocking", "--pid", str(pid)], deadline=limit
        )
        threads = parse_pyspy_json(run.stdout, pid=pid).threads if run.code == 0 else ()
        for thread in threads:
            if thread.is_main and thread.frames:
                return thread
    return None


def _is_worker(one: Nameless, said: StackRank | None) -> bool:
    """Whether it is a rank: it has a group, or was started as one and has not come that far."""
    if one.has_group or (said is not None and said.index is not None):
        return True
    # A function whose stack cannot be read: what is said of where ranks meet has to do.
    return bool(one.variables.get("MASTER_PORT")) and said is None


def _without_children(workers: list[Nameless], table: Table) -> list[Nameless]:
    """A child of a rank is none, unless it has a group itself (a rank that launched the others)."""
    pids = {worker.pid for worker in workers}
    return [one for one in workers if one.has_group or not pids.intersection(ancestors(one.pid, table))]


def _launch_of(worker: Nameless, table: Table) -> _Launch:
    """What tells launches apart: the port where they meet, else the process that started them."""
    return _meeting(worker) or ("", str(_starter(worker, table)))


def _meeting(worker: Nameless) -> tuple[()] | _Launch:
    port = worker.variables.get("MASTER_PORT", "")
    return (worker.variables.get("MASTER_ADDR", ""), port) if port else ()


def _starter(worker: Nameless, table: Table) -> int:
    """The process that started a worker: its parent, or the one that its parent is the fork server of."""
    parent = worker.entry.parent
    return table[parent].parent if parent in table and is_fork_server(parent) else parent


def _job(workers: Sequence[Nameless], said: Mapping[int, StackRank], table: Table) -> FoundJob:
    ranks, world_size, note = _numbers(workers, said)
    found = [
        FoundRank(rank, one.pid, one.entry.start_ticks, local_rank=_number(one.variables.get("LOCAL_RANK")))
        for rank, one in zip(ranks, workers, strict=True)
    ]
    return FoundJob(
        # Of the youngest: the eldest may have started the others.
        job=f"pid-{_starter(workers[-1], table)}",
        ranks=tuple(sorted(found, key=lambda rank: rank.rank)),
        world_size=max(*ranks, world_size - 1) + 1,
        notes=(note,),
        meeting=":".join(filter(None, _meeting(workers[-1]))),
    )


def _numbers(workers: Sequence[Nameless], said: Mapping[int, StackRank]) -> tuple[Sequence[int], int, str]:
    """Rank of each worker, ranks of the job as far as is known, and how that is known."""
    stacks = [said.get(one.pid, StackRank()) for one in workers]
    sizes = [stack.world_size or 0 for stack in stacks]
    sizes += [_number(one.variables.get("WORLD_SIZE")) or 0 for one in workers]
    ranks = _all_different([stack.rank for stack in stacks])
    if ranks:
        return ranks, max(sizes), f"ranks from the variable rank of {stacks[0].function} on their stacks"
    ranks = _all_different([stack.index for stack in stacks])
    if ranks:
        return ranks, max(sizes), "ranks from the number that torch's _wrap started each with: on this host"
    ranks = _all_different([_number(one.variables.get("LOCAL_RANK")) for one in workers])
    if ranks:
        return ranks, max(sizes), "ranks from LOCAL_RANK: on this host"
    if len(workers) == 1:
        return [0], max(sizes), "rank 0 by assumption: nothing says which rank it is"
    return range(len(workers)), max(sizes), "ranks by order of start: nothing says which rank is which"


def _all_different(numbers: Sequence[int | None]) -> list[int]:
    """The numbers when everybody has one of his own, else nothing."""
    known = [number for number in numbers if number is not None]
    return known if len(set(known)) == len(numbers) else []


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 8 else None  # noqa: PLR2004
