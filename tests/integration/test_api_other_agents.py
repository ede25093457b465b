"""The ranks of other nodes, asked of their agents' real servers; and of what only looks like one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web
from tests.api_factory import TOKEN, ServedByHand, a_served_job
from tests.deadline import DEADLINE

from rankscope.agent.health.api import other_agents
from rankscope.agent.health.api.answers import RankEntry, RanksAnswer
from rankscope.agent.health.api.other_agents import OtherAgents
from rankscope.agent.health.offer import ApiOffer, Peer, offer_path, write_offer
from rankscope.agent.health.status import HealthStatus, WorkerHealth

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def peer_of(served: ServedByHand, node: str) -> Peer:
    return Peer(node, f"http://{served.address[0]}:{served.address[1]}")


def offers(served: ServedByHand, node: str, *peers: Peer) -> None:
    offer = ApiOffer(str(served.folder.path), node, TOKEN, peers=peers)
    write_offer(offer_path(served.page.path), offer)


def runs(served: ServedByHand, node: str, *ranks: int) -> None:
    workers = tuple(WorkerHealth(rank, at, 100 + rank, "running", step=7) for at, rank in enumerate(ranks))
    served.page.publish(HealthStatus(job="run-7", node=node, pid=os.getpid(), workers=workers))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedByHand, ServedByHand]]:
    """Two agents' servers, each of which knows the other."""
    here, there = (tmp_path_factory.mktemp(name) for name in ("here", "there"))
    with a_served_job(here) as one, a_served_job(there) as other:
        runs(one, "host-a", 0, 1)
        runs(other, "host-b", 2, 3)
        offers(one, "host-a", peer_of(other, "host-b"))
        offers(other, "host-b", peer_of(one, "host-a"))
        yield one, other


def test_each_tells_the_ranks_of_all(two: tuple[ServedByHand, ServedByHand]) -> None:
    for served in two:
        ranks = served.ask("/v1/ranks").json()["ranks"]
        assert [(one["rank"], one["node"], one["step"], one["source"]) for one in ranks[:4]] == [
            (0, "host-a", 7, "agent"),
            (1, "host-a", 7, "agent"),
            (2, "host-b", 7, "agent"),
            (3, "host-b", 7, "agent"),
        ]


def test_an_agent_may_be_asked_for_its_own_alone(two: tuple[ServedByHand, ServedByHand]) -> None:
    served, _other = two
    ranks = served.ask("/v1/ranks?of=node").json()["ranks"]
    assert [one["rank"] for one in ranks] == [0, 1]
    assert served.ask("/v1/ranks?of=job").status == 400


# What others answer.


def told(*ranks: int) -> web.Response:
    entries = tuple(RankEntry(rank, "host-b", rank, 100 + rank, "running", step=7) for rank in ranks)
    answer = RanksAnswer("run-7", "2026-11-30T00:00:00Z", "running", 4, 0, None, entries)
    return web.Response(body=msgspec.json.encode(answer))


@asynccontextmanager
async def a_peer(answer: Answer) -> AsyncGenerator[Peer]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield Peer("host-b", f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_agents, "INTERVAL", 0.02)
    monkeypatch.setattr(other_agents, "_EACH", 0.0)


async def until(others: OtherAgents, states: set[str]) -> None:
    async def told_so() -> None:
        while {one.state for one in await others.ranks()} != states:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.01)

    await asyncio.wait_for(told_so(), DEADLINE)


@pytest.mark.usefixtures("quick")
def test_who_stops_answering_is_not_observed_and_who_comes_back_is() -> None:
    async def scene() -> list[RankEntry]:
        answers = True

        async def answer(_request: web.Request) -> web.StreamResponse:
            return told(2, 3) if answers else web.Response(status=503)

        async with a_peer(answer) as peer:
            others = OtherAgents([peer], TOKEN)
            assert [one.rank for one in await others.ranks()] == [2, 3]
            assert others.world_size == 4
            answers = False
            await until(others, {"unobserved"})
            seen = list(await others.ranks())
            answers = True
            await until(others, {"running"})
            await others.close()
            return seen

    seen = asyncio.run(scene())
    assert [(one.rank, one.step, one.seconds_since_progress) for one in seen] == [
        (2, None, None),
        (3, None, None),
    ]


def test_who_never_answers_is_waited_for_once_and_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_agents, "_PATIENCE", 0.05)

    async def scene() -> None:
        asked = 0
        over = asyncio.Event()

        async def never(_request: web.Request) -> web.StreamResponse:
            nonlocal asked
            asked += 1
            await over.wait()
            return told(2)

        async with a_peer(never) as silent, a_peer(_tells_three) as peer:
            others = OtherAgents([silent, peer], TOKEN)
            assert [one.rank for one in await others.ranks()] == [3]
            assert [one.rank for one in await others.ranks()] == [3]
            await others.close()
            over.set()
        assert asked == 1

    asyncio.run(scene())


