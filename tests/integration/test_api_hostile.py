"""Clients of the API that mean no good, against a real server process: each line of SECURITY.md's table."""

from __future__ import annotations

import gzip
import http.client
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.api_factory import INCIDENTS, TOKEN, ServedByHand, a_served_job, descendants
from tests.health_factory import PATIENCE, a_page, ask, closes, connect, eventually

from rankscope.agent.health import HealthProcess
from rankscope.agent.health.api.access import Access
from rankscope.agent.health.api.guard import HEADERS, REFUSED_BURST
from rankscope.agent.health.api.table import TABLE
from rankscope.agent.health.offer import ApiOffer
from rankscope.agent.health.routes import OPEN_PATHS

GUARDED = (
    *sorted({(row.method, row.path.replace("{id}", INCIDENTS[0])) for row in TABLE}),
    ("GET", "/"),
    ("GET", "/live/script.js"),
    ("GET", "/live/style.css"),
)
BEARER = {"Authorization": f"Bearer {TOKEN}"}
COOKIE = {"Cookie": f"{Access(TOKEN).cookie_name}={Access(TOKEN).cookie_value}"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedByHand]:
    with a_served_job(tmp_path_factory.mktemp("hostile")) as server:
        yield server


def raw(served: ServedByHand, request: bytes) -> bytes:
    with connect(served.address) as connection:
        connection.sendall(request)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found


# The token.


@pytest.mark.parametrize(("method", "path"), GUARDED)
def test_no_path_of_the_api_answers_without_the_token(served: ServedByHand, method: str, path: str) -> None:
    wrong: tuple[dict[str, str], ...] = (
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Cookie": f"{Access(TOKEN).cookie_name}={TOKEN}"},
    )
    for headers in wrong:
        reply = ask(served.address, path, method=method, headers=headers)
        assert reply.status in (401, 429)
        assert b"run-7" not in reply.body


@pytest.mark.parametrize(
    "path", ["/v1//job", "//v1/job", "/V1/job", "/v1/job/", "/v1/../v1/job", "/v1%2fjob", "/./v1/job"]
)
def test_no_spelling_of_a_path_goes_round_the_guard(served: ServedByHand, path: str) -> None:
    assert ask(served.address, path).status in (400, 401, 404, 429)


def test_every_open_path_is_one_that_is_meant_to_be(served: ServedByHand) -> None:
    assert {"/livez", "/readyz", "/health", "/healthz", "/metrics"} == OPEN_PATHS
    for path in OPEN_PATHS:
        assert ask(served.address, path).status == 200


def test_wrong_tokens_are_slowed_down_and_keep_nobody_out_who_has_the_right_one(served: ServedByHand) -> None:
    wrong = {"Authorization": "Bearer wrong-wrong-wrong"}
    reply = ask(served.address, "/v1/job", headers=wrong)
    for _ in range(20 * int(REFUSED_BURST)):  # more than the burst: a few come back each second
        if reply.status == 429:
            break
        assert reply.status == 401
        reply = ask(served.address, "/v1/job", headers=wrong)
    assert reply.status == 429
    assert int(reply.headers["Retry-After"]) > 0
    assert served.ask("/v1/job").status == 200
    assert ask(served.address, "/livez").status == 200


# A browser.


def test_the_token_is_in_a_url_once_and_then_in_a_cookie_that_no_script_can_read(
    served: ServedByHand,
) -> None:
    first = ask(served.address, f"/?token={TOKEN}")
    assert (first.status, first.headers["Location"]) == (303, "/")
    cookie = first.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert TOKEN not in cookie
    page = ask(served.address, "/", headers={"Cookie": cookie.split(";")[0]})
    assert page.status == 200
    assert TOKEN.encode() not in page.body
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert ask(served.address, f"/?token={TOKEN}x").status in (401, 429)
    assert ask(served.address, f"/?token={TOKEN}&token={TOKEN}").status in (401, 429)
    assert served.ask(f"/v1/job?token={TOKEN}").status == 400


def test_a_link_in_a_mail_opens_the_page_too(served: ServedByHand) -> None:
    first = ask(served.address, f"/?token={TOKEN}", headers={"Sec-Fetch-Site": "cross-site"})
    assert first.status == 200
    assert "HttpOnly" in first.headers["Set-Cookie"]
    assert b'content="0;url=/"' in first.body
    assert TOKEN.encode() not in first.body


def test_answers_tell_browsers_to_keep_and_pass_on_nothing(served: ServedByHand) -> None:
    for reply in (served.ask("/v1/job"), served.ask("/"), ask(served.address, f"/?token={TOKEN}")):
        assert reply.headers["Referrer-Policy"] == "no-referrer"
        assert reply.headers["Cache-Control"] == "no-store"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in reply.headers
        assert set(HEADERS) <= set(reply.headers)


