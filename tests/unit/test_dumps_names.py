"""What names of dumps say, and when a bare number is a rank."""

from __future__ import annotations

import pytest

from rankscope.diag.dumps.names import are_ranks, natural, read_name


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("rank3", 3),
        ("rank_3.txt", 3),
        ("rank-3.json.gz", 3),
        ("job_rank_3.log", 3),
        ("worker3.txt", 3),
        ("trace_rank_3", 3),
        ("nccl_trace_rank_3", 3),
        ("rank12.pyspy_native.txt", 12),
        ("RANK_7.stderr", 7),
        ("lora_rank64_rank3.txt", 3),
        ("rank3_local_rank1.txt", 3),
        ("rank3/pyspy.txt", 3),
        ("worker3/stack.txt", 3),
        ("hostA/rank3.txt", 3),
        ("node-17/rank_3.txt", 3),
        ("gpu-worker-9/rank3.txt", 3),
        ("node-17_rank_3.txt", 3),
        ("none_abc/attempt_0/5/stderr.log", 5),
        ("node-17/pyspy.txt", None),
        ("node-17.txt", None),
        ("host3", None),
        ("frankfurt.txt", None),
        ("train.log", None),
        ("rank99999999.txt", None),
    ],
)
def test_a_rank_is_read_from_the_file_or_its_folder_and_never_from_a_host(
    path: str, rank: int | None
) -> None:
    assert read_name(path.split("/")).rank == rank


@pytest.mark.parametrize(
    ("path", "sample"),
    [
        ("samples/t4.rank0.pyspy.json", 4),
        ("rank0.t4.txt", 4),
        ("rank0.2.txt", 2),
        ("sample_7/rank0.txt", 7),
        ("3/rank0.txt", 3),
        ("rank0_20261129T164000Z.txt", 20261129164000),
        ("rank0.pyspy.txt", None),
        ("rank0.21326.txt", None),
        ("rank3_of_8.txt", None),
        ("rank0.child9093.pyspy.txt", None),
        ("node-17/rank0.txt", None),
        ("t4.txt", None),
    ],
)
def test_a_look_is_numbered_beside_the_rank_or_by_its_folder(path: str, sample: int | None) -> None:
    assert read_name(path.split("/")).sample == sample


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("hostA/rank3.txt", "hostA"),
        ("gpu-worker-9/rank3.txt", "gpu-worker-9"),
        ("node-17_trace_rank_3", "node-17"),
        ("10.0.0.4/samples/t0.rank1.json", "10.0.0.4"),
        ("rank3/pyspy.txt", ""),
        ("samples/t0.rank1.json", ""),
        ("rank3.txt", ""),
    ],
)
def test_a_folder_that_means_nothing_else_is_the_host(path: str, node: str) -> None:
    assert read_name(path.split("/")).node == node


def test_children_tools_and_attempts_are_read_too() -> None:
    assert read_name(["rank0.child9093.pyspy.txt"]).child == 9093
    assert read_name(["rank0.child9093.pyspy.txt"]).tool == "pyspy"
    assert read_name(["rank0.pyspy_nonblocking.txt"]).is_torn
    assert read_name(["rank0.pystack_nonblock.txt"]).is_torn
    assert not read_name(["rank0.pystack_native.txt"]).is_torn
    assert read_name(["x", "attempt_2", "0", "stderr.log"]).attempt == 2


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["dump-0", "dump-1"], True),
        (["py-spy.0.txt", "py-spy.1.txt", "py-spy.3.txt"], True),
        (["dump-120", "dump-121"], False),
        (["dump.21326", "dump.21327"], False),
        (["dump-0", "dump"], False),
        (["node-0", "node-1"], False),
        (["stack_20261129"], False),
        ([], False),
    ],
)
def test_bare_numbers_are_ranks_when_all_names_have_one_and_they_are_close(
    names: list[str], *, expected: bool
) -> None:
    assert are_ranks([read_name([name]).bare for name in names]) is expected


def test_names_are_ordered_by_their_numbers() -> None:
    assert sorted(["rank10", "rank2", "a", "rank1.t10", "rank1.t9"], key=natural) == [
        "a",
        "rank1.t9",
        "rank1.t10",
        "rank2",
        "rank10",
    ]
