"""Hangs of real jobs of three nodes: one verdict, one ruling, whatever happens to an agent meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.jobs import until
from tests.network import a_network
from tests.nodes_jobs import Node, NodesJob, nodes_job

from rankscope.diag.store.events import Event
from rankscope.diag.store.incidents import IncidentFolder

NODES = 3
OFTEN = ("--monitor-interval=0.2", "--max-restarts=5")
QUICK = ("--diagnose-after=2", "--job-hang-interval=4")
LATE = ("--diagnose-after=2", "--job-hang-interval=30")
"""The verdict is there long before anything is done about it."""
CONF = "--rdzv-conf=is_host={is_host},last_call_timeout=1,keep_alive_interval=1"
TWO_ARE_ENOUGH = (f"--nnodes=2:{NODES}", CONF)


def confirmed(node: Node) -> list[Event]:
    return node.events("incident.confirmed")


def wait_for_verdict(*nodes: Node, count: int = 1) -> None:
    for node in nodes:
        until(lambda node=node: len(confirmed(node)) >= count, f"verdict {count} on node {node.number}")  # type: ignore[misc]


def opened(job: NodesJob) -> bool:
    """Whether an agent is looking at its ranks because another one has asked."""
    return any("suspects a hang" in node.stderr for node in job.nodes)


def group_rank(node: Node) -> int:
    (launch,) = node.events("cycle.started")[-1:]
    ranks = launch.data["ranks"]
    assert isinstance(ranks, list)
    return int(ranks[0]) // len(ranks)


def of_group_rank(job: NodesJob, rank: int) -> Node:
    (found,) = [node for node in job.nodes if group_rank(node) == rank]
    return found


def test_a_culprit_on_each_node_in_turn_is_found_by_all_and_all_start_again_together(tmp_path: Path) -> None:
    with nodes_job(tmp_path / "job", f"--nnodes={NODES}", *OFTEN, *QUICK, shared_home=False) as job:
        for turn, culprit in enumerate((0, 3, 4), start=1):
            job.wait_for_rounds(turn, nodes=NODES)
            owner = of_group_rank(job, culprit // 2)
            job.ask("hang", culprit)
            wait_for_verdict(*job.nodes, count=turn)
            found = [confirmed(node)[-1] for node in job.nodes]
            assert {(one.data["verdict"], tuple(one.data["culprits"])) for one in found} == {  # type: ignore[arg-type]
                ("RankNonCommHang", (culprit,))
            }
            assert len({one.subject for one in found}) == 1
            for node in job.nodes:
                kept = node.diagnosis()
                assert (kept.nodes, kept.incident) == ((owner.agent().node,), found[0].subject)
        job.wait_for_rounds(4, nodes=NODES)
        assert job.finish() == [0] * NODES, job.told()
        assert job.actions() == [["restart"] * 3] * NODES
        for node in job.nodes:
            assert [event.data["restarts"] for event in node.events("restart")] == [1, 2, 3]


def test_the_node_of_a_frozen_rank_leaves_and_the_others_go_on(tmp_path: Path) -> None:
    with nodes_job(tmp_path / "job", *TWO_ARE_ENOUGH, *OFTEN, *QUICK) as job:
        job.wait_for_rounds(1, nodes=NODES)
        leaver = job.nodes[1]
        os.kill(leaver.agent().workers[0].pid, signal.SIGSTOP)
        job.wait_for_rounds(1, nodes=2)
        assert leaver.finish() == 75
        assert job.finish() == [0, 75, 0], job.told()
        assert job.actions() == [["restart"], ["isolate"], ["restart"]]


def test_an_agent_that_is_killed_while_all_look_is_named_and_the_culprit_still_found(tmp_path: Path) -> None:
    with nodes_job(tmp_path / "job", *TWO_ARE_ENOUGH, *OFTEN, *LATE) as job:
        job.wait_for_rounds(1, nodes=NODES)
        culprit, dead = job.nodes[0], job.nodes[2]
        rank = 2 * group_rank(culprit)
        job.ask("hang", rank)
        until(lambda: opened(job), "an incident")
        os.kill(dead.pid, signal.SIGKILL)
        wait_for_verdict(*job.nodes[:2])
        (found,) = confirmed(job.nodes[0])
        assert found.data["culprits"] == [rank]
        evidence = [one.fact for one in job.nodes[0].diagnosis().evidence if one.source == "node"]
        assert len(evidence) == 1
        assert "could not observe" in evidence[0]


def test_a_link_that_is_cut_with_the_hang_hides_no_culprit(tmp_path: Path) -> None:
    with (
        a_network(tmp_path / "net", NODES) as network,
        nodes_job(tmp_path / "job", *TWO_ARE_ENOUGH, *OFTEN, *QUICK, network=network) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        *others, cut = job.nodes
        rank = 2 * group_rank(others[1])
        job.ask("hang", rank)
        until(lambda: not (job.folder / f"hang-{rank}").exists(), "the hang")
        network.cut(network.hosts[cut.number])
        wait_for_verdict(*others)
        (found,) = {one.subject for node in others for one in confirmed(node)}
        kept = others[0].records.incidents / str(found)
        diagnosis = IncidentFolder(kept).diagnosis()
        assert diagnosis.culprits == (rank,)
        told = [one.fact for one in diagnosis.evidence if one.source == "node"]
        assert [fact.split(",", 1)[0] for fact in told] == ["could not observe node node2"]
        job.wait_for_rounds(1, nodes=2)


def test_a_leader_whose_host_is_gone_after_the_verdict_is_replaced_and_the_others_follow_one_ruling(
    tmp_path: Path,
) -> None:
    with (
        a_network(tmp_path / "net", NODES) as network,
        nodes_job(tmp_path / "job", *TWO_ARE_ENOUGH, *OFTEN, *LATE, network=network, host=2) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        leader = of_group_rank(job, 0)
        assert leader is not job.nodes[2]
        others = [node for node in job.nodes if node is not leader]
        job.ask("hang", 3)
        wait_for_verdict(*others)
        network.switch_off(network.hosts[leader.number])
        job.wait_for_rounds(1, nodes=2)
        decided = [node.events("decision") for node in others]
        assert [[one.data["action"] for one in each] for each in decided] == [["restart"], ["restart"]]
        assert len({(one.subject, str(one.data["reason"])) for each in decided for one in each}) == 1
        sent = [one for each in decided for one in each if not one.data.get("told_elsewhere")]
        assert len(sent) == 1  # although who judged it is gone


def test_where_the_host_of_the_store_is_gone_each_node_judges_what_it_sees_and_ends(tmp_path: Path) -> None:
    with (
        a_network(tmp_path / "net", NODES) as network,
        nodes_job(
            tmp_path / "job", f"--nnodes={NODES}", *OFTEN, *QUICK, network=network, shared_home=False
        ) as job,
    ):
        job.wait_for_rounds(1, nodes=NODES)
        network.switch_off(network.hosts[0])
        wait_for_verdict(*job.nodes[1:])
        assert [node.finish() for node in job.nodes[1:]] == [75, 75]
        for node in job.nodes[1:]:
            assert "the agent waits for the store of the rendezvous" in str(node.events("decision")[-1].data)
