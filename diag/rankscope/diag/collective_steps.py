"""Which step a collective belongs to, by how far its rank had come at two looks. Pure."""

from __future__ import annotations


def step_at(seq: int, steps: tuple[int, int], enqueued: tuple[int, int]) -> int | None:
    """The step that a collective belongs to, about.

    Args:
        seq: its number in its group.
        steps: steps that a rank had made at two looks.
        enqueued: numbers of the collectives that it had called last in the group, at the same looks.

    Returns:
        ``None`` when nothing went on between them.
    """
    if steps[1] <= steps[0] or enqueued[1] <= enqueued[0]:
        return None
    a_step = (enqueued[1] - enqueued[0]) / (steps[1] - steps[0])
    return max(0, round(steps[1] - (enqueued[1] - seq) / a_step))
