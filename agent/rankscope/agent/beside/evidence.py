"""Takes evidence of a job that is not ours: ranks of other hosts are said to be unobserved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import msgspec

from rankscope.agent.beside.observer import BesideObserver
from rankscope.agent.evidence.taker import EvidenceTaker
from rankscope.agent.observing.observer import Observer
from rankscope.agent.records.folder import Records
from rankscope.agent.workers.model import Launch
from rankscope.diag.capture.plan import Backend
from rankscope.diag.classify import Catalogue
from rankscope.diag.discover import FoundJob
from rankscope.diag.live import absent_ranks
from rankscope.diag.model import ExitFacts, JobSnapshot

ELSEWHERE: Final = "not on this host; run `diag watch` or `diag analyze` on its node"
NO_SIGNAL: Final[tuple[Backend, ...]] = ("py-spy", "pystack")
"""Ways to stacks that send the job no signal: faulthandler's interrupts a sleep."""


class BesideEvidence(EvidenceTaker):
    """The agent's evidence taker, for workers that may be a part of the job only.

    Args:
        job: the job's name.
        records: where snapshots and diagnoses are kept.
        catalogue: what frames mean.

    Attributes:
        found: the job as it was found, which says what ranks this host was given.
    """

    def __init__(self, job: str, records: Records, *, catalogue: Catalogue) -> None:
        super().__init__(job, records, catalogue=catalogue, backends=NO_SIGNAL)
        self._observer: Observer | None = None
        self.found: FoundJob | None = None

    def snapshot(
        self,
        launch: Launch,
        observer: Observer,
        *,
        timeout: float,
        exits: Mapping[int, ExitFacts],
        children: bool = True,
    ) -> JobSnapshot:
        """Look at all ranks of ``launch``; see ``EvidenceTaker.snapshot``."""
        self._observer = observer
        with self._capturing():
            seen = super().snapshot(launch, observer, timeout=timeout, exits=exits, children=children)
        here = {worker.rank for worker in launch.workers}
        absent = absent_ranks(self.found, launch.world_size, here, elsewhere=ELSEWHERE)
        return msgspec.structs.replace(seen, ranks=(*seen.ranks, *absent))

    def closer(self, seen: JobSnapshot, *, deadline: float = math.inf) -> JobSnapshot:
        """Look again for C++ frames; see ``EvidenceTaker.closer``."""
        with self._capturing():
            return super().closer(seen, deadline=deadline)

    def _capturing(self) -> AbstractContextManager[None]:
        observer = self._observer
        return observer.capturing() if isinstance(observer, BesideObserver) else nullcontext()
