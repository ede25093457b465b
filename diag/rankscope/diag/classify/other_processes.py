"""What dumps beside those of the ranks add to a diagnosis: engines and front ends, and what ranks are called.

A process that is no rank accuses nobody and is never accused; where it stands tells whom it serves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from rankscope.diag.classify.catalogue import Catalogue
from rankscope.diag.classify.position import Position, of_thread
from rankscope.diag.merge.normalise import show_frame
from rankscope.diag.model import Diagnosis, Evidence
from rankscope.diag.read import StackDump

_MOST: Final = 16  # processes, a screen's worth


def with_processes(
    diagnosis: Diagnosis, others: Sequence[StackDump], titles: Mapping[int, str], *, catalogue: Catalogue
) -> Diagnosis:
    """The diagnosis with what is known of processes.

    Args:
        diagnosis: what the ranks gave.
        others: dumps of processes that are no ranks.
        titles: of ranks that were numbered by a guess, what their processes are called.
        catalogue: what frames mean.
    """
    shown = [rank for rank in diagnosis.ranks if rank.role == "culprit" or rank.state == "suspected"]
    named = [Evidence("title", f"it is {titles[one.rank]}", one.rank) for one in shown if one.rank in titles]
    beside = [Evidence(dump.source, _standing(dump, catalogue)) for dump in others]
    return msgspec.structs.replace(diagnosis, evidence=(*diagnosis.evidence, *named[:_MOST], *beside[:_MOST]))


def _standing(dump: StackDump, catalogue: Catalogue) -> str:
    """``VLLM::EngineCore (process 690), no rank, in recv (shm_broadcast.py:802), called in ...``."""
    process = f" (process {dump.pid})" if dump.pid else ""
    text = f"{dump.title.strip() or 'a process'}{process}, no rank"
    main = next((thread for thread in dump.threads if thread.is_main), None)
    if main is None or not main.frames:
        return text
    position = of_thread(main, None, catalogue, lambda _file, _line: None)
    caller = _caller(position, catalogue)
    return f"{text}, in {position.place}" + (f", called in {caller}" if caller else "")


def _caller(position: Position, catalogue: Catalogue) -> str:
    """The first frame of another file above its place: what it waits there for."""
    shown = position.shown_frame
    frames = position.thread.frames
    if shown is None or shown not in frames:
        return ""
    above = frames[frames.index(shown) + 1 :]
    other = (frame for frame in above if frame.file != shown.file and not catalogue.is_plumbing(frame))
    return next((show_frame(frame) for frame in other if frame.kind == "python"), "")
