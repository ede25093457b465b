"""Somebody wants to know how a job of three nodes does: on one of its hosts, or elsewhere with the token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.deadline import DEADLINE
from tests.jobs import until
from tests.network import Host, Network, a_network
from tests.nodes_jobs import Node, NodesJob, nodes_job

NODES = 3
CULPRIT = 3
MAIN = "import sys; from rankscope.diag.main import main; sys.exit(main())"
PATIENT = ("--diagnose-after=600", "--monitor-interval=0.2")


@dataclass(frozen=True)
class Asked:
    """What ``diag analyze --json`` said."""

    exit_code: int
    diagnosis: dict[str, Any]
    said: str

    @property
    def found(self) -> tuple[int, str, list[int]]:
        return self.exit_code, self.diagnosis["verdict"], self.diagnosis["culprits"]

    @property
    def observed(self) -> list[int]:
        return sorted(one["rank"] for one in self.diagnosis["ranks"] if one["observed"])


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A job that was looked at while it was well, and while it hung."""

    job: NodesJob
    well: Asked
    from_outside: Asked
    from_a_host: Asked
    again: Asked
    without_token: Asked
    ranks: list[dict[str, Any]]
    changed: dict[str, Any]
    settings: list[dict[str, Any]]


def analyze(host: Host, *words: str, environ: Mapping[str, str]) -> Asked:
    command = host.inside(sys.executable, "-c", MAIN, "analyze", "--json", *words)
    done = subprocess.run(
        command,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    found = json.loads(done.stdout) if done.stdout else {}
    return Asked(done.returncode, found, done.stderr)


def token_of(node: Node) -> str:
    return (node.records.path / "token").read_text().strip()


def home_of(node: Node) -> dict[str, str]:
    return {"RANKSCOPE_HOME": str(node.home)}


def looked_at(job: NodesJob, network: Network, nowhere: Path) -> Seen:
    """The job as several ask for it, while it is well, and once it hangs."""
    url, outside = job.nodes[0].agent().api, {"RANKSCOPE_HOME": str(nowhere)}
    with_token = {**outside, "RANKSCOPE_TOKEN": token_of(job.nodes[2])}
    with_another = {**outside, "RANKSCOPE_TOKEN": "of-another-job-altogether"}
    well = analyze(network.hosts[1], url, environ=with_token)
    job.ask("hang", CULPRIT)
    # What has begun in the midst of a look, whose first half saw it move, is Healthy still.
    outside_asked: list[Asked] = []

    def hangs() -> bool:
        outside_asked.append(analyze(network.hosts[1], url, environ=with_token))
        return outside_asked[-1].exit_code != 0

    until(hangs, "a hang")
    own = home_of(job.nodes[2])
    return Seen(
        job=job,
        well=well,
        from_outside=outside_asked[-1],
        from_a_host=analyze(network.hosts[2], job.nodes[2].run_id, environ=own),
        again=analyze(network.hosts[2], job.nodes[2].run_id, environ=own),
        without_token=analyze(network.hosts[1], url, environ=with_another),
        ranks=ranks_of(job.nodes[1], network.hosts[1]),
        changed=asked_of(job.nodes[1], network.hosts[1], "/v1/settings", {"job-hang-interval": 7777}),
        settings=[
            asked_of(node, host, "/v1/settings")["settings"]
            for node, host in zip(job.nodes, network.hosts, strict=True)
        ],
    )


def ranks_of(node: Node, host: Host) -> list[dict[str, Any]]:
    """What the agent says of all ranks, asked on its own host."""
    found: list[dict[str, Any]] = asked_of(node, host, "/v1/ranks")["ranks"]
    return found


def asked_of(node: Node, host: Host, path: str, change: dict[str, object] | None = None) -> dict[str, Any]:
    """What an agent answers on its own host; with a change it is patched."""
    script = (
        "import os, sys, urllib.request as u\n"
        "head = {'Authorization': 'Bearer ' + os.environ['TOKEN'], 'Content-Type': 'application/json'}\n"
        "data = sys.argv[2].encode() or None\n"
        "asked = u.Request(sys.argv[1], data, head, method='PATCH' if data else 'GET')\n"
        "print(u.build_opener(u.ProxyHandler({})).open(asked, timeout=20).read().decode())"
    )
    body = json.dumps({"change": change}) if change is not None else ""
    command = host.inside(sys.executable, "-c", script, f"{node.agent().api}{path}", body)
    environ = {**os.environ, "TOKEN": token_of(node)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("asked")
    with (
        a_network(folder / "net", NODES) as network,
        nodes_job(folder / "job", f"--nnodes={NODES}", *PATIENT, network=network, shared_home=False) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        yield looked_at(job, network, folder / "nowhere")


def test_each_agent_is_asked_at_the_address_of_its_own_host(seen: Seen) -> None:
    addresses = [node.agent().api.rpartition(":")[0] for node in seen.job.nodes]
    assert addresses == [f"http://198.18.0.{number + 1}" for number in range(NODES)]


def test_nodes_without_a_common_folder_have_one_token_once_they_have_met(seen: Seen) -> None:
    assert len({token_of(node) for node in seen.job.nodes}) == 1
    told = [node.stderr.count("the job's token is that of its other nodes now") for node in seen.job.nodes]
    assert sorted(told) == [0, 1, 1]


def test_a_job_that_goes_on_is_seen_whole(seen: Seen) -> None:
    assert seen.well.found == (0, "Healthy", [])
    assert seen.well.observed == list(range(2 * NODES))


def test_with_the_url_and_the_token_of_any_node_a_hang_on_another_is_explained(seen: Seen) -> None:
    assert seen.from_outside.found == (3, "RankNonCommHang", [CULPRIT])
    assert seen.from_outside.observed == list(range(2 * NODES))
    assert seen.from_outside.diagnosis["location"]["function"] == "wait_for_ever"


def test_on_a_host_of_the_job_its_name_is_enough(seen: Seen) -> None:
    assert seen.from_a_host.found == (3, "RankNonCommHang", [CULPRIT])
    assert seen.from_a_host.observed == list(range(2 * NODES))


def test_who_asks_again_makes_no_further_incident(seen: Seen) -> None:
    ids = {one.diagnosis["incident"] for one in (seen.from_outside, seen.from_a_host, seen.again)}
    assert len(ids) == 1
    kept = {one.name for node in seen.job.nodes for one in node.records.incidents.glob("*")}
    assert kept == ids
    for node in (seen.job.nodes[0], seen.job.nodes[2]):  # who asked has it, whoever led
        assert node.diagnosis().culprits == (CULPRIT,)


def test_looking_is_not_acting_on_any_node(seen: Seen) -> None:
    for node in seen.job.nodes:
        assert node.events("incident.confirmed") == []
        assert node.events("decision") == []
        assert "suspects a hang" not in node.stderr


def test_nobody_is_told_anything_without_the_token(seen: Seen) -> None:
    assert seen.without_token.exit_code == 2
    assert seen.without_token.diagnosis == {}
    assert "the token is not this job's" in seen.without_token.said


def test_each_agent_tells_of_the_ranks_of_all_nodes(seen: Seen) -> None:
    assert [one["rank"] for one in seen.ranks] == list(range(2 * NODES))
    nodes = [one["node"] for one in seen.ranks]
    assert nodes[::2] == nodes[1::2]
    assert sorted(nodes[::2]) == ["node0", "node1", "node2"]
    assert {one["state"] for one in seen.ranks} == {"running"}


def test_a_change_of_the_settings_holds_on_all_nodes(seen: Seen) -> None:
    assert seen.changed["elsewhere"] == {"node0": "changed", "node2": "changed"}
    assert [one["job-hang-interval"]["value"] for one in seen.settings] == [7777.0] * NODES
    for node in seen.job.nodes:
        assert len(node.events("settings.changed")) == 1
