"""A server for tests of the live page: its real routes, the real document of a stored job.

Ranks, events and answers come as a test wants them. It runs in a thread of its own, on a free port that it
keeps over ``stop`` and ``start``.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from aiohttp import web
from tests.deadline import DEADLINE
from tests.report_factory import a_big_job

from rankscope.agent.health.live import add_live_routes, read_live_page
from rankscope.diag.report.html import Page, page_data
from rankscope.diag.report.html.live_data import LivePage, Stands
from rankscope.diag.store.job import JobFolder

RECORDED: Final = Path(__file__).parents[1] / "notebooks" / "recorded" / "jobs"
NOW: Final = "2026-11-30T16:40:03.000Z"
RANKS: Final = "/v1/ranks"
ALIVE_INTERVAL: Final = 1.0
T = TypeVar("T")


def a_live_page(job: str) -> LivePage:
    """The document of a recorded job."""
    return read_live_page(JobFolder(RECORDED / job), made=NOW)


def a_ranks_answer(
    states: str = "wwhw",
    *,
    phase: str = "running",
    per_node: int = 8,
    step: int | None = 25,
    idle: float = 12.0,
) -> dict[str, object]:
    """What ``/v1/ranks`` says: a letter a rank (running, waiting, hung, suspected, exited)."""
    words = {"r": "running", "w": "waiting", "h": "hung", "s": "suspected", "x": "exited", "l": "slow"}
    suspected = [rank for rank, letter in enumerate(states) if letter == "s"]
    return {
        "schema": 1,
        "job": "loader-hang",
        "time": NOW,
        "phase": phase,
        "world_size": len(states),
        "restart_count": 0,
        "suspected": {"reason": "no progress for 12 s", "ranks": suspected} if suspected else None,
        "ranks": [
            {
                "rank": rank,
                "node": f"host-{rank // per_node:03}",
                "local_rank": rank % per_node,
                "pid": 4000 + rank,
                "state": words[letter],
                "step": None if step is None else step + rank % 2,
                "seconds_since_progress": idle + rank / 100,
                "steps_per_second": 0.0 if letter in "wh" else 5.25,
                "where": "",
            }
            for rank, letter in enumerate(states)
        ],
    }


def running(page: LivePage) -> LivePage:
    """The same job before its end, when all is well."""
    assert page.timeline is not None
    timeline = msgspec.structs.replace(page.timeline, state="running", ended=None)
    return msgspec.structs.replace(
        page, is_current=False, is_over=False, stands=Stands(restarts=page.stands.restarts), timeline=timeline
    )


def a_big_page(size: int) -> LivePage:
    """A hang of a job of many ranks, eight a node."""
    diagnosis, look = a_big_job(size)
    report = page_data(diagnosis, made=NOW, look=look)
    return msgspec.structs.replace(while_it_hangs(a_live_page("loader-hang")), job="big", report=report)


def while_it_hangs(page: LivePage) -> LivePage:
    """The same job at the time of its last incident."""
    assert page.report is not None
    word = f"{page.report.head.verdict}: {page.report.head.summary}"
    return msgspec.structs.replace(running(page), is_current=True, stands=Stands(word, is_alarm=True))


class LiveSite:
    """The server; its methods may be called from the test's thread."""

    def __init__(self, page: LivePage, ranks: dict[str, object], *, is_silent: bool = False) -> None:
        self.page = page
        self.is_silent = is_silent
        self.ranks = ranks
        self.analysis: list[web.Response | Page] = []
        self.hold_analysis = threading.Event()
        self.hold_analysis.set()
        self.refused: set[str] = set()
        self.last_ids: list[str | None] = []
        self.page_requests = 0
        self._streams: set[asyncio.Queue[bytes | None]] = set()
        self._opened = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="live-site")
        self._runner: web.AppRunner | None = None
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self._thread.start()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        self._run(self._start())

    def stop(self) -> None:
        """End the server, its streams included; the port stays its own."""
        self._run(self._stop())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()

    def say(self, event: str, data: object, event_id: str = "") -> None:
        """Send an event to all that listen."""
        identity = f"id: {event_id}\n" if event_id else ""
        text = f"event: {event}\n{identity}data: {json.dumps(data)}\n\n"
        self._loop.call_soon_threadsafe(self._to_all, text.encode())

    def say_ranks(self, ranks: dict[str, object]) -> None:
        self.ranks = ranks
        self.say("ranks", ranks)

    def cut(self) -> None:
        """Close all streams."""
        self._loop.call_soon_threadsafe(self._to_all, None)

    def wait_for_streams(self, count: int) -> None:
        """Until so many streams were opened, over all time."""
        with self._opened:
            assert self._opened.wait_for(lambda: len(self.last_ids) >= count, DEADLINE)

    def wait_for_pages(self, count: int) -> None:
        """Until the page was asked for so often, over all time."""
        with self._opened:
            assert self._opened.wait_for(lambda: self.page_requests >= count, DEADLINE)

    def _to_all(self, chunk: bytes | None) -> None:
        for queue in self._streams:
            queue.put_nowait(chunk)

    def _run(self, work: Coroutine[object, object, T]) -> T:
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(DEADLINE)

    async def _start(self) -> None:
        app = web.Application()
        add_live_routes(app)
        app.router.add_get("/v1/page", self._page)
        app.router.add_get(RANKS, self._ranks)
        app.router.add_get("/v1/stream", self._stream)
        app.router.add_post("/v1/analyze", self._analyze)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()

    async def _stop(self) -> None:
        self._to_all(None)
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    async def _page(self, _request: web.Request) -> web.Response:
        with self._opened:
            self.page_requests += 1
            self._opened.notify_all()
        if "page" in self.refused:
            return problem(503, "the disk does not answer")
        return web.Response(body=msgspec.json.encode(self.page), content_type="application/json")

    async def _ranks(self, _request: web.Request) -> web.Response:
        if "visit" in self.refused:
            return problem(401, "a token is needed")
        return web.json_response(self.ranks)

    async def _analyze(self, request: web.Request) -> web.Response:
        assert request.query.get("as") == "page"
        await asyncio.get_running_loop().run_in_executor(None, self.hold_analysis.wait, DEADLINE)
        answer = self.analysis.pop(0)
        if isinstance(answer, web.Response):
            return answer
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def _next(self, queue: asyncio.Queue[bytes | None]) -> bytes | None:
        """What is said next; a sign of life when there is nothing, unless the site is to be silent."""
        if self.is_silent:
            return await queue.get()
        try:
            return await asyncio.wait_for(queue.get(), ALIVE_INTERVAL)
        except (asyncio.TimeoutError, TimeoutError):
            return b"event: alive\ndata: {}\n\n"

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if "visit" in self.refused:
            return problem(401, "a token is needed")
        with self._opened:
            self.last_ids.append(request.headers.get("Last-Event-ID"))
            self._opened.notify_all()
        answer = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await answer.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._streams.add(queue)
        try:
            await answer.write(
                b"retry: 200\n\nevent: ranks\ndata: " + json.dumps(self.ranks).encode() + b"\n\n"
            )
            while (chunk := await self._next(queue)) is not None:
                await answer.write(chunk)
        except ConnectionResetError:
            pass  # the page was closed
        finally:
            self._streams.discard(queue)
        return answer


def problem(status: int, detail: str, **headers: str) -> web.Response:
    body = {"type": "about:blank", "title": "no", "status": status, "detail": detail}
    return web.json_response(
        body,
        status=status,
        content_type="application/problem+json",
        headers={k.replace("_", "-"): v for k, v in headers.items()},
    )
