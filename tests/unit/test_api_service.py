"""What the server is given for the API: a token whatever the job's folder is like, said nowhere."""

from __future__ import annotations

import asyncio
import socket
from argparse import Namespace
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from tests.health_factory import a_published_page

from rankscope.agent.control.client import ControlClient
from rankscope.agent.control.listener import Reply
from rankscope.agent.control.messages import Request
from rankscope.agent.health import HealthError, HealthProcess
from rankscope.agent.health.listen import own_network
from rankscope.agent.health.offer import ApiOffer, OfferReader, Peer, offer_path
from rankscope.agent.services import running
from rankscope.agent.services.api import Api, url_of
from rankscope.agent.services.running import Services
from rankscope.agent.settings.resolution import resolve
from rankscope.agent.telling.console import Console

OWN = "198.18.0.7"
OF_A_USER = "a-token-of-the-user-0123456789"


@dataclass
class Agent:
    """One agent's run-time folder and server, which is not started."""

    runtime: Path
    job: Path
    said: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.runtime.mkdir(mode=0o700, exist_ok=True)
        self.health = HealthProcess(self.runtime / "status", None, 0)
        self.apis: list[Api] = []

    def start(self, *, given: str = "") -> Api:
        made = Api(self.runtime, self.job, given=given, say=self.said.append)
        self.apis.append(made)
        made.start(self.health, "vm", _answer)
        return made

    @property
    def offer(self) -> ApiOffer | None:
        return OfferReader(offer_path(self.runtime / "status")).read()


def _answer(_request: Request, reply: Reply) -> None:
    reply(msgspec.Raw(b'{"trouble":"full"}'))


@pytest.fixture
def agent(tmp_path: Path) -> Generator[Agent]:
    made = Agent(tmp_path / "runtime", tmp_path / "job")
    yield made
    for api in made.apis:
        api.close()


def test_the_server_gets_the_jobs_token_and_a_socket_that_answers(agent: Agent) -> None:
    api = agent.start()
    token = (agent.job / "token").read_text().strip()
    offer = agent.offer
    assert offer is not None
    assert offer == ApiOffer(
        job_folder=str(agent.job),
        node="vm",
        token=token,
        control=str(agent.runtime / "control"),
        token_file=str(agent.job / "token"),
    )
    assert api.token_file == str(agent.job / "token")
    assert agent.said == []
    assert asyncio.run(ControlClient(offer.control).records()).trouble == "full"


def test_another_agent_of_the_job_has_the_same_token(agent: Agent, tmp_path: Path) -> None:
    agent.start()
    other = Agent(tmp_path / "runtime of another", agent.job)
    other.start().close()
    assert agent.offer is not None
    assert other.offer is not None
    assert other.offer.token == agent.offer.token


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_a_token_that_others_may_read_is_not_used(agent: Agent, mode: int) -> None:
    agent.job.mkdir()
    (agent.job / "token").write_text(OF_A_USER)
    (agent.job / "token").chmod(mode)
    api = agent.start()
    assert agent.offer is not None
    assert agent.offer.token != OF_A_USER
    assert api.token_file == str(agent.runtime / "token")
    assert "others may read" in agent.said[0]
    assert agent.said[1] == f"the token of this agent alone is in {agent.runtime / 'token'}"


def test_a_folder_that_cannot_have_a_token_costs_the_api_nothing(agent: Agent) -> None:
    agent.job.write_text("no folder")
    api = agent.start()
    assert api.token_file == str(agent.runtime / "token")
    assert agent.offer is not None
    assert agent.offer.token not in "".join(agent.said)


