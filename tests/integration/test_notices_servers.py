"""Notices to HTTP servers that misbehave as badly as they can, over TLS and through a proxy."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.health_factory import PATIENCE, eventually
from tests.notices_factory import (
    PATIENT,
    QUICK,
    SECRET,
    Answer,
    Receiver,
    a_receiver,
    an_event,
    arrive,
    bodies,
    closes_early,
    closes_in_mid_answer,
    closes_in_mid_body,
    drips,
    endless,
    hangs,
    ok,
    resets,
    sending,
    settings,
    status,
    talks_nonsense,
)

ENDLESS: list[Answer] = [
    hangs,
    drips,
    endless(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.01),
]
FAULTS: list[tuple[Answer, str]] = [
    (endless(b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n"), "no whole answer: HTTPException"),
    (endless(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 4096), "no whole answer: a line of it is too long"),
    (closes_early, "no whole answer: the server closed the connection"),
    (closes_in_mid_answer, "no whole answer: its first line is no HTTP"),
    (talks_nonsense, "no whole answer: its first line is no HTTP"),
    (resets, "no whole answer: the server reset the connection"),
    (status(500), "HTTP 500 Internal Server Error"),
    (endless(b"HTTP/1.1 503 X\r\n\r\n", b"x" * 4096), "HTTP 503 Service Unavailable"),
    (status(429, "Retry-After: 0.05"), "HTTP 429 Too Many Requests, asks to wait 0 s"),
]


@pytest.mark.parametrize("is_slack", [False, True], ids=["cloudevents", "slack"])
def test_every_fault_of_a_server_has_its_reason(is_slack: bool) -> None:
    wanted, limits = [reason for _, reason in FAULTS], replace(PATIENT, tries=1)
    with a_receiver(*(fault for fault, _ in FAULTS)) as receiver:
        with sending(settings(receiver.url, slack=is_slack), limits=limits) as sent:
            sent.offer(*map(an_event, range(len(FAULTS))))
            assert [one["reason"] for one in sent.fails(len(FAULTS))] == wanted
        assert len(receiver.requests) == len(FAULTS)
        assert len(sent.said) == 1


def test_an_answer_without_end_is_ended_at_the_deadline() -> None:
    with a_receiver(*ENDLESS) as receiver, sending(settings(receiver.url)) as sent:
        sent.offer(an_event(1), an_event(2))
        assert [one["reason"] for one in sent.fails(2)] == ["no answer in 0.4 s"] * 2


def test_a_notice_is_given_up_once_when_the_fault_stays() -> None:
    with a_receiver(status(500)) as receiver, sending(settings(receiver.url), limits=PATIENT) as sent:
        sent.offer(an_event(1))
        (failed,) = sent.fails(1)
        assert failed == {
            "target": f"webhook {receiver.url}",
            "notice": "id-1",
            "type": "rankscope.decision",
            "reason": "HTTP 500 Internal Server Error",
            "tries": PATIENT.tries,
            "seconds": failed["seconds"],
        }
        assert bodies(receiver) == ["id-1"] * PATIENT.tries
        assert sent.said == [f"a notice did not reach webhook {receiver.url}: HTTP 500 Internal Server Error"]


def test_a_notice_comes_through_when_the_fault_is_over() -> None:
    with (
        a_receiver(
            hangs, closes_in_mid_answer, status(500), status(429, "Retry-After: 0.05"), ok
        ) as receiver,
        sending(settings(receiver.url), limits=replace(QUICK, tries=9, try_seconds=3)) as sent,
    ):
        sent.offer(an_event(1), an_event(2))
        arrive(receiver, *["id-1"] * 5, "id-2")
        sent.all_arrive()


def test_an_answer_that_breaks_off_after_its_status_counts_by_the_status() -> None:
    answers = (closes_in_mid_body, endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 4096), ok)
    with a_receiver(*answers) as receiver, sending(settings(receiver.url), limits=PATIENT) as sent:
        sent.offer(an_event(1), an_event(2), an_event(3))
        arrive(receiver, "id-1", "id-2", "id-3")
        sent.all_arrive()


def test_a_server_that_is_down_and_comes_back_gets_the_notices_in_order() -> None:
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        port = placeholder.getsockname()[1]
    limits = replace(PATIENT, tries=1000, longest_pause=0.05)
    with sending(settings(f"http://127.0.0.1:{port}"), limits=limits) as sent:
        sent.offer(*map(an_event, range(5)))
        receiver = Receiver([ok], listener=socket.create_server(("127.0.0.1", port)))
        thread = threading.Thread(target=receiver.serve)
        thread.start()
        try:
            arrive(receiver, *(f"id-{number}" for number in range(5)))
            sent.all_arrive()
        finally:
            receiver.close()
            thread.join(PATIENCE)


def test_a_server_that_stays_down_is_said_once_and_recorded_for_each_notice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        port = placeholder.getsockname()[1]
    with sending(settings(f"http://127.0.0.1:{port}"), limits=PATIENT) as sent:
        sent.offer(an_event(1), an_event(2))
        failed = sent.fails(2)
        assert [one["notice"] for one in failed] == ["id-1", "id-2"]
        assert failed[0]["reason"] == "no connection: Connection refused"
        assert len(sent.said) == 1


def test_a_name_that_is_not_found_is_no_secret_told() -> None:
    with sending(settings(f"http://no-such-host.invalid/{SECRET}"), limits=PATIENT) as sent:
        sent.offer(an_event(1))
        (failed,) = sent.fails(1)
        assert "the host's name is not found" in str(failed["reason"])
        assert SECRET not in sent.shown


def test_order_is_kept_while_every_other_try_fails() -> None:
    answers = [status(500), ok] * 10
    with a_receiver(*answers) as receiver, sending(settings(receiver.url), limits=PATIENT) as sent:
        sent.offer(*map(an_event, range(10)))
        eventually(lambda: len(receiver.requests) == 20, "all notices arrive")
        sent.all_arrive()
        assert bodies(receiver) == [f"id-{number}" for number in range(10) for _ in range(2)]


def test_a_server_that_asks_to_wait_is_left_alone_meanwhile() -> None:
    with (
        a_receiver(status(429, "Retry-After: 3600"), ok) as receiver,
        sending(settings(receiver.url), limits=replace(PATIENT, longest_wait=0.5)) as sent,
    ):
        sent.offer(an_event(1), an_event(2))
        (failed,) = sent.fails(1)
        assert failed["reason"] == "HTTP 429 Too Many Requests, asks to wait 3600 s"
        assert failed["tries"] == 1
        arrive(receiver, "id-1", "id-2")


@pytest.mark.parametrize("code", [302, 303, 307])
def test_a_redirect_is_not_followed(code: int) -> None:
    with a_receiver() as elsewhere:
        where = f"Location: {elsewhere.url}/{SECRET}"
        with (
            a_receiver(status(code, where)) as receiver,
            sending(settings(receiver.url), limits=PATIENT) as sent,
        ):
            sent.offer(an_event(1))
            (failed,) = sent.fails(1)
            assert str(failed["reason"]).endswith("redirects are not followed")
            assert len(receiver.requests) == 1
            assert SECRET not in sent.shown
        assert elsewhere.requests == []


def test_slacks_own_word_for_what_is_wrong_is_kept_and_no_other_text() -> None:
    with a_receiver(status(404, body="no_service"), status(400, body=f"bad {SECRET}")) as receiver:
        with sending(settings(receiver.url, slack=True), limits=PATIENT) as sent:
            sent.offer(an_event(1), an_event(2))
            reasons = [one["reason"] for one in sent.fails(2)]
        assert reasons == ["HTTP 404 Not Found: no_service", "HTTP 400 Bad Request"]


CERTIFICATE: Final = Path(__file__).parents[1] / "data" / "tls" / "server.pem"
"""For 127.0.0.1, signed by nobody, with its key in the same file."""


def over_tls() -> Receiver:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    plain = socket.create_server(("127.0.0.1", 0))
    return Receiver([ok], listener=context.wrap_socket(plain, server_side=True))


@pytest.mark.parametrize("is_trusted", [True, False], ids=["trusted", "unknown"])
def test_certificates_are_verified(monkeypatch: pytest.MonkeyPatch, is_trusted: bool) -> None:
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    receiver = over_tls()
    thread = threading.Thread(target=receiver.serve)
    thread.start()
    try:
        with sending(settings(f"https://127.0.0.1:{receiver.port}/{SECRET}"), limits=PATIENT) as sent:
            sent.offer(an_event(1))
            if is_trusted:
                eventually(lambda: bool(receiver.requests), "it arrives")
                sent.all_arrive()
            else:
                (failed,) = sent.fails(1)
                reason = str(failed["reason"])
                assert failed["tries"] == 1
                assert reason.startswith("the certificate is not valid: self")
                assert receiver.requests == []
    finally:
        receiver.ended.set()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", receiver.port)):
            pass
        receiver.close()
        thread.join(PATIENCE)


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_receiver() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        with sending(settings("http://hooks.invalid/x"), limits=PATIENT) as sent:
            sent.offer(an_event(1))
            arrive(proxy, "id-1")
        assert proxy.requests[0].line == "POST http://hooks.invalid/x HTTP/1.1"
