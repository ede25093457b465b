"""Numbers in the names of all files together, turned into ranks of the job, or found to be none. Pure.

A name that says *rank* is believed. One that numbers workers, ranks of a node or nothing in particular is
believed while no two processes share a number; a file with the lines of several processes has no rank at all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from rankscope.diag.dumps.names import NameFacts, natural
from rankscope.diag.dumps.numbers import counts_from_zero, numbered
from rankscope.diag.dumps.pieces import Source
from rankscope.diag.dumps.told import bare_channel, is_launcher, runs_child_code
from rankscope.diag.read import StackDump

_HOST_NAME: Final = re.compile(
    r"(?:node|host|vm|pod|ip|gpu|worker|master|trn)[A-Za-z0-9._-]*\d", re.IGNORECASE
)
_SHOWN: Final = 4  # names in a line


def settled(sources: Sequence[Source], notes: list[str]) -> Sequence[Source]:
    """The sources with the ranks that their names, all together, tell; what was assumed goes to the notes."""
    told = [_without_rank_if_several(source) for source in sources]
    told = _behind_their_head(told, notes)
    told = _with_global_ranks(told, notes)
    return _without_shared(told, notes)


def own_processes(source: Source) -> list[StackDump]:
    """Dumps that may be of a rank: no launcher, nothing that another process of the file has started."""
    pids = {dump.pid for dump in source.contents.dumps if dump.pid and not is_launcher(dump)}
    return [
        dump
        for dump in source.contents.dumps
        if not is_launcher(dump)
        and not runs_child_code(dump)
        and not (dump.parent in pids and dump.parent != dump.pid)
    ]


def _without_rank_if_several(source: Source) -> Source:
    """A file with lines of several ranks: its name is that of their pod or host."""
    name = source.name
    if name.rank is None and name.bare is None:
        return source
    dumps = own_processes(source)
    facts = source.contents.facts
    channels = {bare_channel(dump.channel) for dump in dumps if dump.rank is None}
    channels |= {bare_channel(fact.channel) for fact in facts if fact.rank is None}
    channels -= {""}
    prefixed = {dump.rank for dump in dumps} | {fact.rank for fact in facts if fact.channel}
    is_several = len(prefixed - {None}) > 1
    if name.is_sure or name.attempt is not None:  # other programs' lines may stand in it, too
        is_several = is_several or len(numbered(channels)) > 1
    else:
        pids = {dump.pid for dump in dumps if dump.pid and dump.rank is None}
        is_several = is_several or len(channels) > 1 or (len(pids) > 1 and not name.child)
    if not is_several:
        return source
    node = name.node or ("" if name.rank is None else name.name.partition(".")[0])
    return replace(source, name=replace(name, rank=None, bare=None, is_local=False, is_head=False, node=node))


def _behind_their_head(sources: Sequence[Source], notes: list[str]) -> list[Source]:
    """Beside a master of rank 0, worker 0 is rank 1."""
    workers = [source for source in sources if _is_worker(source.name)]
    heads = [source for source in sources if source.name.is_head]
    if not any(map(_has_something, heads)) or not any(source.name.rank == 0 for source in workers):
        return list(sources)
    notes.append(
        f"{heads[0].name.name} is taken as rank 0, worker 0 as rank 1: ranks are not named, workers are"
    )
    return [
        replace(source, name=replace(source.name, rank=(source.name.rank or 0) + 1))
        if _is_worker(source.name)
        else source
        for source in sources
    ]


def _is_worker(name: NameFacts) -> bool:
    return name.rank is not None and not (name.is_sure or name.is_local or name.is_head)


def _has_something(source: Source) -> bool:
    return bool(source.contents.dumps or source.contents.records or source.contents.facts)


def _with_global_ranks(sources: Sequence[Source], notes: list[str]) -> list[Source]:
    """Where folders of several hosts hold the same ranks of different processes, they are local ranks."""
    on_node: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for source in sources:
        number = _number(source.name)
        if source.name.node and number is not None:
            on_node[source.name.node][number] |= {dump.pid for dump in own_processes(source) if dump.pid}
    if not _are_local(on_node, [source.name for source in sources]):
        return list(sources)
    nodes = sorted(on_node, key=natural)
    width = max(max(numbers) + 1 for numbers in on_node.values())
    at_node = numbered(nodes) or {node: at for at, node in enumerate(nodes)}
    notes.append(
        f"{', '.join(nodes[:_SHOWN])}{', ...' * (len(nodes) > _SHOWN)} hold the same ranks: taken as ranks on"
        f" their node, {width} a node in the order of the names"
    )
    return [
        replace(source, name=_renumbered(source.name, at_node[source.name.node] * width))
        if source.name.node and _number(source.name) is not None
        else source
        for source in sources
    ]


def _renumbered(name: NameFacts, first: int) -> NameFacts:
    return replace(name, rank=first + (_number(name) or 0), bare=None, is_sure=True, is_local=False)


def _number(name: NameFacts) -> int | None:
    return name.bare if name.rank is None else name.rank


def _are_local(on_node: Mapping[str, Mapping[int, set[int]]], names: Sequence[NameFacts]) -> bool:
    """Whether the numbers of several hosts overlap, and are those of different processes."""
    if len(on_node) <= 1 or not all(map(counts_from_zero, on_node.values())):
        return False
    shared = [
        numbers
        for number in set().union(*on_node.values())
        if len(numbers := [pids for of in on_node.values() if (pids := of.get(number)) is not None]) > 1
    ]
    if not shared:
        return False
    if all(name.is_local for name in names if name.node and _number(name) is not None):
        return True
    if not any(pids for numbers in shared for pids in numbers):
        return all(map(_HOST_NAME.match, on_node))
    return all(
        pids and other and not pids & other
        for numbers in shared
        for at, pids in enumerate(numbers)
        for other in numbers[at + 1 :]
    )


def _without_shared(sources: Sequence[Source], notes: list[str]) -> list[Source]:
    """Numbers that are no surely ranks are none at all when two processes have the same one."""
    looks: dict[tuple[object, ...], dict[object, str]] = defaultdict(dict)
    for source in sources:
        name = source.name
        if name.rank is None or name.is_sure or name.child:
            continue
        for dump in own_processes(source):
            if dump.rank is None and dump.threads:
                tool = (dump.source, dump.is_native, dump.has_variables, name.sample)
                key = (name.rank, "pid") if dump.pid else (name.rank, tool)
                looks[key].setdefault(dump.pid or name.name, name.name)
    shared = next((files for files in looks.values() if len(set(files.values())) > 1), None)
    if shared is None:
        return list(sources)
    first, second = list(dict.fromkeys(shared.values()))[:2]
    notes.append(
        f"{first} and {second} are of two processes: the numbers in the names are not taken as ranks"
    )
    return [
        source
        if source.name.rank is None or source.name.is_sure or source.name.child
        else replace(source, name=replace(source.name, rank=None, bare=None, is_local=False))
        for source in sources
    ]
