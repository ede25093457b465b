"""Dumps of every Python process of a node: which of them are ranks, and whose children the others are."""

from __future__ import annotations

import pytest
from tests.classify_factory import SITE
from tests.dumps_factory import STUCK, WAITS, a_dump, a_file, gathered, python

from rankscope.diag.dumps.bystanders import program_of
from rankscope.diag.dumps.pieces import Source
from rankscope.diag.model import Frame

TRAIN = "/opt/conda/bin/python -u train.py --cfg a.yaml"
SERVES = (python("select", 468, "selectors.py"), python("serve", 120, f"{SITE}wandb/sdk/service/server.py"))
LOADS = (
    python("_MultiProcessingDataLoaderIter._try_get_data", 1133, f"{SITE}torch/utils/data/dataloader.py"),
    python("<module>", 90),
)
FETCHES = (
    python("__getitem__", 33, "dataset.py"),
    python("fetch", 51, f"{SITE}torch/utils/data/_utils/fetch.py"),
    python("_worker_loop", 308, f"{SITE}torch/utils/data/_utils/worker.py"),
    python("<module>", 90),
)
IDLES = (python("get", 113, "multiprocessing/queues.py"), *FETCHES[2:])


def of_pid(pid: int, *frames: Frame, title: str = TRAIN, parent: int = 0) -> Source:
    return a_file(f"pid_{pid}.txt", a_dump(pid, *frames, title=title, parent=parent))


def pids(*sources: Source) -> list[int]:
    (snapshot,) = gathered(*sources).snapshots
    return [rank.pid for rank in snapshot.ranks]


@pytest.mark.parametrize(
    ("title", "name", "is_script"),
    [
        (TRAIN, "train.py", True),
        ("python3.11 -X faulthandler -W ignore /app/run/train.py", "train.py", True),
        ("/opt/conda/bin/python /opt/conda/bin/tensorboard --logdir runs", "tensorboard", False),
        ("python -m ipykernel_launcher -f kernel-1.json", "-m ipykernel_launcher", False),
        ("/usr/bin/python /opt/v/lib/python3.10/site-packages/ray/dashboard/agent.py -x", "agent.py", False),
        ("wandb-service(2-5001-s)", "wandb-service(#-#-s)", False),
        ("sglang::scheduler_TP3", "sglang::scheduler_TP#", False),
    ],
)
def test_a_command_line_tells_the_program(title: str, name: str, is_script: bool) -> None:
    program = program_of(a_dump(1, *STUCK, title=title))
    assert program is not None
    assert (program.name, program.is_script) == (name, is_script)


def test_one_liners_and_options_alone_tell_no_program() -> None:
    assert program_of(a_dump(1, *STUCK, title="python -c import spawn_main")) is None
    assert program_of(a_dump(1, *STUCK, title="python -u")) is None
    assert program_of(a_dump(1, *SERVES)) is None


def test_other_programs_on_the_node_are_no_ranks_and_are_named() -> None:
    found = gathered(
        *(of_pid(pid, *WAITS) for pid in (11, 12)),
        of_pid(13, *STUCK),
        of_pid(50, *SERVES, title="wandb-service(2-11-s)"),
        of_pid(60, *SERVES, title="/usr/bin/python /usr/bin/tensorboard --logdir x"),
        of_pid(70, *SERVES, title="python gpu_monitor.py"),
    )
    (snapshot,) = found.snapshots
    assert [(rank.rank, rank.pid) for rank in snapshot.ranks] == [(0, 11), (1, 12), (2, 13)]
    assert found.unplaced == {
        "stacks of another program than the ranks': wandb-service(#-#-s) (py-spy)": 1,
        "stacks of another program than the ranks': tensorboard (py-spy)": 1,
        "stacks of another program than the ranks': gpu_monitor.py (py-spy)": 1,
    }


def test_without_command_lines_the_file_that_a_process_began_in_tells() -> None:
    serves = (*SERVES, python("<module>", 8, "/usr/bin/tensorboard"))
    assert pids(
        of_pid(11, *WAITS, title=""), of_pid(12, *STUCK, title=""), of_pid(60, *serves, title="")
    ) == [11, 12]


