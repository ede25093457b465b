"""The diagnosis of a running job from as many looks as it needs: two, quick ones between, a third.

Pure: how looks are taken and judged comes in. What a diagnosis means beyond its verdict is not known here.
"""

from __future__ import annotations

from collections.abc import Callable

from rankscope.diag.model import Diagnosis, JobSnapshot

Pair = tuple[JobSnapshot, JobSnapshot]
Judge = Callable[[Pair, tuple[JobSnapshot, ...]], Diagnosis]
"""Judges two looks, with quick ones between them."""


def settle(
    pair: Pair,
    *,
    judge: Judge,
    quick: Callable[[Diagnosis], tuple[JobSnapshot, ...]],
    again: Callable[[], JobSnapshot],
) -> Diagnosis:
    """Judge two looks, and go on looking where others wait for a rank that works.

    On a busy machine a rank may still have been on its way to where it stands when the first look was taken:
    then the second and a third tell.

    Args:
        pair: the two looks.
        judge: judges a pair.
        quick: takes quick looks at ranks that a diagnosis suspects and that work; none where there are none.
        again: takes one more look at all ranks.
    """
    diagnosis = judge(pair, ())
    samples = quick(diagnosis)
    if not samples:
        return diagnosis
    diagnosis = judge(pair, samples)
    return diagnosis if diagnosis.verdict != "Unknown" else judge((pair[1], again()), samples)
