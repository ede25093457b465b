"""The trial beside a job: plain torchrun launched it, and ``diag analyze`` is asked once it stands.

A job stands when the line before its fault has been printed and no step's line has come for some seconds
since; a longer time than its steps have taken so far, for a machine may be busy. Its processes are not looked
at: what they do is what is to be found out.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from typing import Final

import msgspec
from tests.faults.draw import Draw
from tests.faults.found import Found, answer_of
from tests.faults.rows import Answer, Beside
from tests.jobs import Job, last_line

from rankscope.diag.model import Diagnosis

_LOOK: Final = 0.1
_STEP: Final = re.compile(r"^step (\d+)\b", re.MULTILINE)
_TIMES_THE_LONGEST: Final = 3.0
"""Steps of the same job on the same machine differ by less, start-up left out."""


@dataclass
class Pace:
    """When the steps of a job were printed.

    Attributes:
        step: the last one, -1 before the first.
        since: when it was seen.
        longest: seconds between two of them, start-up left out.
        seen: how many.
    """

    step: int = -1
    since: float = 0.0
    longest: float = 0.0
    seen: int = 0

    def note(self, text: str, now: float) -> None:
        """Read what the job has printed so far."""
        steps = [int(number) for number in _STEP.findall(text)]
        if not steps or max(steps) <= self.step:
            return
        if self.seen > 1:
            self.longest = max(self.longest, now - self.since)
        self.step, self.since, self.seen = max(steps), now, self.seen + 1

    def stands(self, now: float, quiet: float) -> bool:
        """Whether no step came for so long, or for a multiple of the longest."""
        return now - self.since >= max(quiet, _TIMES_THE_LONGEST * self.longest)


def look_beside(job: Job, beside: Beside, draw: Draw, *, deadline: float, given_up: threading.Event) -> Found:
    """Wait until the job stands, and ask ``diag analyze``.

    Raises:
        AssertionError: it never stood.
    """
    ended = _wait(job, beside, draw, deadline, given_up)
    if ended is not None:
        return Found(Answer("ended"), exit_code=ended, remark=last_line(job))
    if given_up.is_set():
        return Found(Answer("given up"))
    began = time.monotonic()
    done = job.diag("analyze", job.run_id, "--json", *beside.flags)
    seconds = time.monotonic() - began
    try:
        diagnosis = msgspec.json.decode(done.stdout, type=Diagnosis)
    except msgspec.DecodeError as error:
        said = done.stderr.decode(errors="replace").strip()
        return Found(Answer(f"exit {done.returncode}"), remark=f"{error}: {said[-500:]}")
    return Found(
        answer_of(diagnosis),
        severities=(diagnosis.severity,),
        seconds=seconds,
        remark=f"{diagnosis.severity}, {diagnosis.confidence}: {diagnosis.summary}",
    )


def _wait(job: Job, beside: Beside, draw: Draw, deadline: float, given_up: threading.Event) -> int | None:
    """Wait until it is time to look; the job's exit code when it has ended before that."""
    assert job.process is not None
    after = beside.after.format(at=draw.at, before=draw.at - 1, rank=draw.rank)
    pace, printed = Pace(), None
    while not given_up.wait(_LOOK):
        now = time.monotonic()
        assert now < deadline, f"the job did not stand after {after!r} in time"
        text, code = job.stdout, job.process.poll()
        pace.note(text, now)
        if code is not None:
            return code
        if printed is None and _is_printed(after, text, pace):
            printed = now
        if printed is None or now - printed < beside.quiet:
            continue
        if beside.goes_on or pace.stands(now, beside.quiet):
            return None
    return None


def _is_printed(after: str, text: str, pace: Pace) -> bool:
    step = _STEP.match(after)
    return after in text if step is None else pace.step >= int(step[1])
