"""Where a rank is, as its slot of the progress page tells it: no look is taken for it. Pure."""

from __future__ import annotations

from rankscope.watchdog.page import GroupSeq, SlotView


def under_way(slot: SlotView | None) -> GroupSeq | None:
    """A group with a collective that was called and has not ended."""
    groups = slot.groups if slot is not None else ()
    return next((group for group in groups if group.enqueued > group.completed), None)


def has_stepped(slot: SlotView) -> bool:
    """Whether a step was ever seen, of an optimizer or of the script's own count (``Monitor.step``)."""
    return bool(slot.step_ns or slot.user_step_ns)


def told_place(slot: SlotView) -> str:
    """The exception, the stage, the collective that it is in; ``""`` when it tells of none of them."""
    if slot.raised_ns:
        return f"raised: {slot.raised_text}"
    if slot.returned_ns:
        return "the script has ended, threads have not"
    group = under_way(slot)
    parts = [f"stage {slot.stage}"] if slot.stage else []
    if group is not None:
        parts.append(f"collective {group.enqueued}, pg {group.name}")
    return ", ".join(parts)
