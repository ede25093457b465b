"""Has a job looked at, again and again, as somebody outside would."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Generator
from http import HTTPStatus
from typing import Final

from tests.jobs import Job
from tests.soak.door import Door, ask
from tests.soak.samples import Captures

_INTERVAL: Final = "1"
"""Seconds between the two looks of a ``diag analyze``."""


class Capturer(threading.Thread):
    """Has the job looked at, again and again, as somebody outside would.

    Args:
        job: that is looked at.
        door: where it is asked; without an API the command ``diag analyze`` is run.
        every: seconds between two beginnings.
    """

    def __init__(self, job: Job, door: Door, every: float) -> None:
        super().__init__(name="soak-captures", daemon=True)
        self._job = job
        self._door = door
        self._every = every
        self._over = threading.Event()
        self._verdicts: Counter[str] = Counter()
        self._failures: list[str] = []
        self._put_off = 0

    def run(self) -> None:
        """Until it is over."""
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._every, time.monotonic())
            try:
                verdict = self._look()
                if verdict is None:
                    self._put_off += 1
                else:
                    self._verdicts[verdict] += 1
            except (OSError, ValueError, LookupError, AssertionError, http.client.HTTPException) as error:
                self._failures.append(f"{type(error).__name__}: {error}"[:300])

    def _look(self) -> str | None:
        """One capture; its verdict, ``None`` when the agent says to come again: it is at another look."""
        if self._door.api is None:
            return str(self._job.analyze_json("--interval", _INTERVAL, self._job.run_id)[1]["verdict"])
        status, body = ask(self._door.api, "POST", "/v1/analyze", self._door.headers)
        if status in (HTTPStatus.CONFLICT, HTTPStatus.SERVICE_UNAVAILABLE):
            return None
        if status != HTTPStatus.OK:
            raise ValueError(f"{status}: {body[:200].decode(errors='replace')}")
        return str(json.loads(body)["verdict"])

    def end(self) -> Captures:
        """The one under way is the last one; what all have found."""
        self._over.set()
        self.join()
        how = "diag analyze" if self._door.api is None else "POST /v1/analyze"
        return Captures(how, dict(self._verdicts), self._failures, self._put_off)


@contextlib.contextmanager
def capturing(job: Job, door: Door, every: float) -> Generator[Capturer]:
    """Captures until it is left."""
    capturer = Capturer(job, door, every)
    capturer.start()
    try:
        yield capturer
    finally:
        capturer.end()
