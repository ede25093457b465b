"""``diag analyze URL`` against a real server, and against what only looks like one."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.api_control import a_control
from tests.api_factory import INCIDENTS, TOKEN, ServedByHand, a_served_job

from rankscope.diag.commands.analyze import EXIT_HANG, main
from rankscope.diag.errors import UsageError
from rankscope.diag.remote.client import AgentClient, RemoteError, token_from


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedByHand]:
    path = tmp_path_factory.mktemp("client")
    with a_control(path / "control") as agent, a_served_job(path, control=agent.path) as server:
        yield server


def url_of(served: ServedByHand) -> str:
    return f"http://{served.address[0]}:{served.address[1]}"


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return str(path)


def test_a_running_job_is_looked_at_by_its_agent(
    served: ServedByHand, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([url_of(served), "--json", "--token-file", token]) == EXIT_HANG
    assert json.loads(capsys.readouterr().out)["culprits"] == [2]


def test_stored_incidents_are_read_with_the_token_of_the_environment(
    served: ServedByHand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANKSCOPE_TOKEN", TOKEN)
    assert main([url_of(served) + "/", "--all", "--json"]) == EXIT_HANG
    assert re.findall(r'"incident": ?"(.+?)"', capsys.readouterr().out) == list(INCIDENTS)
    served.page.phase("ended", None)
    assert main([url_of(served)]) == EXIT_HANG
    assert INCIDENTS[1] in capsys.readouterr().err
    served.page.phase("running", None)
    with pytest.raises(UsageError, match="no incident of that id"):
        main([url_of(served), "--incident", "../missing"])


def test_what_is_wrong_is_one_line_with_what_to_do(
    served: ServedByHand, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANKSCOPE_TOKEN", raising=False)
    with pytest.raises(UsageError, match="token is needed") as missing:
        main([url_of(served)])
    assert "--token-file" in missing.value.hint
    wrong = tmp_path / "wrong"
    wrong.write_text("another-token-0123456789")
    with pytest.raises(UsageError, match="not this job's") as refused:
        main([url_of(served), "--token-file", str(wrong)])
    assert "another-token" not in str(refused.value)
    with pytest.raises(UsageError, match="--native"):
        main([url_of(served), "--token-file", token, "--native"])
    with pytest.raises(UsageError, match="nothing beside it"):
        main([url_of(served), "other"])
    with pytest.raises(UsageError, match="No such file"):
        token_from(str(tmp_path / "missing"))
    with pytest.raises(RemoteError, match="no answer of an agent"):
        AgentClient("http://127.0.0.1:1", TOKEN, timeout=10).get("/v1/job", dict)
    for url in ("http://", "http://user:secret@host:1", "http://host:port", "http://host/?token=secret"):
        with pytest.raises(UsageError) as none:
            AgentClient(url, TOKEN, timeout=1)
        assert "?token" not in str(none.value)


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Sends whoever asks somewhere else, and remembers what it was sent."""

    seen: list[tuple[str, str]]
    target = ""

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization", "")))
        self.send_response(302)
        self.send_header("Location", self.target)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
        pass


@contextmanager
def somebody(target: str = "") -> Generator[tuple[str, list[tuple[str, str]]]]:
    seen: list[tuple[str, str]] = []
    handler = type("Handler", (Elsewhere,), {"seen": seen, "target": target})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def test_the_token_goes_to_no_other_host_and_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with somebody() as (other, seen_there), somebody(other) as (agent, seen):
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, other)
        with pytest.raises(RemoteError):
            AgentClient(agent, TOKEN, timeout=10).get("/v1/job", dict)
        assert seen == [("/v1/job", f"Bearer {TOKEN}")]
        assert seen_there == []