def test_a_file_that_the_user_named_is_used_whoever_may_read_it(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text(OF_A_USER + "\n")
    api = agent.start(given=str(tmp_path / "mine"))
    assert agent.offer is not None
    assert agent.offer.token == OF_A_USER
    assert api.token_file == str(tmp_path / "mine")
    assert not (agent.job / "token").exists()


def test_a_named_file_that_has_gone_since_is_said_and_opens_nothing(agent: Agent, tmp_path: Path) -> None:
    api = agent.start(given=str(tmp_path / "gone"))
    assert (agent.offer, api.token_file) == (None, "")
    assert agent.said == [f"no token: there is no file {tmp_path / 'gone'}"]


def test_the_token_that_nodes_agree_on_is_served_and_kept_as_private_as_the_own_one(agent: Agent) -> None:
    api = agent.start()
    assert (api.token, api.is_settled) == ((agent.job / "token").read_text().strip(), False)
    control = agent.offer.control if agent.offer else ""
    api.met(OF_A_USER, ())
    assert (api.token, api.is_settled) == (OF_A_USER, True)
    assert (agent.job / "token").read_text().strip() == OF_A_USER
    assert (agent.job / "token").stat().st_mode & 0o777 == 0o600
    assert agent.offer is not None
    assert (agent.offer.token, agent.offer.control) == (OF_A_USER, control)
    assert OF_A_USER not in "".join(agent.said)
    assert [one.name for one in agent.job.iterdir()] == ["token"]


def test_the_own_token_may_be_the_one_that_is_agreed_on(agent: Agent) -> None:
    api = agent.start()
    settled = [api.is_settled]
    for token in ("", api.token):
        api.met(token, ())
        settled.append(api.is_settled)
    assert settled == [False, False, True]
    assert agent.said == []


def test_what_the_user_gave_holds_whatever_others_have(agent: Agent, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text(OF_A_USER)
    api = agent.start(given=str(given))
    assert api.is_settled
    api.met("another-token-0123456789", ())
    assert api.token == OF_A_USER
    assert given.read_text() == OF_A_USER


def test_what_is_no_token_is_not_agreed_on(agent: Agent) -> None:
    api = agent.start()
    own = api.token
    api.met("short", ())
    assert (api.token, api.is_settled) == (own, False)
    assert "short" not in "".join(agent.said)


def test_a_token_that_the_job_folder_cannot_keep_is_kept_beside_the_agent(agent: Agent) -> None:
    api = agent.start()
    (agent.job / "token").unlink()
    agent.job.rmdir()
    agent.job.write_text("no folder")
    api.met(OF_A_USER, ())
    assert api.token_file == str(agent.runtime / "token")
    assert (agent.runtime / "token").read_text().strip() == OF_A_USER
    assert agent.offer is not None
    assert agent.offer.token_file == api.token_file


def test_without_a_control_socket_the_records_are_served_all_the_same(agent: Agent) -> None:
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(agent.runtime / "control"))
        agent.start()
    assert agent.offer is not None
    assert agent.offer.control == ""
    assert agent.said == ["no control socket (Address already in use): no analysis and no change on request"]


def test_a_runtime_folder_that_is_gone_is_said(agent: Agent) -> None:
    agent.runtime.rmdir()
    agent.start()
    assert any("open paths only" in line for line in agent.said)


def test_an_address_of_ipv6_is_written_as_urls_have_it() -> None:
    assert (url_of(("127.0.0.1", 1)), url_of(("::1", 2))) == ("http://127.0.0.1:1", "http://[::1]:2")


@pytest.mark.parametrize(
    ("diag_host", "expected"),
    [("", OWN), ("0.0.0.0", OWN), (OWN, OWN), ("127.0.0.1", None), ("::1", None), ("localhost", None)],
)
def test_who_names_loopback_has_the_api_there_whatever_the_nodes(
    diag_host: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[object] = []

    def start(_path: object, _host: object, _port: object, *, api_host: str | None) -> None:
        bound.append(api_host)
        raise HealthError("enough is known")

    monkeypatch.setattr(running, "HealthProcess", start)
    settings = resolve(Namespace(), {"RANKSCOPE_DIAG_HOST": diag_host})
    services = Services(settings, Console(), own_host=OWN)
    services.start_health()
    services.close()
    assert bound == [expected]


def test_an_address_of_another_hosts_loopback_is_not_asked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    services = Services(resolve(Namespace(), {}), Console())
    services.start_health()
    met: list[tuple[Peer, ...]] = []
    monkeypatch.setattr(services, "_api", Met(met))
    own = services.as_peer("here")
    assert own.network == own_network()
    beside = Peer("beside", "http://127.0.0.1:1", own_network())
    there = Peer("there", "http://198.18.0.7:1")
    another = Peer("another", "http://127.0.0.1:1", "another boot/another network")
    services.nodes_met("", [own, beside, there, another])
    services.close()
    assert met == [(beside, there)]


@dataclass
class Met:
    """In place of what serves the API: whom it was told of."""

    told: list[tuple[Peer, ...]]
    token_file: str = "token"

    def met(self, _token: str, peers: tuple[Peer, ...]) -> None:
        self.told.append(peers)

    def close(self) -> None: ...


def test_an_address_that_cannot_be_had_leaves_the_api_on_loopback(tmp_path: Path) -> None:
    with a_published_page(tmp_path / "status") as page:
        process = HealthProcess(page.path, "0.0.0.0", 0, api_host="198.51.100.7")
        process.begin()
        address = process.api_address
        process.stop()
    assert address is not None
    assert address[0] == "127.0.0.1"
    assert process.api_trouble == ""