def test_pages_of_others_cannot_use_the_cookie(served: ServedByHand) -> None:
    host, port = served.address
    own = {"Origin": f"http://{host}:{port}", "Content-Type": "application/json"}

    def analyse(headers: dict[str, str]) -> int:
        reply = ask(served.address, "/v1/analyze", method="POST", headers=COOKIE | headers, body=b"{}")
        return reply.status

    assert ask(served.address, "/v1/job", headers=COOKIE).status == 200
    assert analyse(own) == 503  # let through
    for origin in ("http://attacker.example", f"http://{host}:1", "null"):
        assert analyse(own | {"Origin": origin}) in (403, 429)
    assert analyse(own | {"Content-Type": "text/plain"}) == 415
    frame = COOKIE | {"Sec-Fetch-Site": "same-site"}
    assert ask(served.address, "/v1/job", headers=frame).status in (403, 429)


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:80", "localhost.attacker.example", "10.9.9.9"]
)
def test_a_name_that_was_rebound_to_this_address_gets_nothing(served: ServedByHand, host: str) -> None:
    for headers in (BEARER, COOKIE, {}):
        reply = ask(served.address, "/v1/job", headers=headers | {"Host": host})
        assert reply.status in (421, 429)
        assert b"run-7" not in reply.body
    assert ask(served.address, f"/?token={TOKEN}", headers={"Host": host}).status in (421, 429)
    assert ask(served.address, "/livez", headers={"Host": host}).status == 200


def test_a_request_without_a_host_or_with_two_gets_nothing(served: ServedByHand) -> None:
    bearer = f"Authorization: Bearer {TOKEN}\r\n".encode()
    for head in (
        b"",
        b"Host: localhost\r\nHost: attacker.example\r\n",
        b"Host: attacker.example\r\nHost: localhost\r\n",
    ):
        found = raw(served, b"GET /v1/job HTTP/1.0\r\n" + head + bearer + b"\r\n")
        assert b" 200 " not in found.split(b"\r\n", 1)[0]


# Floods.


def test_floods_of_headers_lines_and_bodies_are_cut_off(served: ServedByHand) -> None:
    many = b"".join(b"X-%d: y\r\n" % number for number in range(200))
    start = b"GET /v1/job HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    assert b" 400 " in raw(served, start + many + b"\r\n")
    assert b" 400 " in raw(served, start + b"X: " + b"y" * 100_000 + b"\r\n\r\n")
    assert b" 400 " in raw(served, b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    bearer = f"Authorization: Bearer {TOKEN}\r\n".encode()
    body = b"POST /v1/analyze HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + bearer
    assert b" 413 " in raw(served, body + b"Content-Length: 99999999\r\n\r\nx")
    chunked = body + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b" 413 " in raw(served, chunked + b"10000\r\n" + b"x" * 65536 + b"\r\n1\r\nx\r\n0\r\n\r\n")
    packed = gzip.compress(b" " * 1_000_000)  # unpacked it would be too large: 413
    head = b"Content-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
        packed
    )
    assert b" 415 " in raw(served, body + head + packed)
    assert served.ask("/v1/job").status == 200


def test_a_peer_that_asks_without_end_is_told_when_to_come_again(served: ServedByHand) -> None:
    def many(count: int) -> list[int]:
        connection = http.client.HTTPConnection(*served.address, timeout=PATIENCE)
        found: list[int] = []
        for _ in range(count):
            connection.request("GET", "/v1/ranks", headers=BEARER)
            response = connection.getresponse()
            response.read()
            found.append(response.status)
        connection.close()
        return found

    with ThreadPoolExecutor(4) as pool:
        statuses = [each for batch in pool.map(many, [600] * 4) for each in batch]
    assert set(statuses) == {200, 429}
    assert ask(served.address, "/livez").status == 200
    eventually(lambda: served.ask("/v1/job").status == 200, "it may ask again")


def test_slow_clients_are_dropped_and_hold_nobody(tmp_path: Path) -> None:
    with a_served_job(tmp_path, request_timeout=1.0, max_connections=40) as served:
        slow = [connect(served.address) for _ in range(60)]  # more than there is room for
        for each in slow:
            each.sendall(b"GET /v1/job HTTP/1.1\r\nHost: loc")
        assert served.ask("/v1/job").status == 200
        assert all(closes(each) for each in slow)
        for each in slow:
            each.close()


def test_probes_are_answered_while_large_records_are_read(tmp_path: Path) -> None:
    with a_served_job(tmp_path) as served:
        log = served.folder.node("vm") / "events.jsonl"
        line = log.read_bytes().splitlines()[0].replace(b'"vm-1"', b'"id-%d"')
        with log.open("ab") as file:
            file.writelines(line % number + b"\n" for number in range(6_000))
        log_size = log.stat().st_size
        assert log_size > 1 << 20
        done = threading.Event()
        statuses: list[int] = []

        def read_all() -> None:
            statuses.extend(served.ask(path).status for path in ("/v1/restarts", "/v1/events", "/v1/page"))
            done.set()

        reader = threading.Thread(target=read_all)
        reader.start()
        connection = http.client.HTTPConnection(*served.address, timeout=PATIENCE)
        answered, longest = 0, 0.0
        while not done.is_set() or answered < 1000:
            began = time.perf_counter()
            connection.request("GET", "/livez")
            response = connection.getresponse()
            response.read()
            longest = max(longest, time.perf_counter() - began)
            assert response.status == 200
            answered += 1
        reader.join(60)
        connection.close()
        assert set(statuses) <= {200, 503}
        print(f"{answered} probes, the longest took {longest * 1000:.1f} ms")


