"""What a report needs of a judged job beside the diagnosis; what cannot be read is said."""

from __future__ import annotations

from rankscope.diag.commands.analyze_output import say
from rankscope.diag.errors import StoreError
from rankscope.diag.judging.judged import Judged
from rankscope.diag.model import Decision, JobSnapshot


def look_of(judged: Judged) -> JobSnapshot | None:
    """The last look a diagnosis was made from; one that cannot be read is said."""
    if judged.look is not None or judged.incident is None:
        return judged.look
    for which in ("b", "a"):
        try:
            look = judged.incident.snapshot(which)
        except StoreError as error:
            say(f"steps are not shown: {error}")
            continue
        if look is not None:
            return look
    return None


def decision_of(judged: Judged) -> Decision | None:
    """What was decided about a stored incident; one that cannot be read is said."""
    try:
        return judged.incident.decision() if judged.incident is not None else None
    except StoreError as error:
        say(f"the decision is not shown: {error}")
        return None
