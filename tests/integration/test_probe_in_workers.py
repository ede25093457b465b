"""The probe in real workers: scripts that know nothing of it, started as the agent starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.probe_factory import DEADLINE, Workers, finish, wait_until, workers

from rankscope.watchdog import probe
from rankscope.watchdog.page import GroupSeq
from rankscope.watchdog.probe.groups import members_hash
from rankscope.watchdog.probe.process_stat import start_ticks


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path, slots=2) as made:
        yield made


TRAIN = """
    import os, sys, torch, torch.distributed as dist
    dist.init_process_group("gloo", init_method=os.environ.get("RENDEZVOUS", "env://"),
                            rank=int(os.environ["RANK"]), world_size=2)
    alone = [dist.new_group([rank]) for rank in (0, 1)][dist.get_rank()]
    both = dist.new_group([0, 1])
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([weight])
    one = torch.ones(1)
    for _ in range(7):
        weight.grad = torch.ones(2)
        dist.all_reduce(one)
        optimizer.step()
"""


def as_dict(groups: tuple[GroupSeq, ...]) -> dict[str, tuple[int, int, int]]:
    return {group.name: (group.size, group.enqueued, group.completed) for group in groups}


def test_under_torchrun_steps_and_groups_appear_and_a_hung_collective_stays_open(node: Workers) -> None:
    script = node.script(
        TRAIN
        + """
    dist.all_reduce(one, group=both)
    if dist.get_rank() == 0:
        dist.all_reduce(one, group=alone)
        dist.all_reduce(one, group=both)
    sys.stdin.read()
"""
    )
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python", "sh", "-c"]
    shell = f'exec env RANKSCOPE_SLOT=$LOCAL_RANK "{sys.executable}" "{script}"'
    launcher = node.start(*command, shell, rank=None, OMP_NUM_THREADS="1")
    hung, late = (
        {"0": (2, 7, 7), "1": (1, 1, 1), "3": (2, 2, 1)},
        {"0": (2, 7, 7), "2": (1, -1, -1), "3": (2, 1, 1)},
    )
    wait_until(lambda: as_dict(node.slot(0).groups) == hung, "rank 0 is in the collective")
    wait_until(lambda: as_dict(node.slot(1).groups) == late, "rank 1 is not")
    for rank in (0, 1):
        view = node.slot(rank)
        assert (view.rank, view.step) == (rank, 7)
        assert view.start_ticks == start_ticks(view.pid) > 0
        assert view.pid != launcher.pid
        assert {group.members_hash for group in view.groups if group.size == 2} == {members_hash([0, 1])}
    beat_ns = node.slot(0).beat_ns
    wait_until(lambda: node.slot(0).beat_ns > beat_ns, "the beat goes on while the rank is hung")
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=DEADLINE)


def test_groups_follow_destroy_and_a_new_start(node: Workers) -> None:
    script = node.script(
        TRAIN
        + """
    print("trained", flush=True); input()
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"] + "-again",
                            rank=int(os.environ["RANK"]), world_size=2)
    print("begun again", flush=True); input()
    dist.all_reduce(one)
    print("reduced", flush=True); input()
    dist.destroy_process_group()
    print("destroyed", flush=True); input()
