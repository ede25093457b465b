"""What the detector remembers of one silence: the suspicion that is open, and what came of earlier looks.

Values only; what follows from them is the detector's to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.watchdog.limits import LOOK_AGAIN_AFTER
from rankscope.watchdog.observations import Diagnosed, SinkClass, Suspected


@dataclass(slots=True)
class Suspicion:
    """A suspicion that is open.

    Attributes:
        said: what was said of it.
        taken_at: when the last snapshot was asked for.
        quiet_from: since when nobody who is waited for had worked or polled, when it was opened.
        a_taken: whether the first snapshot is there.
        communicating: ranks that wait by their stacks.
    """

    said: Suspected
    taken_at: float
    quiet_from: float
    a_taken: bool = False
    communicating: frozenset[int] = frozenset()


@dataclass(slots=True)
class Memory:
    """What is known of the present silence only; progress wipes it.

    Attributes:
        act_after: when it is acted on without an own limit of the ranks, ``None`` for never.
        postponed: seconds of silence before which it is not acted on, whatever the limit.
        verdict: what was found, ``None`` until a diagnosis was.
        published_as: how the suspects behaved when it was published.
        told: whether what was published named a cause.
        next_look: seconds of silence at which what could not be told is looked at again.
        patience: seconds that a look has granted.
        next_sample: seconds of silence at which a working rank is looked at for a loop.
        sampling: whether such a look is under way.
        published: whether something was published of it.
    """

    act_after: float | None = None
    postponed: float = 0.0
    verdict: Diagnosed | None = None
    published_as: SinkClass = "none"
    told: bool = True
    next_look: float = LOOK_AGAIN_AFTER
    patience: float = 0.0
    next_sample: float = 0.0
    sampling: bool = False
    published: bool = False
