"""Real jobs of three nodes on a network of their own: they meet, come back together, and end."""

from __future__ import annotations

from pathlib import Path

from tests.network import INTERFACE, a_network
from tests.nodes_jobs import nodes_job

NODES = 3
OFTEN = "--monitor-interval=0.2"
QUICK = ("--diagnose-after=2", "--job-hang-interval=4")
FIXED = f"--nnodes={NODES}"
BULKY = 100_000
"""Numbers that take 5 s and more to be summed up over a link of 1 Mbit/s."""


def test_a_failure_restarts_all_nodes_together_and_a_slow_link_is_acted_on_by_none(tmp_path: Path) -> None:
    flags = (FIXED, OFTEN, "--max-restarts=3", *QUICK)
    with (
        a_network(tmp_path / "net", NODES) as network,
        nodes_job(tmp_path / "job", *flags, network=network, by_name=True, numbers=BULKY) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        (first,) = job.rounds(NODES)
        hosts = [host.name for host in network.hosts]
        assert sorted({note["host"] for note in first}) == hosts
        assert [node.agent().node for node in job.nodes] == hosts

        job.ask("fail", 3)
        job.wait_for_rounds(2, nodes=NODES)
        decided = job.actions()
        assert ["restart"] in decided

        network.slow(network.hosts[1], "1mbit")
        job.wait_for_events("cleared", 2)
        network.heal(network.hosts[1])
        assert job.finish() == [0] * NODES, job.told()
        assert job.actions() == decided
        assert len(job.rounds(NODES)) == 2


def test_the_others_go_on_without_a_node_that_is_lost_without_a_word(tmp_path: Path) -> None:
    conf = "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=10"
    flags = (f"--nnodes=2:{NODES}", OFTEN, "--max-restarts=9", conf)
    with (
        a_network(tmp_path / "net", NODES, family="IPv6", names_resolve=False) as network,
        nodes_job(
            tmp_path / "job",
            *flags,
            network=network,
            environ={"GLOO_SOCKET_IFNAME": INTERFACE},
            shared_home=False,
        ) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        before = job.rounds(2)  # of those that were there first, where one came late
        job.nodes[1].lose()
        job.wait_for_rounds(len(before) + 1, nodes=2)
        (without,) = [notes for notes in job.rounds(2) if notes not in before]
        assert {note["host"] for note in without} == {"node0", "node2"}
        assert job.finish() == [0, -9, 0], job.told()


def test_nodes_meet_in_the_static_rendezvous(tmp_path: Path) -> None:
    with (
        a_network(tmp_path / "net", NODES, family="IPv6") as network,
        nodes_job(tmp_path / "job", FIXED, OFTEN, network=network, backend="static", by_name=True) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        assert job.finish() == [0] * NODES, job.told()
        assert job.actions() == [[]] * NODES
