"""The last look at workers that are stopped for no fault of their own: a signal, a new node, our own error.

Decides how much of a look the state of the watch asks for: nothing when the evidence is on disk, one look
at a job in its ordinary rhythm (it is to be stopped soon), two when it was silent or under suspicion. Runs
in a thread with a deadline; must not stop anybody.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from rankscope.agent.ending.stopped import Standing, stopped
from rankscope.agent.evidence.taker import EvidenceTaker, Incident
from rankscope.agent.failures.struck import Ends, how_it_ended
from rankscope.agent.observing.observer import Observer
from rankscope.agent.watching.watch import Watch
from rankscope.agent.workers.model import Launch
from rankscope.diag.model import Diagnosis, Evidence, JobSnapshot

LEAST_INTERVAL: Final = 2.0
"""Seconds between two looks from which they say something about activity."""
ORDINARY_SILENCE: Final = 2.0
"""Seconds without progress that are nothing unusual in a job of which little is known."""
TRAINING_LOOK: Final = 1.0
"""Seconds for the look at a job that trains: nobody will miss a stack of it, its checkpoint is waiting."""
_SECOND_LOOK: Final = 1.0
"""Seconds that a second look needs at least to be worth waiting for."""
_TO_JUDGE: Final = 1.0
_SHARE_TO_JUDGE: Final = 0.2
"""Seconds, and share of the time left, that are kept for the diagnosis and the disk."""
_PAUSE: Final = 0.02


@dataclass(frozen=True, slots=True)
class LastLook:
    """What was found.

    Attributes:
        standing: how the job was doing.
        silent: seconds without progress.
        diagnosis: stored already.
    """

    standing: Standing
    silent: float
    diagnosis: Diagnosis


def take_last_look(
    launch: Launch,
    observer: Observer,
    *,
    watch: Watch,
    evidence: EvidenceTaker,
    why: str,
    deadline: float,
    new_incident: Callable[[], str],
    ends: Callable[[], Ends],
    enough: Callable[[], None],
) -> LastLook | None:
    """Look at workers that are about to be stopped, and store what is found.

    Args:
        launch: the workers.
        observer: reads their page.
        watch: knows for how long nothing has moved.
        evidence: takes, judges and stores.
        why: what stops them.
        deadline: when it must be done, monotonic seconds.
        new_incident: makes an incident's id.
        ends: tells who has ended, and who of them of what stops the job.
        enough: called when nothing more is wanted of the workers; what was seen is stored after that.

    Returns:
        What was found; ``None`` when the open incident has its evidence on disk.
    """
    while watch.judging and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    if watch.stored_incident:
        return None
    name, first, silent = watch.opened()
    silent = min(silent, _since_step(launch, observer))
    standing, ever_moved = _standing(watch, silent), watch.ever_moved

    def look() -> JobSnapshot:
        trains = standing == "training"
        timeout = min(time_to_look(deadline), TRAINING_LOOK) if trains else time_to_look(deadline)
        seen = evidence.snapshot(launch, observer, timeout=timeout, exits=ends().causes, children=not trains)
        return ends().without_struck(seen)

    def closer(seen: JobSnapshot) -> JobSnapshot:
        return evidence.closer(seen, deadline=time.monotonic() + time_to_look(deadline))

    suspected = standing == "suspected"
    earlier = first if suspected else None
    a, b = (look(), None) if standing == "training" else _pair(earlier, look, closer, deadline, ends)
    if standing == "training":
        enough()
    struck = ends().struck

    def called(found: Diagnosis) -> Diagnosis:
        named = stopped(found, standing=standing, why=why, silent=silent, ever_moved=ever_moved)
        ended = (
            Evidence("exit", f"ended {how_it_ended(end.code)} as the job was stopped", rank)
            for rank, end in sorted(struck.items())
        )
        return replace(named, evidence=(*named.evidence, *ended))

    diagnosis = evidence.judge(
        Incident(
            (name if suspected else "") or new_incident(),
            a,
            b,
            silent_seconds=None if standing == "training" else silent,
            kept=True,
        ),
        called=called,
    )
    return LastLook(standing, silent, diagnosis)


def time_to_look(deadline: float) -> float:
    """Seconds that a look may take, so that some are left to judge and store it."""
    left = deadline - time.monotonic()
    return max(0.0, left - min(_TO_JUDGE, _SHARE_TO_JUDGE * left))


def _standing(watch: Watch, silent: float) -> Standing:
    if watch.suspected:
        return "suspected"
    return "training" if silent <= watch.ordinary_silence(ORDINARY_SILENCE) else "silent"


def _since_step(launch: Launch, observer: Observer) -> float:
    """Seconds since the youngest step of any rank, fresher than the watch's last tick."""
    known = (observer.progress(worker) for worker in launch.workers)
    steps = [one.seconds_since_step for one in known if one is not None]
    return min((since for since in steps if since is not None), default=math.inf)


def _pair(
    first: JobSnapshot | None,
    look: Callable[[], JobSnapshot],
    closer: Callable[[JobSnapshot], JobSnapshot],
    deadline: float,
    ends: Callable[[], Ends],
) -> tuple[JobSnapshot, JobSnapshot | None]:
    """Two looks far enough apart to tell what moves, if there is time for them, and the ranks are alive."""
    if first is None:
        first = look()
    if ends().struck:
        return first, None
    wait = max(0.0, first.time + LEAST_INTERVAL - time.time())
    if wait > LEAST_INTERVAL or time.monotonic() + wait + _SECOND_LOOK > deadline:
        return first, None
    time.sleep(wait)
    second = closer(look())
    return first, None if ends().struck else second