# Where the token is, and is not.


def test_the_token_is_on_no_command_line_in_no_environment_and_no_log(tmp_path: Path) -> None:
    run_time = tmp_path / "run"
    run_time.mkdir(mode=0o700)
    page = a_page(run_time / "status")
    health = HealthProcess(page.path, None, 0)
    health.offer(ApiOffer(str(tmp_path), "vm", TOKEN))
    address = health.start(PATIENCE)
    try:
        assert stat.S_IMODE((run_time / "status.api").stat().st_mode) == 0o600
        assert ask(address, "/v1/job", headers=BEARER).status == 200
        ask(address, f"/?token={TOKEN}")
        ask(address, f"/v1/nothing?token={TOKEN}")
        with connect(address) as connection:
            connection.sendall(
                f"GET /?token={TOKEN} HTTP/9.9\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
            )
            closes(connection)
        assert health.pid is not None
        for pid in (health.pid, *descendants(health.pid)):
            for name in ("cmdline", "environ"):
                assert TOKEN.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        assert (
            TOKEN.encode()
            not in subprocess.run(["ps", "-ewwo", "args"], capture_output=True, check=True).stdout
        )
    finally:
        health.stop()
    assert not (run_time / "status.api").exists()
    page.close()


def test_no_line_of_the_servers_log_has_the_token(tmp_path: Path) -> None:
    with a_served_job(tmp_path) as served:
        hostile = (
            f"GET /?token={TOKEN} HTTP/9.9\r\n\r\n",
            f"GET /?token={TOKEN}\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            f"GET http://[/?token={TOKEN} HTTP/1.1\r\nHost: localhost\r\n\r\n",
            f"POST / HTTP/1.1\r\nHost: localhost\r\nAuthorization: {TOKEN}\r\nContent-Length: x\r\n\r\n",
        )
        for request in hostile:
            found = raw(served, request.encode())
            assert TOKEN.encode() not in found
        said = _stderr_of(served)
        assert TOKEN not in said


def _stderr_of(served: ServedByHand) -> str:
    """What is in the pipe of its stderr by now; the server is ended by its owner."""
    path = Path(f"/proc/{served.pid}/fd/2")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, 1 << 20).decode()
    except BlockingIOError:
        return ""
    finally:
        os.close(fd)


def test_what_needs_the_token_is_not_on_the_open_port_of_all_interfaces(tmp_path: Path) -> None:
    run_time = tmp_path / "run"
    run_time.mkdir(mode=0o700)
    page = a_page(run_time / "status")
    health = HealthProcess(page.path, "0.0.0.0", 0)
    health.offer(ApiOffer(str(tmp_path), "vm", TOKEN))
    address = health.start(PATIENCE)
    try:
        open_address = ("127.0.0.1", address[1])
        api = health.api_address
        assert api is not None
        assert api[0] == "127.0.0.1"
        assert api[1] != address[1]
        for path in ("/v1/job", "/", f"/?token={TOKEN}", "/live/script.js"):
            assert ask(open_address, path, headers=BEARER).status == 404
        assert ask(open_address, "/livez").status == 200
        assert ask(api, "/v1/job", headers=BEARER).status == 200
        assert ask(api, "/livez").status == 200
    finally:
        health.stop()
        page.close()


def test_a_server_without_an_offer_has_only_open_paths_until_there_is_one(tmp_path: Path) -> None:
    run_time = tmp_path / "run"
    run_time.mkdir(mode=0o700)
    page = a_page(run_time / "status")
    health = HealthProcess(page.path, None, 0)
    address = health.start(PATIENCE)
    try:
        assert health.api_address == address
        assert ask(address, "/v1/job", headers=BEARER).status == 503
        assert ask(address, "/livez").status == 200
        health.offer(ApiOffer(str(tmp_path), "vm", TOKEN))
        assert ask(address, "/v1/job", headers=BEARER).status == 200
        health.offer(ApiOffer(str(tmp_path), "vm", TOKEN + "2"))
        assert ask(address, "/v1/job", headers=BEARER).status == 401
    finally:
        health.stop()
        page.close()


def test_tokens_are_compared_in_constant_time() -> None:
    source = Path(sys.modules[Access.__module__].__file__ or "").read_text()
    assert "hmac.compare_digest(" in source
    assert not re.search(r"token\s*[!=]=|[!=]=\s*token", source)
