"""Names that number the ranks of each node, turned into ranks of the job. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rankscope.diag.dumps.names import natural
from rankscope.diag.dumps.pieces import Source


def with_global_ranks(sources: Sequence[Source], notes: list[str]) -> Sequence[Source]:
    """Where folders of several hosts hold the same ranks of different processes, they are local ranks."""
    by_node: dict[str, set[int]] = defaultdict(set)
    pids: dict[tuple[str, int], set[int]] = defaultdict(set)
    for source in sources:
        if source.name.node and source.name.rank is not None:
            by_node[source.name.node].add(source.name.rank)
            pids[source.name.node, source.name.rank] |= {d.pid for d in source.contents.dumps if d.pid}
    nodes = sorted(by_node, key=natural)
    width = max(map(len, by_node.values()), default=0)
    if len(nodes) <= 1 or any(ranks != set(range(width)) for ranks in by_node.values()):
        return sources
    of_first = set[int]().union(*(pids[nodes[0], rank] for rank in range(width)))
    of_second = set[int]().union(*(pids[nodes[1], rank] for rank in range(width)))
    are_local = all(source.name.is_local for source in sources if source.name.node)
    if not are_local and (not of_first or not of_second or of_first & of_second):
        return sources
    notes.append(
        f"{', '.join(nodes[:4])}{', ...' * (len(nodes) > 4)} hold the same ranks: taken as ranks on "  # noqa: PLR2004 - a line's worth
        f"their node, {width} a node in the order of the names"
    )
    first = {node: at * width for at, node in enumerate(nodes)}
    return [
        replace(source, name=replace(source.name, rank=first[source.name.node] + source.name.rank))
        if source.name.node and source.name.rank is not None
        else source
        for source in sources
    ]
