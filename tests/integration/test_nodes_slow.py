"""Real jobs of three nodes of which one holds the others up: what is slow is found out of all nodes' looks."""

from __future__ import annotations

from pathlib import Path

from tests.network import a_network
from tests.nodes_jobs import NodesJob, nodes_job

NODES = 3
FLAGS = (f"--nnodes={NODES}", "--monitor-interval=0.2", "--straggler-interval=4")
BULKY = 300_000
"""Numbers that take a quarter of a second and more to be summed up over a link of 50 Mbit/s."""


def told(job: NodesJob, name: str) -> list[dict[str, object]]:
    return [event.data for node in job.nodes for event in node.events(name)]


def test_a_rank_that_lags_is_named_for_the_ranks_of_all_nodes(tmp_path: Path) -> None:
    with (
        a_network(tmp_path / "net", NODES) as network,
        nodes_job(tmp_path / "job", *FLAGS, network=network) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        job.ask("lag", 3)
        import time
        time.sleep(40)
        for node in job.nodes:
            print(node.number, [(e.type, e.data) for e in node.events() if "job.started" not in e.type])
        assert job.finish() == [0] * NODES, job.told()
        print(job.told())
        assert 0


def test_a_slow_link(tmp_path: Path) -> None:
    with (
        a_network(tmp_path / "net", NODES) as network,
        nodes_job(tmp_path / "job", *FLAGS, network=network, numbers=BULKY) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        network.slow(network.hosts[1], "50mbit")
        import time
        time.sleep(40)
        for node in job.nodes:
            print(node.number, [(e.type, e.data) for e in node.events() if "job.started" not in e.type])
        assert job.finish() == [0] * NODES, job.told()
        print(job.told())
        assert 0
