"""Real jobs of three nodes of which one holds the others up: what is slow is found out with all nodes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.jobs import until
from tests.network import a_network
from tests.nodes_jobs import RANKS, NodesJob, nodes_job

from rankscope.diag.model import Diagnosis
from rankscope.diag.store.incidents import IncidentFolder

NODES = 3
FLAGS = (f"--nnodes={NODES}", "--monitor-interval=0.2", "--straggler-interval=4")
BULKY = 300_000
"""Numbers that take a quarter of a second and more to be summed up over a link of 50 Mbit/s."""


def wait_for(job: NodesJob, is_it: Callable[[Diagnosis], bool]) -> Diagnosis:
    """Until a diagnosis is told that is it."""

    def told() -> list[Diagnosis]:
        incidents = job.nodes[0].records.incidents
        names = [one.subject for node in job.nodes for one in node.events("slow")]
        found = [IncidentFolder(incidents / name).diagnosis() for name in names if name]
        return [one for one in found if is_it(one)]

    until(lambda: bool(told()), "what is slow")
    return told()[0]


def test_a_rank_that_lags_is_named_beside_the_ranks_of_all_nodes(tmp_path: Path) -> None:
    with (
        a_network(tmp_path / "net", NODES) as network,
        nodes_job(tmp_path / "job", *FLAGS, network=network) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        job.ask("lag", 3)
        found = wait_for(job, lambda one: one.verdict == "RankNonCommSlow")
        assert (found.culprits, found.observed, found.unobserved) == ((3,), "0-5", ())
        assert found.location is not None
        assert found.location.function == "compute"
        assert {one.rank for one in found.ranks if one.role == "victim"} == {0, 1, 2, 4, 5}
        assert any("clocks of the hosts were compared" in one.fact for one in found.evidence)
        assert job.finish() == [0] * NODES, job.told()
        assert job.actions() == [[]] * NODES


def test_a_slow_link_is_named_by_the_ranks_at_both_of_its_ends(tmp_path: Path) -> None:
    with (
        a_network(tmp_path / "net", NODES) as network,
        nodes_job(tmp_path / "job", *FLAGS, network=network, numbers=BULKY) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        network.slow(network.hosts[1], "50mbit")
        own = range(RANKS, 2 * RANKS)

        def is_it(found: Diagnosis) -> bool:
            links = [one.fact for one in found.evidence if one.source == "/proc/net/tcp"]
            across = (f"ranks {own[0] - 1} and {own[0]}:", f"ranks {own[-1]} and {own[-1] + 1}:")
            return found.verdict == "RankCommSlow" and all(
                any(fact.startswith(pair) for fact in links) for pair in across
            )

        found = wait_for(job, is_it)
        assert set(own) <= set(found.culprits), found.summary
        network.heal(network.hosts[1])
        assert job.finish() == [0] * NODES, job.told()
        assert job.actions() == [[]] * NODES
