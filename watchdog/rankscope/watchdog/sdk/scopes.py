"""Which stages are open, and which limit holds. Pure: no thread, clock or page.

In one line of execution (a thread, a task) the innermost stage counts; of several lines the largest
limit, and off (-1) in any of them is off. A stage may end in another line than it began in, and in any
order: it is removed by identity.
"""

from __future__ import annotations

from weakref import ref

from rankscope.watchdog.sdk.config import OFF


class OpenStage:
    """One entry into a stage.

    Attributes:
        seconds: its limit, -1 for off.
        name: what it is called in the page.
        line: the line of execution that entered it, compared by identity.
        ended: set when it is left; an ended stage counts nowhere, even while it is still listed.
    """

    __slots__ = ("__weakref__", "ended", "line", "name", "seconds")

    def __init__(self, seconds: float, name: str, line: object) -> None:
        self.seconds = seconds
        self.name = name
        self.line = line
        self.ended = False


class Scopes:
    """All open stages of a process. Its owner holds a lock, but may be interrupted by itself.

    A generator that is thrown away, or a signal handler, may leave a stage in the middle of any of these
    methods, in the same thread. So the list is replaced, never changed, and ``ended`` decides.

    A handler that raises just when a block is being left takes the block away, and nobody says so. So the
    stages are held weakly: one whose ``hang_detect`` is gone is over. (A finalizer of ours would be one more
    place where what a handler raises gets lost.)
    """

    def __init__(self) -> None:
        self._open: tuple[ref[OpenStage], ...] = ()

    def open(self) -> list[OpenStage]:
        """The open stages, oldest first."""
        stages = [each() for each in self._open]
        return [stage for stage in stages if stage is not None and not stage.ended]

    @property
    def lost_some(self) -> bool:
        """Whether a stage went without being left since the last change."""
        return any(each() is None for each in self._open)

    def enter(self, stage: OpenStage) -> None:
        """Open a stage, innermost in its line."""
        self._open = tuple(ref(each) for each in (*self.open(), stage))

    def leave(self, stage: OpenStage) -> None:
        """End a stage, wherever it stands; ending it again does nothing."""
        stage.ended = True
        self.prune()

    def prune(self) -> None:
        """Forget the stages that are over."""
        self._open = tuple(ref(each) for each in self.open())

    def limit(self) -> tuple[float | None, str]:
        """The limit that holds and its stage's name; ``None`` and ``""`` when no stage is open."""
        innermost = {id(stage.line): stage for stage in self.open()}
        if not innermost:
            return None, ""
        off = [stage for stage in innermost.values() if stage.seconds == OFF]
        chosen = off[0] if off else max(innermost.values(), key=lambda stage: stage.seconds)
        return chosen.seconds, chosen.name
