"""What is sent: CloudEvents JSON that its specification allows, one sentence for Slack; answers judged."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error

import pytest
from tests.notices_factory import an_event

from rankscope.agent.notices.payload import MAX_BYTES, cloudevent, sentence, slack
from rankscope.agent.notices.post import MAX_WAIT, explain, judge, retry_seconds
from rankscope.agent.notices.topics import TOPICS
from rankscope.diag.store.events import Event


def test_a_cloudevent_has_the_required_attributes_and_no_null() -> None:
    found = json.loads(cloudevent(an_event(3), job="run-7"))
    assert found == {
        "specversion": "1.0",
        "id": "id-3",
        "source": "host-a",
        "type": "rankscope.decision",
        "time": "2026-11-30T08:00:00.000Z",
        "datacontenttype": "application/json",
        "job": "run-7",
        "data": {"action": "restart", "reason": "reason 3"},
    }


def test_a_cloudevent_keeps_its_subject() -> None:
    event = Event(id="1", source="host-a", type="rankscope.slow", time="t", subject="20261130T080000Z-1234")
    assert json.loads(cloudevent(event, job=""))["subject"] == "20261130T080000Z-1234"


def test_a_cloudevent_that_is_too_long_is_cut_and_says_so() -> None:
    event = an_event(1, content="x" * (2 * MAX_BYTES), ranks=list(range(50_000)), rank=3)
    body = cloudevent(event, job="run-7")
    assert len(body) < MAX_BYTES
    data = json.loads(body)["data"]
    assert data["cut"] is True
    assert data["rank"] == 3
    assert data["content"] == "x" * 1000


@pytest.mark.parametrize("name", sorted(name for names in TOPICS.values() for name in names))
def test_every_event_has_a_sentence_even_without_its_data(name: str) -> None:
    assert sentence(Event(id="1", source="h", type=f"rankscope.{name}", time="t"))


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        (
            "incident.confirmed",
            {"verdict": "RankNonCommHang", "summary": "rank 2"},
            "RankNonCommHang: rank 2",
        ),
        ("incident.recovered", {"seconds": 12.5}, "recovered by itself after 12.5 s"),
        ("worker.failed", {"rank": 1, "exit_code": -9, "message": ""}, "rank 1 ended with exit code -9"),
        ("decision", {"action": "fail", "reason": "why"}, "fail: why"),
        ("restart", {"restarts": 2, "reason": "why"}, "workers run again (restart 2): why"),
        ("message", {"rank": 3, "content": "hello"}, "rank 3 says: hello"),
        ("message", {"content": "all workers continued"}, "all workers continued"),
        ("settings.changed", {"rank": 0, "values": {"a": 1}}, 'rank 0 set {"a":1}'),
        (
            "settings.changed",
            {"changed": {"on-hang": {"old": "auto", "new": "log"}}, "by": "127.0.0.1"},
            'settings changed: {"on-hang":{"old":"auto","new":"log"}}',
        ),
        ("stopping", {"reason": "SIGTERM"}, "workers are stopped: SIGTERM"),
        ("job.ended", {"result": "failed", "exit_code": 75}, "failed, exit code 75"),
        ("isolated", {"node": "b"}, 'isolated {"node":"b"}'),
    ],
)
def test_a_sentence_tells_what_happened(name: str, data: dict[str, object], text: str) -> None:
    assert sentence(an_event(0, name, **data)) == text


def test_slack_gets_one_text_in_which_nothing_is_markup() -> None:
    event = an_event(0, "message", rank=3, content="<!channel> a & b")
    assert json.loads(slack(event, job="run-7")) == {
        "text": "*run-7* on host-a: rank 3 says: &lt;!channel&gt; a &amp; b"
    }


def test_a_long_sentence_is_cut() -> None:
    assert len(sentence(an_event(0, "message", content="x" * 9000))) == 3003


NOW = 1_000_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 1.5 ", 1.5),
        ("Sun, 09 Sep 2001 01:47:40 GMT", 60.0),
        ("Sun, 09 Sep 2001 01:40:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_WAIT),
        ("999999999", MAX_WAIT),
        ("soon", None),
        ("-5", None),
        ("9" * 400, None),
        ("Sun, 99 Sep 2001", None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_a_number_or_a_date(text: str, seconds: float | None) -> None:
    assert retry_seconds(text, now=NOW) == seconds


@pytest.mark.parametrize(
    ("status", "again"),
    [
        *((status, False) for status in (400, 401, 403, 404, 410, 413)),
        *((status, True) for status in (408, 425, 429, 500, 502, 503, 504)),
    ],
)
def test_only_what_may_become_better_is_tried_again(status: int, again: bool) -> None:
    assert judge(status, None, now=NOW)["again"] is again


def test_a_wait_is_taken_from_an_answer_that_is_worth_another_try() -> None:
    assert judge(429, "7", now=NOW) == {
        "reason": "HTTP 429 Too Many Requests, asks to wait 7 s",
        "again": True,
        "wait": 7.0,
    }
    assert judge(404, "7", now=NOW)["wait"] is None
    assert judge(307, "7", now=NOW) == {
        "reason": "HTTP 307 Temporary Redirect: redirects are not followed",
        "again": False,
    }


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            urllib.error.URLError(socket.gaierror(-2, "Name or service not known")),
            "the host's name is not found",
        ),
        (urllib.error.URLError(ConnectionRefusedError(111, "Connection refused")), "Connection refused"),
        (TimeoutError("timed out"), "no answer in time"),
        (http.client.RemoteDisconnected("s3cret"), "the server closed the connection"),
        (http.client.BadStatusLine("s3cret"), "its first line is no HTTP"),
        (ssl.SSLError(1, "s3cret"), "TLS failed"),
        (ValueError("https://host/s3cret"), "not sent: ValueError"),
        (OSError("s3cret"), "not sent: OSError"),
    ],
)
def test_an_error_is_explained_without_its_own_text(error: Exception, text: str) -> None:
    assert text in explain(error)
    assert "s3cret" not in explain(error)
