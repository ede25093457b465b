"""What a person should know of a job beside its state (``history.state``). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.diag.history.runs import RUN_AGAIN
from rankscope.diag.history.state import JobState, NodeState


def notes_of(state: JobState, nodes: Sequence[NodeState]) -> tuple[str, ...]:
    """A sentence for each."""
    if state == "ended" and any(node.exit_code == RUN_AGAIN for node in nodes):
        return (f"asked to be run again (exit code {RUN_AGAIN})",)
    return ()
