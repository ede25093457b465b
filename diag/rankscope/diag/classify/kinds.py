"""What a culprit is doing: the ``kind`` of a diagnosis, and the place to show for it.

Library frames anywhere on the path come first, then what its line and the kernel say it waits for, then the
words of the user's own names (a hint: it gives the kind, the verdict never rests on it). It judges one
rank; that the rank is a culprit was decided before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rankscope.diag.classify.activity import Activity, beat_is_stale
from rankscope.diag.classify.catalogue import Catalogue, Label
from rankscope.diag.classify.children import Followed, child_facts, follow, waits_for_a_pool
from rankscope.diag.classify.position import (
    Position,
    SourceLine,
    innermost_user_frame,
    source_of,
)
from rankscope.diag.classify.records import last_call, recorded_title
from rankscope.diag.merge.groups import main_thread
from rankscope.diag.merge.normalise import show_frame, shown_function
from rankscope.diag.model import Collective, Evidence, Frame, Kind, Location, RankSnapshot

_QUEUES: Final = ("/queue.py", "/queues.py")
_HINT_DEPTH: Final = (
    3  # user frames from the leaf whose names count: an entry point names the program, not the fault
)
_KIND_OF: Final[dict[Label, Kind]] = {
    "data_loading": "data_loading",
    "loader_wait": "data_loading",
    "checkpoint": "checkpoint",
    "compile": "compile",
    "exit": "exit",
    "lock": "lock",
    "child_process": "child_process",
    "storage": "storage",
    "network": "network",
    "startup": "startup",
    "store_wait": "store_wait",
}
_STRONG: Final[frozenset[Label]] = frozenset(
    {"data_loading", "loader_wait", "checkpoint", "compile", "exit", "startup", "store_wait"}
)


@dataclass(frozen=True, slots=True)
class Cause:
    """What one culprit is doing.

    Attributes:
        kind: of INTERFACES.md's list.
        place: where, as a sentence names it: ``load_batch (train.py:8)``.
        location: the same for a machine, ``None`` without a stack.
        evidence: what it was read from.
    """

    kind: Kind
    place: str
    location: Location | None
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Suspect:
    """One rank to look at: its latest snapshot, the one before, and what is known of both."""

    latest: RankSnapshot
    earlier: RankSnapshot | None
    position: Position | None
    activity: Activity


def cause_of(suspect: Suspect, *, catalogue: Catalogue, source_line: SourceLine) -> Cause:
    """What the rank is doing."""
    rank = suspect.latest
    position = suspect.position
    if position is None:
        kind: Kind = "native_gil" if beat_is_stale(rank, suspect.earlier) else "none"
        return _recorded_cause(rank, kind, catalogue)
    child = follow(rank, position, catalogue)
    own = position.user_frame or _waited_for(rank, position, catalogue)
    frame = child.frame if child and (own is None or _tells_more(child, position, catalogue)) else own
    frame = frame or _line_of_main(rank, position, catalogue) or position.shown_frame
    text = source_of(frame, source_line) if frame else None
    kind, fact = _kind(suspect, position, frame, text, catalogue)
    its_own = text if frame is position.shown_frame else None
    evidence = [Evidence(rank.source or "stack", _standing(position, its_own), rank.rank)]
    if fact:
        evidence.append(fact)
    if rank.facts is not None and rank.facts.blocked_in and position.thread.is_main:
        evidence.append(Evidence("/proc", f"its system call sleeps: {rank.facts.blocked_in}", rank.rank))
    if child:
        evidence.append(child.fact(rank))
    evidence.extend(child_facts(rank, suspect.earlier, all_of_them=kind in ("child_process", "exit")))
    in_a_lock = position.label == "lock" or position.for_thread  # a queue's, of whatever kind it turned out
    if in_a_lock or kind in ("lock", "exit", "native_gil") or not position.thread.is_main:
        evidence.extend(_other_threads(rank, position, catalogue))
    evidence.extend(_gil_holders(rank, position, catalogue))
    place = show_frame(frame) if frame else position.place
    return Cause(kind, place, _location(frame, text, rank.rank), tuple(evidence))


def _recorded_cause(rank: RankSnapshot, kind: Kind, catalogue: Catalogue) -> Cause:
    """Without a stack, the last operation that its flight record has: the rank is in it, or past it."""
    last = last_call(rank.record)
    if last is None:
        return Cause(kind, "a place that could not be seen", None)
    frame = _recorded_frame(last, catalogue)
    at = f" at {show_frame(frame)}" if frame else ""
    where = f"{last.op}{at}" if not last.is_completed else f"the code after {last.op}{at}"
    which = f"{last.op}, number {last.seq} of group {recorded_title(rank.record, last.group)}"
    state = "has ended" if last.is_completed else "has not ended"
    source = rank.record.source if rank.record is not None else "flight record"
    fact = Evidence(source, f"its last operation is {which}; it {state}", rank.rank)
    return Cause(kind, where, _location(frame, frame.source if frame else None, rank.rank), (fact,))


def _recorded_frame(call: Collective, catalogue: Catalogue) -> Frame | None:
    return innermost_user_frame(call.frames, catalogue) or (call.frames[0] if call.frames else None)


def recorded_location(call: Collective, rank: int, catalogue: Catalogue) -> Location | None:
    """Where a rank called a recorded operation, ``None`` in a record without stacks."""
    frame = _recorded_frame(call, catalogue)
    return _location(frame, frame.source if frame else None, rank)


def _standing(position: Position, text: str | None) -> str:
    name = (
        "main thread"
        if position.thread.is_main
        else f"thread {position.thread.name or position.thread.thread_id}"
    )
    line = f": {text.strip()}" if text and text.strip() else ""
    waits = ", where it waits for its loader" if position.label == "loader_wait" else ""
    return f"{name} in {position.place}{line}{waits}"


def _location(frame: Frame | None, text: str | None, rank: int) -> Location | None:
    if frame is None:
        return None
    return Location(
        function=shown_function(frame.function),
        file=frame.file,
        line=frame.line,
        source=text.strip() if text else None,
        rank=rank,
    )


def _kind(
    suspect: Suspect, position: Position, frame: Frame | None, text: str | None, catalogue: Catalogue
) -> tuple[Kind, Evidence | None]:
    rank = suspect.latest
    strong = _strong_label(position, catalogue)
    wchan = rank.facts.wchan if rank.facts and position.thread.is_main else None
    if _holds_gil_in_c(suspect, position):
        # It explains why its other threads stand, not why the call does: what names the call comes first.
        fact = Evidence(rank.source or "stack", "a thread sleeps while it owns the GIL", rank.rank)
        return _gil_kind(strong, catalogue.wchan_label(wchan)), fact
    if strong is not None:
        return _KIND_OF[strong], None
    at_leaf = frame is not None and frame is position.leaf
    spoken = catalogue.source_label(text, wchan) if at_leaf else None
    hint = _hint(position, catalogue)
    if rank.children and waits_for_a_pool(position):
        return "child_process", _wchan_fact(rank, wchan)
    waits_for_lock = position.label == "lock" and not position.thread.holds_gil
    if spoken == "lock" or (waits_for_lock and not (hint and _in_a_queue(position))):
        return "lock", _wchan_fact(rank, wchan)
    if hint is not None:
        word = Evidence("name", f"the word in {position.place} suggests {hint.replace('_', ' ')}", rank.rank)
        return _KIND_OF[hint], word
    # What a wait for other ranks sleeps in is the kernel's lock, too.
    slept_in = catalogue.wchan_label(wchan) if at_leaf and position.waiting is None else None
    for label in (spoken, position.label, slept_in):
        if label is not None and label in _KIND_OF:
            return _KIND_OF[label], _wchan_fact(rank, wchan)
    if _runs_python(suspect, position, at_leaf=at_leaf):
        return "python_loop", None
    called = catalogue.call_label(position.thread.frames)
    if called is not None:
        return _KIND_OF[called], _wchan_fact(rank, wchan)
    return "user_code" if position.user_frame is not None else "none", _wchan_fact(rank, wchan)


def _gil_kind(strong: Label | None, slept_in: Label | None) -> Kind:
    """What a thread that keeps the GIL in C is doing, where library frames or the kernel say it."""
    if strong is not None:
        return _KIND_OF[strong]
    return _KIND_OF[slept_in] if slept_in in ("storage", "network", "child_process") else "native_gil"


def library_kind(position: Position | None, catalogue: Catalogue) -> Kind | None:
    """What library frames alone say that a rank is doing, ``None`` where they say nothing."""
    strong = _strong_label(position, catalogue) if position is not None else None
    return _KIND_OF[strong] if strong is not None else None


def _holds_gil_in_c(suspect: Suspect, position: Position) -> bool:
    if beat_is_stale(suspect.latest, suspect.earlier):
        return True
    thread = position.thread
    return thread.holds_gil is True and thread.active is False


def _in_a_queue(position: Position) -> bool:
    """Whether the lock is a queue's: it waits for what is to come, and the user's names tell what that is."""
    return any(frame.file.endswith(_QUEUES) for frame in position.thread.frames)


def _strong_label(position: Position, catalogue: Catalogue) -> Label | None:
    """The nearest label from the leaf; a file that a data set loads is data, not a checkpoint."""
    labels = [catalogue.label(frame) for frame in position.thread.frames]
    strong: list[Label] = [label for label in labels if label is not None and label in _STRONG]
    if not strong:
        return None
    nearest: Label = strong[0]
    if nearest == "checkpoint" and ("data_loading" in strong or _hint(position, catalogue) == "data_loading"):
        return "data_loading"
    return nearest


def _hint(position: Position, catalogue: Catalogue) -> Label | None:
    seen = 0
    for frame in position.thread.frames:
        if not catalogue.is_user_code(frame):
            continue
        hint = catalogue.hint(frame, with_file=seen == 0)
        if hint is not None:
            return hint
        seen += 1
        if seen == _HINT_DEPTH:
            return None
    return None


def _runs_python(suspect: Suspect, position: Position, *, at_leaf: bool) -> bool:
    """A loop in the user's own code: it holds the GIL at a user's line, or polls from one."""
    if not at_leaf:
        return False
    if suspect.activity.level == "ticking":
        return True
    return bool(position.thread.holds_gil and position.thread.active)


def _wchan_fact(rank: RankSnapshot, wchan: str | None) -> Evidence | None:
    if not wchan or wchan == "0" or rank.facts is None:
        return None
    return Evidence("/proc", f"state {rank.facts.state}, sleeps in the kernel's {wchan}", rank.rank)


def _gil_holders(rank: RankSnapshot, position: Position, catalogue: Catalogue) -> list[Evidence]:
    """Another thread that had the GIL at the look: while it keeps it in C, no other one gets on."""
    found: list[Evidence] = []
    for thread in rank.threads:
        if thread is position.thread or not thread.holds_gil or not thread.frames:
            continue
        frame = innermost_user_frame(thread.frames, catalogue) or thread.frames[0]
        name = "main thread" if thread.is_main else f"thread {thread.name or thread.thread_id}"
        call = "" if frame is thread.frames[0] else f", in {shown_function(thread.frames[0].function)}"
        fact = f"{name} had the GIL in {show_frame(frame)}{call}"
        found.append(Evidence(rank.source or "stack", fact, rank.rank))
    return found


def _other_threads(rank: RankSnapshot, position: Position, catalogue: Catalogue) -> list[Evidence]:
    """The threads that may hold what the rank waits for."""
    found: list[Evidence] = []
    for thread in rank.threads:
        if thread is position.thread or catalogue.is_auxiliary(thread) or not thread.frames:
            continue
        frame = innermost_user_frame(thread.frames, catalogue) or thread.frames[0]
        name = "main thread" if thread.is_main else f"thread {thread.name or thread.thread_id}"
        found.append(Evidence(rank.source or "stack", f"{name} in {show_frame(frame)}", rank.rank))
    return found


def _tells_more(child: Followed, position: Position, catalogue: Catalogue) -> bool:
    """Whether the child's place says more than the rank's own line: a loop over a loader is every loop's."""
    return position.label == "loader_wait" or catalogue.is_user_code(child.frame)


def _line_of_main(rank: RankSnapshot, position: Position, catalogue: Catalogue) -> Frame | None:
    """The user's line that waits for a thread without one: ``loss.backward()`` for autograd's."""
    if position.thread.is_main:
        return None
    main = main_thread(rank)
    return innermost_user_frame(main.frames, catalogue) if main is not None else None


def _waited_for(rank: RankSnapshot, position: Position, catalogue: Catalogue) -> Frame | None:
    """Without a user frame of its own, the rank may wait at its exit for a thread that has one.

    Of several, a daemon is not waited for, and no tool tells which one is: then for none of them.
    """
    if position.label != "exit":
        return None
    others = (thread for thread in rank.threads if not thread.is_main and not catalogue.is_auxiliary(thread))
    frames = [innermost_user_frame(thread.frames, catalogue) for thread in others]
    own = [frame for frame in frames if frame is not None]
    return own[0] if len(own) == 1 else None
