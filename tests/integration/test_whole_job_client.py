"""``diag analyze <job>`` where its agents are on other hosts, and the records in a folder that all have."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.api_control import a_control
from tests.api_factory import INCIDENTS, TOKEN, ServedByHand, a_served_job, a_stored_job

from rankscope.diag import proc
from rankscope.diag.commands.analyze import EXIT_HANG, main
from rankscope.diag.store.job import AgentFile, JobFolder

NOBODY = "http://127.0.0.1:1"
LOOKED_AT = 2
"""The culprit of the agent's answer; the stored incidents have another."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedByHand]:
    path = tmp_path_factory.mktemp("whole")
    with a_control(path / "control") as agent, a_served_job(path, control=agent.path) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return a_stored_job(tmp_path / "jobs")


def url_of(served: ServedByHand) -> str:
    return f"http://{served.address[0]}:{served.address[1]}"


def with_token(folder: JobFolder, token: str = TOKEN, mode: int = 0o600) -> None:
    path = folder.path / "token"
    path.touch(mode)
    path.write_text(token + "\n")
    path.chmod(mode)


def runs(
    folder: JobFolder,
    node: str,
    api: str,
    *,
    phase: str = "running",
    token_file: str = "",
    lives: bool = True,
) -> None:
    """An agent, of this host if it lives here: no process of this one has another's number and start."""
    pid = os.getpid() if lives else 1
    ticks = (proc.start_ticks(pid) or 0) if lives else 1
    agent = AgentFile(node, pid, ticks, phase, world_size=4, api=api, token_file=token_file)
    path = folder.node(node)
    path.mkdir(parents=True, exist_ok=True)
    (path / "agent.json").write_bytes(msgspec.json.encode(agent))


def explained(
    folder: JobFolder, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[list[int], str | None]:
    """The culprits, and the incident where it is a stored one."""
    assert main([str(folder.path), "--json", *words]) == EXIT_HANG
    found = json.loads(capsys.readouterr().out)
    return found["culprits"], found["incident"]


def test_one_of_its_agents_is_asked(
    served: ServedByHand, folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with_token(folder)
    runs(folder, "vm", NOBODY)
    runs(folder, "vm2", url_of(served))
    culprits, incident = explained(folder, capsys)
    assert culprits == [LOOKED_AT]
    assert incident not in INCIDENTS


@pytest.mark.parametrize("phase", ["ended", "starting", "rendezvous"])
def test_agents_without_workers_are_not_asked(
    served: ServedByHand, folder: JobFolder, capsys: pytest.CaptureFixture[str], phase: str
) -> None:
    with_token(folder)
    runs(folder, "vm", url_of(served), phase=phase)
    assert explained(folder, capsys)[1] == INCIDENTS[-1]


def test_an_agent_that_says_it_has_no_workers_any_more_is_passed_over(
    served: ServedByHand, folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with_token(folder)
    runs(folder, "vm", url_of(served))
    served.page.phase("ended", None)
    assert explained(folder, capsys)[1] == INCIDENTS[-1]
    served.page.phase("running", None)


def test_where_no_agent_answers_what_is_stored_is_shown(
    folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with_token(folder)
    runs(folder, "vm", NOBODY)
    assert explained(folder, capsys)[1] == INCIDENTS[-1]


def test_what_an_agent_cannot_do_is_not_asked_of_it(
    served: ServedByHand, folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with_token(folder)
    runs(folder, "vm", url_of(served))
    assert explained(folder, capsys, "--native")[1] == INCIDENTS[-1]
    assert explained(folder, capsys, "--incident", INCIDENTS[0])[1] == INCIDENTS[0]


def test_the_loopback_of_another_host_is_not_asked_here(
    served: ServedByHand, folder: JobFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    with_token(folder)
    for number, host in enumerate(("127.0.0.1", "localhost", "[::1]")):
        runs(folder, f"vm{number}", f"http://{host}:{served.address[1]}", lives=False)
    assert explained(folder, capsys)[1] == INCIDENTS[-1]


class Listening(http.server.BaseHTTPRequestHandler):
    """Remembers that it was asked."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Authorization", ""))
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
        pass


@pytest.fixture
def listening() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (Listening,), {"asked": asked})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_a_folder_from_elsewhere_cannot_have_a_secret_sent(
    folder: JobFolder,
    listening: tuple[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url, asked = listening
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-the-user-0123456789\n")
    secret.chmod(0o600)
    monkeypatch.setenv("RANKSCOPE_TOKEN", "the-token-of-another-job-0123456789")
    runs(folder, "vm", url, token_file=str(secret))
    explained(folder, capsys)
    (folder.path / "token").symlink_to(secret)
    explained(folder, capsys)
    (folder.path / "token").unlink()
    with_token(folder, mode=0o644)
    explained(folder, capsys)
    assert asked == []
    with_token(folder)
    explained(folder, capsys)
    assert asked == [f"Bearer {TOKEN}"]
