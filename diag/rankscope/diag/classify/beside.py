"""Collectives that ranks are in with other threads than the one that decides where they stand.

An asynchronous checkpoint, a pool's worker, an autograd thread: two threads of one rank in collectives at the
same time may use one group in different order on different ranks. It is said, and nobody is judged by it.
"""

from __future__ import annotations

from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.view import JobView, RankView
from rankscope.diag.classify.wording import name_ranks
from rankscope.diag.merge.normalise import bare_function
from rankscope.diag.model import Evidence, Frame


def threads_in_communication(job: JobView) -> tuple[Evidence, ...]:
    """One line for each call that another thread of some ranks is in."""
    ranks: dict[str, list[int]] = {}
    for view in job.ranks:
        for call in sorted(_calls(view, job.catalogue)):
            ranks.setdefault(call, []).append(view.rank)
    return tuple(
        Evidence("stacks", f"another thread of {name_ranks(of)} is in {call}")
        for call, of in sorted(ranks.items())
    )


def _calls(view: RankView, catalogue: Catalogue) -> set[str]:
    if view.position is None or view.gone:
        return set()
    others = (thread for thread in view.latest.threads if thread is not view.position.thread)
    return {call for thread in others if (call := _call(thread.frames, catalogue)) is not None}


def _call(frames: tuple[Frame, ...], catalogue: Catalogue) -> str | None:
    return catalogue.of_stacks.once("beside", frames, lambda stack: _innermost_call(stack, catalogue))


def _innermost_call(frames: tuple[Frame, ...], catalogue: Catalogue) -> str | None:
    """The innermost Python frame of communication, when it is above the user's code."""
    found: str | None = None
    for frame in frames:
        if frame.kind == "native":
            continue
        if catalogue.is_user_code(frame):
            break
        if catalogue.label(frame) in ("collective", "p2p"):
            found = found or bare_function(frame.function)
    return found
