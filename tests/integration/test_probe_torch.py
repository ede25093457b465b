"""What torch offers a training script, with the probe in it: everything works as without, and is seen."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.deadline import DEADLINE
from tests.probe_factory import Workers, finish, wait_until, workers

from rankscope.watchdog.page import GroupSeq
from rankscope.watchdog.probe.groups import members_hash


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path, slots=4) as made:
        yield made


def start_all(node: Workers, source: str, ranks: int = 2) -> list[subprocess.Popen[str]]:
    """Start ``ranks`` ranks of one script."""
    script = node.script(source)
    rendezvous = (node.folder / "rendezvous").as_uri()
    return [
        node.start(script, rank=rank, RENDEZVOUS=rendezvous, WORLD_SIZE=str(ranks)) for rank in range(ranks)
    ]


BEGIN = """
    import os, sys, torch, torch.distributed as dist
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=rank, world_size=world)
"""
END = """
    print("trained", flush=True)
    input()
    dist.destroy_process_group()
"""


Groups = list[dict[str, GroupSeq]]


def trained(node: Workers, body: str, wanted: Callable[[Groups], bool], ranks: int = 2) -> Groups:
    """Run ``body`` on every rank; the groups of each by name, once they are as ``wanted``."""
    processes = start_all(node, BEGIN + body + END, ranks)
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "trained\n", process.communicate()

    def groups() -> Groups:
        return [{group.name: group for group in node.slot(rank).groups} for rank in range(ranks)]

    wait_until(lambda: wanted(groups()), "the numbers in the page")
    found = groups()
    for process in processes:
        _, err = process.communicate("\n", timeout=DEADLINE)
        assert process.returncode == 0, err
    return found


def finished(groups: dict[str, GroupSeq], *ranks: int) -> list[int]:
    """Collectives of the groups that have exactly these members; -2 for a group with an open one."""
    return [
        group.completed if group.completed == group.enqueued else -2
        for group in groups.values()
        if (group.size, group.members_hash) == (len(ranks), members_hash(ranks))
    ]


def test_ddp_steps_and_collectives_are_seen(node: Workers) -> None:
    trained(
        node,
        """
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
""",
        lambda groups: all(done >= 5 for seen in groups for done in finished(seen, 0, 1)) and all(groups),
    )
    assert [node.slot(rank).step for rank in (0, 1)] == [5, 5]


def test_fsdp2_steps_and_collectives_are_seen(node: Workers) -> None:
    trained(
        node,
        """
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
""",
        lambda groups: all(any(done >= 4 for done in finished(seen, 0, 1)) for seen in groups),
    )
    assert [node.slot(rank).step for rank in (0, 1)] == [4, 4]


def test_groups_of_a_mesh_have_the_members_of_their_row_and_column(node: Workers) -> None:
    """Of 2 x 2 ranks; the same name never stands for two sets of members in this torch."""
    groups = trained(
        node,
        """
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    row, column = mesh["tp"].get_group(), mesh["dp"].get_group()
    local = dist.new_group([rank - rank % 2, rank - rank % 2 + 1], use_local_synchronization=True)
    for _ in range(3):
        dist.all_reduce(torch.ones(1), group=row)
    dist.all_reduce(torch.ones(1), group=column)
    dist.all_reduce(torch.ones(1), group=local)
    dist.all_reduce(torch.ones(1), group=local)
""",
        lambda groups: all(
            (sorted(finished(seen, rank & 2, rank | 1)), finished(seen, rank & 1, rank | 2)) == ([2, 3], [1])
            for rank, seen in enumerate(groups)
        ),
        ranks=4,
    )
    assert all(len(finished(seen, 0, 1, 2, 3)) == 1 for seen in groups)
    meanings = {(name, group.members_hash) for seen in groups for name, group in seen.items()}
    assert len({name for name, _ in meanings}) == len(meanings)


def test_a_split_group_is_seen_with_its_members(node: Workers) -> None:
    """``split_group`` asks for an accelerator first; the splitting itself is gloo's own.

    Parts of one rank each: in torch 2.13 gloo's part without rank 0 waits for ever.
    """
    trained(
        node,
        """
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1", lazy_init=False)]
    options._threads = 2
    dist.group.WORLD.bound_device_id = torch.device("cpu:0")
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda *_: torch.device("cpu")
    part = dist.split_group(dist.group.WORLD, [[0], [1]], pg_options=options)
    for _ in range(2 + rank):
        dist.all_reduce(torch.ones(1), group=part)
""",
        lambda groups: [finished(seen, rank) for rank, seen in enumerate(groups)] == [[2], [3]],
    )


def test_gradient_accumulation_moves_batches_and_collectives_while_the_optimizer_stands(
    node: Workers,
) -> None:
    script = (
        BEGIN
        + """
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters())
    batches = iter(DataLoader(torch.ones(1000, 1), batch_size=2))
    def micro_steps(count):
        for _ in range(count):
            model(next(batches)).sum().backward()
    micro_steps(4)
    optimizer.step()
    print("trained", flush=True); input()
    micro_steps(30)
    print("trained", flush=True); input()
    dist.destroy_process_group()