async def _tells_three(_request: web.Request) -> web.StreamResponse:
    return told(3)


def test_the_token_goes_where_it_should_and_what_is_no_answer_is_none() -> None:
    elsewhere: list[str] = []
    asked: list[tuple[str, str]] = []

    async def scene() -> None:
        async def other(request: web.Request) -> web.StreamResponse:
            elsewhere.append(request.path)
            return told(9)

        async def sends_on(request: web.Request) -> web.StreamResponse:
            asked.append((request.path_qs, request.headers["Authorization"]))
            raise web.HTTPFound(away.api + "/v1/ranks")

        async def junk(_request: web.Request) -> web.StreamResponse:
            return web.Response(body=b'{"ranks": 7}')

        async with a_peer(other) as away, a_peer(sends_on) as one, a_peer(junk) as two:
            nobody = Peer("gone", "http://127.0.0.1:1")
            others = OtherAgents([one, two, nobody, Peer("odd", "no url")], TOKEN)
            assert await others.ranks() == []
            await others.close()
            assert await others.ranks() == ()

    asyncio.run(scene())
    assert asked == [("/v1/ranks?of=node", f"Bearer {TOKEN}")]
    assert elsewhere == []


def test_an_answer_that_comes_in_pieces_is_read_whole_and_one_without_end_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(other_agents, "_PATIENCE", DEADLINE)
    monkeypatch.setattr(other_agents, "_LARGEST", 1 << 20)

    async def scene() -> int:
        async def many(_request: web.Request) -> web.StreamResponse:
            return told(*range(4000))

        async def endless(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                while True:
                    await response.write(b" " * 65536)
            return response

        async with a_peer(many) as one, a_peer(endless) as two:
            others = OtherAgents([one, two], TOKEN)
            found = await others.ranks()
            await others.close()
            return len(found)

    assert asyncio.run(scene()) == 4000


def test_a_large_job_is_asked_in_turn_at_the_same_rate() -> None:
    peers = [Peer(f"node{number}", f"http://127.0.0.1:{1000 + number}") for number in range(256)]
    few, many = (OtherAgents(peers[:count], TOKEN) for count in (2, 256))
    assert few._interval == other_agents.INTERVAL
    assert len(peers) / many._interval == pytest.approx(20)


def test_alone_nobody_is_asked() -> None:
    assert asyncio.run(OtherAgents([], TOKEN).ranks()) == ()


# Settings.


async def change(peer: Peer) -> dict[str, str]:
    others = OtherAgents([peer], TOKEN)
    try:
        return await others.change_settings({"job-hang-interval": 60})
    finally:
        await others.close()


def test_a_change_is_handed_on_for_that_agent_alone_with_the_token() -> None:
    asked: list[tuple[str, str, str, object]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(
            (request.method, request.path_qs, request.headers["Authorization"], await request.json())
        )
        return web.json_response({"job": "run-7"})

    async def scene() -> dict[str, str]:
        async with a_peer(answer) as peer:
            return await change(peer)

    assert asyncio.run(scene()) == {"host-b": "changed"}
    body = {"change": {"job-hang-interval": 60}}
    assert asked == [("PATCH", "/v1/settings?of=node", f"Bearer {TOKEN}", body)]


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (422, b'{"detail": "job-hang-interval: at least 1"}', "job-hang-interval: at least 1"),
        (503, b"{}", "its agent refused it (503)"),
        (200 + 102, b"", "its agent refused it (302)"),
        (500, b"no json", "its agent did not answer"),
        (500, b" " * (100 << 10), "its agent refused it (500)"),
    ],
    ids=["refused", "without a word", "redirected", "damaged", "much too long"],
)
def test_why_a_node_does_not_take_it_is_said(status: int, body: bytes, why: str) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers={"Location": "/elsewhere"})

    async def scene() -> dict[str, str]:
        async with a_peer(answer) as peer:
            return await change(peer)

    assert asyncio.run(scene()) == {"host-b": why}


def test_a_node_that_does_not_answer_is_waited_for_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_agents, "_CHANGE_PATIENCE", 0.05)

    async def scene() -> dict[str, str]:
        over = asyncio.Event()

        async def answer(_request: web.Request) -> web.StreamResponse:
            await over.wait()
            return web.Response()

        async with a_peer(answer) as peer:
            try:
                return await change(peer)
            finally:
                over.set()

    assert asyncio.run(scene()) == {"host-b": "its agent did not answer"}
