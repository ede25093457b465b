"""One job as the API serves it: its token, its records, its agent's control socket, its ranks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from rankscope.agent.control.client import ControlClient
from rankscope.agent.control.messages import ControlError, Value, refused
from rankscope.agent.health.api.access import Access
from rankscope.agent.health.api.other_agents import OtherAgents
from rankscope.agent.health.api.questions import Followed, FollowEvents, Unwritten
from rankscope.agent.health.api.reading import Reading
from rankscope.agent.health.api.sources import AllRanks, StoredElsewhere, ThisNode
from rankscope.agent.health.offer import ApiOffer, OfferReader
from rankscope.agent.health.status import PageView
from rankscope.diag.store.job import JobFolder

_CONTROL_SECONDS: Final = 2.0
_UNWRITTEN_SECONDS: Final = 1.0
"""For which what an agent has in memory is used again."""

_FOLLOW_SECONDS: Final = 0.9
"""For which an answer is shared: less than a stream's turn, so that none is told the same one twice."""

View = Callable[[], PageView | None]


class ServedJob:
    """What is needed to answer for one job.

    Attributes:
        offer: what the agent gave.
        access: who may ask.
        reading: its records.
        ranks: its ranks.
    """

    def __init__(self, offer: ApiOffer, view: View) -> None:
        self.offer = offer
        self.access = Access(offer.token)
        self.reading = Reading(Path(offer.job_folder))
        self._control = ControlClient(offer.control)
        self._others = OtherAgents(offer.peers, offer.token)
        stored = StoredElsewhere(self.reading, offer.node)
        self.ranks = AllRanks(view, [ThisNode(view), self._others, stored])
        self._view = view
        self._unwritten = Unwritten()
        self._unwritten_until = 0.0
        self._followed: dict[bytes, tuple[float, asyncio.Future[Followed] | None]] = {}

    async def close(self) -> None:
        """End its reader, and what is asked of others."""
        await self._others.close()
        await self.reading.close()

    @property
    def control(self) -> ControlClient:
        """Its agent.

        Raises:
            ControlError: there is none that could be asked.
        """
        if not self.offer.control:
            raise refused("unavailable", "this server has no agent that it could ask")
        return self._control

    async def change_settings_elsewhere(self, change: Mapping[str, Value]) -> dict[str, str]:
        """Hand a change on to the agents of the job's other nodes; what became of it by node."""
        return await self._others.change_settings(change)

    @property
    def name(self) -> str:
        """The job's run id."""
        return JobFolder(Path(self.offer.job_folder)).run_id

    @property
    def phase(self) -> str:
        """Of the agent, now."""
        view = self._view()
        return view.phase.name if view is not None else "ended"

    async def unwritten(self) -> Unwritten:
        """What the agent has in memory, asked for only while it says that it cannot write."""
        if not self._cannot_write():
            return Unwritten()
        if time.monotonic() >= self._unwritten_until:
            try:
                told = await self.control.records(timeout=_CONTROL_SECONDS)
                self._unwritten = Unwritten(told.events, told.diagnoses)
            except ControlError:
                self._unwritten = Unwritten()
            self._unwritten_until = time.monotonic() + _UNWRITTEN_SECONDS
        return self._unwritten

    async def follow(self, question: FollowEvents) -> Followed:
        """A piece of the log; clients that are at the same place share one answer.

        Raises:
            NoAnswerError: there is none.
        """
        key, now = msgspec.json.encode(question), time.monotonic()
        until, answer = self._followed.get(key, (0.0, None))
        if answer is None or now >= until:
            self._followed = {one: kept for one, kept in self._followed.items() if kept[0] > now}
            answer = asyncio.ensure_future(self._follow(question))
            self._followed[key] = now + _FOLLOW_SECONDS, answer
        return await asyncio.shield(answer)

    async def _follow(self, question: FollowEvents) -> Followed:
        return msgspec.json.decode(await self.reading.ask(question), type=Followed)

    def _cannot_write(self) -> bool:
        view = self._view()
        if view is None or view.status is None or not self.offer.control:
            return False
        checks = view.status.checks.items()
        return any(name.startswith("store") and check.status != "pass" for name, check in checks)


class ServedJobs:
    """The job that is served now: another one as soon as the agent offers another.

    Attributes:
        closing: set when the server ends: streams say good-bye then.
    """

    def __init__(self, offers: OfferReader, view: View) -> None:
        self._offers = offers
        self._view = view
        self._job: ServedJob | None = None
        self._left: set[asyncio.Task[None]] = set()
        self.closing = asyncio.Event()

    def now(self) -> ServedJob | None:
        """The job, ``None`` while the agent offers none."""
        offer = self._offers.read()
        if self._job is not None and self._job.offer == offer:
            return self._job
        self._leave()
        self._job = ServedJob(offer, self._view) if offer is not None else None
        return self._job

    def is_over(self) -> bool:
        """Whether the agent has ended."""
        return self._view() is None

    def _leave(self) -> None:
        if self._job is not None:
            task = asyncio.create_task(self._job.close(), name="rankscope-health-leave")
            self._left.add(task)
            task.add_done_callback(self._left.discard)

    async def close(self) -> None:
        """End the reader."""
        job, self._job = self._job, None
        if job is not None:
            await job.close()
        if self._left:
            await asyncio.wait(list(self._left), timeout=1.0)
