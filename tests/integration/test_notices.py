"""Notices through a real desk to a real HTTP server: what is sent, and what is told of it."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.health_factory import PATIENCE, eventually
from tests.notices_factory import (
    PATIENT,
    QUICK,
    SECRET,
    a_receiver,
    an_event,
    arrive,
    bodies,
    hangs,
    ok,
    processes,
    sending,
    settings,
    status,
)

from rankscope.agent.notices.delivery import Notices


def test_an_event_is_posted_as_a_cloudevent_in_structured_mode() -> None:
    with a_receiver() as receiver, sending(settings(f"{receiver.url}/hook?x=1"), limits=PATIENT) as sent:
        sent.offer(an_event(1))
        arrive(receiver, "id-1")
        (request,) = receiver.requests
        assert request.line == "POST /hook?x=1 HTTP/1.1"
        assert request.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
        assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
        assert request.json()["job"] == "run-7"
        assert request.json()["data"] == {"action": "restart", "reason": "reason 1"}
        sent.all_arrive()
        assert len(receiver.requests) == 1


def test_slack_gets_its_text() -> None:
    with a_receiver(status(200, body="ok")) as receiver:
        with sending(settings(receiver.url, slack=True), limits=PATIENT) as sent:
            sent.offer(an_event(1))
            eventually(lambda: bool(receiver.requests), "the text arrives")
        assert receiver.requests[0].headers["content-type"] == "application/json; charset=utf-8"
        assert receiver.requests[0].json() == {"text": "*run-7* on host-a: restart: reason 1"}


def test_only_what_was_asked_for_is_sent() -> None:
    with a_receiver() as receiver, sending(settings(receiver.url, topics=["end"]), limits=PATIENT) as sent:
        sent.offer(
            an_event(1), an_event(2, "notice.failed"), an_event(3, "suspected"), an_event(4, "job.ended")
        )
        arrive(receiver, "id-4")
        sent.notices.close()
        assert bodies(receiver) == ["id-4"]


def test_nothing_asked_for_starts_nothing() -> None:
    with (
        sending(settings()) as sent,
        sending(settings("http://127.0.0.1:9", topics=[])) as silent,
    ):
        sent.offer(an_event())
        silent.offer(an_event())
        assert processes() == []


def test_headers_come_from_the_file_and_secrets_are_seen_nowhere(tmp_path: Path) -> None:
    with a_receiver(hangs, status(500, body=SECRET), status(404, body=SECRET), ok) as receiver:
        hook = tmp_path / "hook"
        place = f"127.0.0.1:{receiver.port}/{SECRET}?key={SECRET}"
        hook.write_text(f"http://{SECRET}:{SECRET}@{place}\nX-Token: {SECRET}\n")
        with sending(settings(f"@{hook}"), limits=replace(QUICK, tries=9, try_seconds=3)) as sent:
            sent.offer(an_event(1), an_event(2))
            eventually(lambda: len(processes()) > 1, "a try is under way")
            for process in processes():
                with contextlib.suppress(psutil.Error):  # it may just have ended
                    assert SECRET not in " ".join(process.cmdline())
                    assert SECRET not in str(process.environ())
            arrive(receiver, "id-2")
            sent.fails(1)
            assert receiver.requests[0].headers["x-token"] == SECRET
            assert receiver.requests[0].headers["authorization"].startswith("Basic ")
            assert SECRET in receiver.requests[0].line
            assert SECRET not in sent.shown
            assert SECRET not in str(vars(sent.notices))
            assert sent.failed[0]["reason"] == "HTTP 404 Not Found"
            assert sent.failed[0]["tries"] == 3
            sent.notices.close(PATIENCE)


def test_what_cannot_be_used_is_said_and_the_job_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_HOOK", raising=False)
    with sending(settings("env:NO_SUCH_HOOK")) as sent:
        sent.offer(an_event(1))
        assert sent.said == [
            "no notices: --webhook env:NO_SUCH_HOOK: there is no such variable, or it is empty"
        ]


def test_an_address_on_the_command_line_is_warned_of() -> None:
    url = f"http://127.0.0.1:9/{SECRET}"
    with sending(settings(url, sources={"webhook": "--webhook"})) as sent:
        assert len(sent.said) == 1
        assert "@FILE or env:NAME" in sent.said[0]
        assert SECRET not in sent.said[0]


def test_an_observer_that_raises_loses_nothing_else() -> None:
    def raises(data: dict[str, object]) -> None:
        raise RuntimeError

    with a_receiver(status(404), ok) as receiver:
        notices = Notices(settings(receiver.url), lambda text: None, raises, limits=PATIENT)
        try:
            notices.offer(an_event(1))
            notices.offer(an_event(2))
            arrive(receiver, "id-1", "id-2")
        finally:
            notices.close()


def test_data_that_are_no_json_fail_alone() -> None:
    with a_receiver() as receiver, sending(settings(receiver.url), limits=PATIENT) as sent:
        sent.offer(an_event(1, "message", content=threading.Lock()), an_event(2))
        arrive(receiver, "id-2")
        assert sent.failed[0]["reason"] == "no JSON can be made of it: TypeError"
