"""When the numbers in a set of labels are ranks: names of pods, of tasks, of what stands before lines. Pure.

One number may be anything (a port, a restart, a host of many). A set of labels that differ in one number, and
whose numbers count from zero, numbers what it labels.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

_DIGITS: Final = re.compile(r"(\d+)")
_HEAD: Final = re.compile(r"(?<![a-z])(?:master|chief)(?![a-z])", re.IGNORECASE)
"""The pod of rank 0, as the operators of Kubeflow call it; its workers are counted from 0 once more."""
_WORKER: Final = re.compile(r"(?<![a-z])worker(?![a-z])", re.IGNORECASE)
_GRID: Final = re.compile(r"(?<![a-z])(?:tp|pp|dp|ep|cp|sp|mp|fsdp)(?![a-z])", re.IGNORECASE)
"""Places in a mesh: in which order its ranks are counted is the program's affair."""
_LONGEST: Final = 12  # digits of a number that counts anything
_Told = Mapping[str, tuple[int, ...]]


def counts_from_zero(numbers: Iterable[int]) -> bool:
    """Whether numbers are those of most of a set that is counted from zero: a few may be missing."""
    known = set(numbers)
    return 0 in known and max(known) < 2 * len(known)


def numbered(labels: Collection[str]) -> dict[str, int]:
    """Ranks of labels, empty where their numbers are none.

    ``worker-0 worker-1``; ``master-0 worker-0 worker-1`` (the master is rank 0); ``node0 [default0]`` to
    ``node1 [default1]`` (every number of the second under every one of the first).
    """
    by_shape: dict[tuple[str, ...], dict[str, tuple[int, ...]]] = defaultdict(dict)
    for label in labels:
        pieces = _DIGITS.split(label)
        numbers = tuple(int(piece) if len(piece) <= _LONGEST else -1 for piece in pieces[1::2])
        by_shape[tuple(pieces[::2])][label] = numbers
    if len(by_shape) == 1:
        ((shape, told),) = by_shape.items()
        return _one_shape(told, may_be_grid=not any(map(_GRID.search, shape)))
    return _with_head(by_shape)


def numbered_on_nodes(labels: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Ranks of labels that stand on several nodes each, empty where their numbers are none.

    Args:
        labels: a node, and what stands there.
    """
    nodes = {node for node, _ in labels}
    here = numbered({label for _, label in labels})
    if len(here) == len(labels):  # no label stands on two nodes
        return {key: here[key[1]] for key in labels}
    of_node = numbered(nodes) or {node: at for at, node in enumerate(sorted(nodes))}
    local = {node: numbered({label for at, label in labels if at == node}) for node in nodes}
    if len(nodes) == 1 or not all(local.values()):
        return {}
    width = max(rank + 1 for ranks in local.values() for rank in ranks.values())
    return {(node, label): of_node[node] * width + local[node][label] for node, label in labels}


def _one_shape(told: _Told, *, may_be_grid: bool) -> dict[str, int]:
    columns = list(zip(*told.values(), strict=True))
    for column in reversed(columns):
        if len(set(column)) == len(told) and counts_from_zero(column):
            return dict(zip(told, column, strict=True))
    varying = [column for column in columns if len(set(column)) > 1]
    size = 1
    for column in varying:
        size *= len(set(column))
    if may_be_grid and len(varying) > 1 and size == len(told) and all(map(counts_from_zero, varying)):
        return {label: at for at, label in enumerate(sorted(told, key=lambda label: told[label]))}
    return {}


def _with_head(by_shape: Mapping[tuple[str, ...], _Told]) -> dict[str, int]:
    heads = [told for shape, told in by_shape.items() if _is(_HEAD, shape)]
    others = [told for shape, told in by_shape.items() if _is(_WORKER, shape) and told not in heads]
    if len(heads) != 1 or len(others) != 1 or len(by_shape) != len(heads) + len(others):
        return {}
    ranks = _one_shape(others[0], may_be_grid=False)
    if len(heads[0]) != 1 or not ranks:
        return {}
    return {next(iter(heads[0])): 0, **{label: rank + 1 for label, rank in ranks.items()}}


def _is(word: re.Pattern[str], shape: tuple[str, ...]) -> bool:
    return word.search("0".join(shape)) is not None