"""
    )
    rendezvous = (node.folder / "rendezvous").as_uri()
    ranks = [node.start(script, rank=rank, RENDEZVOUS=rendezvous) for rank in (0, 1)]
    expected = {
        "trained": {"0": (2, 7, 7), "1": (1, -1, -1), "3": (2, -1, -1)},
        "begun again": {"0": (2, -1, -1)},
        "reduced": {"0": (2, 1, 1)},
        "destroyed": {},
    }
    for line, groups in expected.items():
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline().strip() == line
        wait_until(lambda groups=groups: as_dict(node.slot(0).groups) == groups, f"groups once {line}")  # type: ignore[misc]
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write("\n")
            rank.stdin.flush()
    assert [finish(rank) for rank in ranks] == [(0, "", "")] * 2


def test_children_of_a_rank_claim_nothing(node: Workers) -> None:
    script = node.script("""
        import multiprocessing, os, subprocess, sys, torch
        from torch.utils.data import DataLoader

        class Steps(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                step()
                return index

        def step(times=1):
            weight = torch.nn.Parameter(torch.ones(1))
            weight.grad = torch.ones(1)
            optimizer = torch.optim.SGD([weight])
            for _ in range(times):
                optimizer.step()

        if __name__ == "__main__":
            step(2)
            list(DataLoader(Steps(), num_workers=2, multiprocessing_context="fork"))
            list(DataLoader(Steps(), num_workers=1, multiprocessing_context="spawn"))
            if os.fork() == 0:
                step(50)
                sys.excepthook(ValueError, ValueError("child"), None)
                os._exit(0)
            os.wait()
            count_threads = "import threading; print(threading.active_count())"
            subprocess.run([sys.executable, "-c", count_threads], check=True)
            print("end")
    """)
    process = node.start(script)
    code, out, err = finish(process)
    view = node.slot()
    assert (code, out.split()) == (0, ["1", "end"]), err
    assert (view.rank, view.pid, view.step, view.raised_ns) == (0, process.pid, 2, 0)


def test_a_second_python_in_the_same_worker_leaves_the_first_its_slot(node: Workers) -> None:
    first = node.start(node.script("print('up', flush=True); input()"))
    assert first.stdout is not None
    assert first.stdout.readline() == "up\n"
    second = node.start(node.script("print('filter')", "filter.py"))
    assert finish(second) == (0, "filter\n", "")
    assert node.slot().pid == first.pid
    first.communicate("\n", timeout=DEADLINE)
    third = node.start(node.script("print('next')", "next.py"))
    assert finish(third) == (0, "next\n", "")
    assert node.slot().pid == third.pid


def test_a_rank_that_executes_itself_again_stays_the_rank(node: Workers) -> None:
    script = node.script("""
        import os, sys
        if len(sys.argv) == 1:
            os.execv(sys.executable, [sys.executable, __file__, "again"])
        print(os.environ["RANKSCOPE_RANK_PID"])
    """)
    process = node.start(script)
    assert finish(process) == (0, f"{process.pid}\n", "")
    assert node.slot().pid == process.pid


SAYS_WHO_IS_SITECUSTOMIZE = """
    import sys
    loaded = "sitecustomize" in sys.modules
    try:
        import sitecustomize
    except ImportError as error:
        print(loaded, error.name, error)
    else:
        print(loaded, sitecustomize.__file__, sitecustomize.__spec__.origin == sitecustomize.__file__)
    print(*sys.path[1:], sep="\\n")
"""


@pytest.mark.parametrize("rank", [0, None])
@pytest.mark.parametrize("own", ["file", "package", None])
def test_the_users_own_sitecustomize_is_the_one_that_is_seen(
    node: Workers, own: str | None, rank: int | None
) -> None:
    folder = node.folder / "own"
    folder.mkdir()
    if own == "file":
        (folder / "sitecustomize.py").write_text("print('mine')\n")
    if own == "package":
        (folder / "sitecustomize").mkdir()
        (folder / "sitecustomize" / "__init__.py").write_text("print('mine')\n")
    script = node.script(SAYS_WHO_IS_SITECUSTOMIZE)
    with_probe = finish(node.start(script, rank=rank, PYTHONPATH=probe.pythonpath(str(folder))))
    without = finish(node.start(script, rank=None, PYTHONPATH=str(folder)))
    assert with_probe == without
    assert node.slot().rank == (-1 if rank is None else 0)


def test_a_sitecustomize_of_the_user_that_fails_looks_as_without_the_probe(node: Workers) -> None:
    folder = node.folder / "own"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("raise RuntimeError('broken set-up')\n")
    script = node.script("print('end')")
    with_probe = finish(node.start(script, PYTHONPATH=probe.pythonpath(str(folder))))
    without = finish(node.start(script, rank=None, PYTHONPATH=str(folder)))
    assert with_probe == without
    assert "broken set-up" in without[2]
    assert node.slot().rank == 0


def test_the_probe_is_found_beside_its_sitecustomize_by_another_environment(node: Workers) -> None:
    script = node.script("import sys; print([entry for entry in sys.path if 'watchdog' in entry])")
    # The interpreter that this environment was made from: without its site-packages, so without rankscope.
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    process = subprocess.run(
        [base, script],
        env=node.environment(0, PYTHONPATH=probe.site_folder()),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "[]\n", "")
    assert node.slot().rank == 0


@pytest.mark.parametrize("page", ["missing", "short", "alien"])
def test_without_a_readable_page_the_script_runs_as_ever(node: Workers, page: str) -> None:
    path = node.folder / "other.page"
    if page != "missing":
        path.write_bytes(b"x" * (10 if page == "short" else 10_000))
    script = node.script("import sys; print('trained'); sys.exit(7)")
    code, out, err = finish(node.start(script, RANKSCOPE_PAGE=str(path)))
    assert (code, out) == (7, "trained\n")
    assert re.fullmatch(r"rankscope: .*other\.page.*; training runs without progress reports\n", err)


def test_switched_off_nothing_happens(node: Workers) -> None:
    script = node.script("import threading; print(threading.active_count())")
    assert finish(node.start(script, RANKSCOPE_PROBE="0")) == (0, "1\n", "")
    assert node.slot().rank == -1


def test_a_closed_stderr_does_not_disturb_the_worker(node: Workers) -> None:
    script = node.script("import os; os.close(2); raise ValueError('x')")
    assert finish(node.start(script))[:2] == (1, "")
    assert node.slot().raised_text == "ValueError: x"


RAISES = """
    from torch.distributed.elastic.multiprocessing.errors import record

    @record
    def main():
        raise ValueError("no such shard")

    main()
"""


def test_a_raising_worker_waits_for_the_agents_answer(node: Workers) -> None:
    node.reader.want_hold(True)
    process = node.start(node.script(RAISES))
    wait_until(lambda: node.slot().raised_ns > 0, "the exception is in the page")
    assert process.poll() is None
    node.reader.answer(0, 1)
    code, out, err = finish(process)
    assert (code, out) == (1, "")
    assert err.rstrip().endswith("ValueError: no such shard")
    assert node.slot().raised_text == "ValueError: no such shard"


def test_a_hook_that_the_user_sets_is_called_alone(node: Workers) -> None:
    node.reader.want_hold(True)
    script = node.script("""
        import sys
        sys.excepthook = lambda *_: print("my hook")
        raise ValueError("x")
    """)
    assert finish(node.start(script)) == (1, "my hook\n", "")


ENTRYPOINTS = """
    import os, sys
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes
    from rankscope.watchdog.probe.entry import ProbedEntrypoint

    def train(rank):
        import torch
        # One write: both ranks share the FIFO, and an unbuffered print would send its pieces.
        os.write(1, b"rank %d prints\\n" % rank)
        weight = torch.nn.Parameter(torch.ones(1))
        weight.grad = torch.ones(1)
        optimizer = torch.optim.SGD([weight])
        for _ in range(3 + rank):
            optimizer.step()
        if rank == 1:
            raise ValueError("rank 1 fails")
        return rank

    if __name__ == "__main__":
        agent = {"RANKSCOPE_AGENT_PID": str(os.getpid())}
        envs = {rank: {"RANK": str(rank), "RANKSCOPE_SLOT": str(rank), **agent} for rank in (0, 1)}
        context = start_processes("train", ProbedEntrypoint(train), {0: (0,), 1: (1,)}, envs,
                                  DefaultLogsSpecs(sys.argv[2]), start_method=sys.argv[1])
        result = context.wait(300)
        print("failed", sorted(result.failures))
"""


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_workers_that_are_functions_report_too(node: Workers, start_method: str) -> None:
    (node.folder / "logs").mkdir()
    fifo = node.folder / "stdout"
    os.mkfifo(fifo)
    listener = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        script = node.script(ENTRYPOINTS)
        process = node.start(
            script, start_method, node.folder / "logs", rank=None, RANKSCOPE_STDOUT=str(fifo)
        )
        code, out, err = finish(process)
        assert (code, out) == (0, "failed [1]\n"), err
        assert set(os.read(listener, 65536).decode().splitlines()) >= {"rank 1 prints"}
    finally:
        os.close(listener)
    view = node.slot(1)
    assert (view.rank, view.step, view.raised_text) == (1, 4, "ValueError: rank 1 fails")


@pytest.mark.parametrize("ending", ["pass", "import sys; sys.exit(3)", "import os; os._exit(4)"])
def test_a_worker_ends_without_a_word_and_without_a_wait(node: Workers, ending: str) -> None:
    node.reader.want_hold(True)
    code, out, err = finish(node.start(node.script(ending)))
    assert (code, out, err) == ({"pass": 0, "import sys; sys.exit(3)": 3}.get(ending, 4), "", "")


def test_the_probe_adds_no_module_of_torch(node: Workers) -> None:
    script = node.script("import sys; print([name for name in sys.modules if name.startswith('torch')])")
    assert finish(node.start(script)) == (0, "[]\n", "")
    assert node.slot().rank == 0