def test_a_second_script_of_the_job_is_a_role_and_stays() -> None:
    """As many processes as the first script has, or one that uses torch, or that shares the ranks' file."""
    acts = (python("play", 3, "actor.py"), python("<module>", 9, "actor.py"))
    actors = [of_pid(pid, *acts, title="python actor.py") for pid in (21, 22)]
    assert pids(of_pid(11, *WAITS), of_pid(12, *WAITS), *actors) == [11, 12, 21, 22]
    torch = (python("forward", 3, f"{SITE}torch/nn/modules/linear.py"), *acts)
    assert pids(of_pid(11, *WAITS), of_pid(12, *WAITS), of_pid(21, *torch, title="python actor.py")) == [
        11,
        12,
        21,
    ]
    assert pids(of_pid(11, *WAITS), of_pid(12, *WAITS), of_pid(21, *STUCK, title="renamed")) == [11, 12, 21]


def test_nothing_is_told_apart_where_no_process_is_in_communication() -> None:
    assert pids(of_pid(11, *STUCK), of_pid(50, *SERVES, title="python -m acme")) == [11, 50]


def test_the_parent_of_spawned_ranks_is_no_rank() -> None:
    joins = (python("join", 148, f"{SITE}torch/multiprocessing/spawn.py"), python("<module>", 90))
    found = gathered(of_pid(10, *joins), of_pid(11, *WAITS, title=""), of_pid(12, *STUCK, title=""))
    assert [rank.pid for rank in found.snapshots[-1].ranks] == [11, 12]
    assert found.unplaced == {"stacks of a launcher that is no rank (py-spy)": 1}


def test_a_worker_that_fetches_belongs_to_the_only_rank_that_waits_for_its_loader() -> None:
    found = gathered(
        of_pid(11, *WAITS), of_pid(12, *LOADS), of_pid(21, *IDLES), of_pid(22, *FETCHES), of_pid(23, *IDLES)
    )
    (snapshot,) = found.snapshots
    assert [[child.pid for child in rank.children] for rank in snapshot.ranks] == [[], [22]]
    assert (
        found.notes[-1] == "loader workers at work are taken as those of rank 1: only it waits for such a one"
    )
    several = gathered(of_pid(11, *LOADS), of_pid(12, *LOADS), of_pid(22, *FETCHES))
    assert all(not rank.children for rank in several.snapshots[-1].ranks)


def test_a_compile_worker_belongs_to_the_parent_on_its_command_line() -> None:
    compiles = (python("_recv_msg", 57, f"{SITE}torch/_inductor/compile_worker/subproc_pool.py"),)
    title = "/usr/bin/python /x/torch/_inductor/compile_worker/__main__.py --pickler=x --parent=12"
    found = gathered(of_pid(11, *WAITS), of_pid(12, *STUCK), of_pid(31, *compiles, title=title))
    assert [[child.pid for child in rank.children] for rank in found.snapshots[-1].ranks] == [[], [31]]


BEGAN = (
    python("run", 108, "multiprocessing/process.py"),
    python("_bootstrap", 314, "multiprocessing/process.py"),
)


def test_a_checkpoint_writer_belongs_to_the_only_rank_that_waits_for_the_end_of_a_process() -> None:
    writes = (python("write_preloaded_data", 402, "filesystem_async.py"), *BEGAN, python("<module>", 90))
    joins = (python("join", 149, "multiprocessing/process.py"), python("close", 248), python("<module>", 90))
    found = gathered(of_pid(11, *WAITS), of_pid(12, *joins), of_pid(40, *writes))
    (snapshot,) = found.snapshots
    assert [[child.pid for child in rank.children] for rank in snapshot.ranks] == [[], [40]]
    assert pids(of_pid(11, *WAITS), of_pid(12, *STUCK), of_pid(40, *writes)) == [11, 12]


def test_ranks_that_were_forked_stay_ranks() -> None:
    assert pids(of_pid(11, *WAITS[:1], *BEGAN), of_pid(12, *STUCK[:1], *BEGAN)) == [11, 12]
