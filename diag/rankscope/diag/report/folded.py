"""Stacks as folded lines (``root;caller;leaf 3``), as flamegraph.pl reads them. It decides nothing."""

from __future__ import annotations

from collections import Counter

from rankscope.diag.merge.groups import split_stacks
from rankscope.diag.model import Diagnosis
from rankscope.diag.report.text import inert

_NO_FRAMES = "(no frames)"


def folded_text(diagnosis: Diagnosis, *, everything: bool = False) -> str:
    """One line a stack, root first: frames separated by ``;``, a space, the number of threads.

    The format has no escapes: a ``;`` in a name becomes ``:``, control characters are spelled out.

    Args:
        diagnosis: whose stacks.
        everything: the threads that are not compared too.
    """
    lines: Counter[str] = Counter()
    for group in diagnosis.stacks if everything else split_stacks(diagnosis.stacks)[0]:
        path = ";".join(_name(frame) for frame in reversed(group.stack)) or _NO_FRAMES
        lines[path] += group.count
    return "".join(f"{path} {count}\n" for path, count in lines.items() if count > 0)


def _name(frame: str) -> str:
    return inert(frame).replace(";", ":").strip() or "?"
