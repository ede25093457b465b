"""One page after the other: a sample of the job, with what its agent has said of it."""

from __future__ import annotations

import socket
import time

from rankscope.diag.store.events import iso_time
from rankscope.diag.top.following import Following
from rankscope.diag.top.model import TopPage
from rankscope.diag.top.rates import Rates
from rankscope.diag.top.sampling import EventFollower, Sampler
from rankscope.diag.top.standing import standing_of


class Pages:
    """Looks at one job, again and again. Close it."""

    def __init__(self, following: Following) -> None:
        """Nothing is looked at yet."""
        self._following = following
        self._sampler = Sampler()
        self._events = EventFollower(following.folder.path if following.folder is not None else None)
        self._rates = Rates()
        self._host = socket.gethostname()

    def take(self) -> TopPage:
        """The job now."""
        job = self._following.now()
        sample = self._sampler.take(job)
        standing = standing_of(self._events.events())
        rows = self._rates.rows(sample, standing)
        return TopPage(
            job=self._following.run_id,
            host=self._host,
            time=iso_time(time.time()),
            world_size=max(job.world_size if job is not None else 0, len(rows)),
            ranks=rows,
            restarts=standing.restarts,
            word=standing.word,
            is_alarm=standing.is_alarm,
        )

    def close(self) -> None:
        """Let go of the pages."""
        self._sampler.close()