"""
    )
    processes = start_all(node, script)
    before: list[int] = []
    for batches in (4, 34):
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "trained\n", process.communicate()
        wait_until(
            lambda batches=batches: {node.slot(rank).batches for rank in (0, 1)} == {batches},  # type: ignore[misc]
            f"{batches} batches in the page",
        )
        wait_until(
            lambda before=before: all(  # type: ignore[misc]
                group.completed >= (before[-1] + 30 if before else 4)
                for rank in (0, 1)
                for group in node.slot(rank).groups
            ),
            "the collectives",
        )
        before.append(node.slot(0).groups[0].completed)
        assert {node.slot(rank).step for rank in (0, 1)} == {1}
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
    for process in processes:
        assert finish(process)[0] == 0


def test_several_optimizers_give_one_counter_of_rounds(node: Workers) -> None:
    script = node.script("""
        import torch
        models = [torch.nn.Linear(2, 2) for _ in range(3)]
        optimizers = [torch.optim.SGD(models[0].parameters()), torch.optim.AdamW(models[1].parameters()),
                      torch.optim.Adagrad(models[2].parameters())]
        mine = []
        from torch.optim.optimizer import register_optimizer_step_post_hook
        register_optimizer_step_post_hook(lambda optimizer, *_: mine.append("global"))
        optimizers[0].register_step_post_hook(lambda optimizer, *_: mine.append("own"))
        optimizers[0].register_step_pre_hook(lambda optimizer, *_: mine.append("before"))
        for _ in range(10):
            for model, optimizer in zip(models, optimizers):
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        print(len(mine), mine[:5])
    """)
    expected = "50 ['before', 'own', 'global', 'global', 'global']\n"
    without = finish(node.start(script, RANKSCOPE_PROBE="0"))
    assert without == (0, expected, "")
    assert finish(node.start(script)) == without
    assert node.slot().step == 10


def test_a_job_without_an_optimizer_still_shows_its_collectives(node: Workers) -> None:
    body = "    for _ in range(6):\n        dist.all_reduce(torch.ones(1))\n"
    trained(node, body, lambda groups: [finished(seen, 0, 1) for seen in groups] == [[6], [6]])
    assert [node.slot(rank).step for rank in (0, 1)] == [0, 0]


COMPILED = """
    import sys, torch
    from torch._dynamo.utils import counters
    from torch.utils.data import DataLoader
    backend = sys.argv[1]
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01), torch.optim.AdamW(model.parameters())]
    forward = torch.compile(model, backend=backend)

    @torch.compile(backend=backend)
    def step(optimizer):
        optimizer.step()

    @torch.compile(backend=backend)
    def epoch(loader):
        total = torch.zeros(())
        for batch in loader:
            total = total + batch.sum()
        return total

    for number in range(6):
        forward(torch.ones(2, 4)).sum().backward()
        step(optimizers[number % 2])
        step(optimizers[number % 2])
        epoch(DataLoader(torch.ones(4, 4), batch_size=2))
    for name in ("stats", "graph_break", "recompiles", "aot_autograd", "resumes"):
        print(name, dict(sorted(counters[name].items())))
    print([round(value, 4) for value in model.bias.tolist()])
"""


def in_short(output: str) -> str:
    """Without the times and pids of torch's log lines."""
    return re.sub(r"^W\d{4} [\d:.]+ \d+ ", "", output, flags=re.MULTILINE)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_step_is_counted_and_compiled_as_without_the_probe(node: Workers, backend: str) -> None:
    """Same graphs, same breaks and reasons, same recompilations, same numbers.

    Torch's list of what it will not trace has one entry more: the hook, which it runs as it is.
    """
    script = node.script(COMPILED)
    without = finish(node.start(script, backend, RANKSCOPE_PROBE="0"))
    with_probe = finish(node.start(script, backend))
    assert without[0] == 0, without[2]
    assert "calls_captured" in without[1]
    assert [in_short(part) for part in with_probe[1:]] == [in_short(part) for part in without[1:]]
    assert with_probe[0] == 0
    assert node.slot().step == 7  # rounds of two optimizers that step twice in turn


def test_nothing_is_imported_that_the_script_does_not_import(node: Workers) -> None:
    """Beyond what Python's start and the probe itself need; in the script's own order otherwise."""
    script = node.script("""
        import sys
        before = set(sys.modules)
        import torch.utils.data, torch.optim, torch.distributed
        print(*sorted(set(sys.modules) - before))
        heavy = {"torch", "numpy", "dataclasses", "inspect", "pathlib"}
        print(*sorted(name for name in before if name.partition(".")[0] in heavy))
    """)
    without = finish(node.start(script, RANKSCOPE_PROBE="0"))
    with_probe = finish(node.start(script))
    new, early = with_probe[1].splitlines()
    assert early == ""
    known = set(without[1].splitlines()[0].split())
    assert {name for name in new.split() if not name.startswith("rankscope.")} <= known
    assert node.slot().rank == 0
