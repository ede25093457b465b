"""Folding stacks and the prefix tree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.classify_factory import a_rank, native, stdlib, user

from rankscope.diag.merge import fold_others, fold_stacks, prefix_tree, split_stacks
from rankscope.diag.merge.normalise import bare_function, portable_file, show_frame, shown_function
from rankscope.diag.model import ChildSnapshot, Frame, RankSnapshot, ThreadStack


def ranks() -> list[RankSnapshot]:
    feeder = ThreadStack(
        9000, "QueueFeederThread", (stdlib("Queue._feed", "multiprocessing/queues.py", 231),)
    )
    waiting = [a_rank(rank).waiting_in().but(others=(feeder,)) for rank in (0, 1, 3)]
    return [one.build(0.0) for one in (*waiting, a_rank(2).stuck_in(user("load_batch", 8)))]


def test_identical_stacks_fold_into_the_promised_form_rarest_first() -> None:
    rare, common = fold_stacks(ranks())
    assert (rare.count, rare.threads, rare.ranks) == (1, ("2:4730",), "2")
    assert (common.count, common.threads, common.ranks) == (3, ("0:4728", "1:4729", "3:4731"), "0-1,3")
    assert common.stack[0] == "all_reduce (torch/distributed/distributed_c10d.py:3252)"
    assert common.stack[2] == "train_step (train.py:11)"


def test_other_threads_and_those_of_children_are_folded_apart() -> None:
    worker = ThreadStack(5000, "MainThread", (user("read_shard", 5),), is_main=True)
    loading = a_rank(4).stuck_in(user("next", 3)).but(children=(ChildSnapshot(5000, None, (worker,)),))
    groups = fold_others([*ranks(), loading.build(0.0)])
    assert [(group.count, group.ranks) for group in groups] == [(1, "4"), (3, "0-1,3")]


def test_the_record_s_head_holds_the_compared_threads() -> None:
    compared, others = fold_stacks(ranks()), fold_others(ranks())
    assert split_stacks(compared + others) == ([*compared], [*others])
    assert split_stacks(()) == ([], [])


def test_frames_of_different_tools_and_nodes_fold_together() -> None:
    spied = Frame(
        "Loader.<locals>.wrapper", "/a/lib/python3.11/site-packages/torch/x.py", 3, short_file="torch/x.py"
    )
    stacked = Frame("wrapper", "/opt/b/lib64/python3.11/site-packages/torch/x.py", 3)
    one = replace(a_rank(0), frames=(spied,)).build(0.0)
    two = replace(a_rank(1), frames=(stacked,)).build(0.0)
    (group,) = fold_stacks([one, two])
    assert group.stack == ("wrapper (torch/x.py:3)",)


def test_the_qualified_name_is_shown_when_one_tool_knows_it() -> None:
    one = replace(a_rank(0), frames=(user("__getitem__", 4),)).build(0.0)
    two = replace(a_rank(1), frames=(user("SlowSet.__getitem__", 4),)).build(0.0)
    for order in ([one, two], [two, one]):
        (group,) = fold_stacks(order)
        assert group.stack == ("SlowSet.__getitem__ (train.py:4)",)


def test_native_frames_fold_over_addresses_and_library_folders() -> None:
    left = replace(a_rank(0), frames=(native("0x7f05c1ea3f16", "libc.so.6"),)).build(0.0)
    right = replace(a_rank(1), frames=(Frame("0x7fd1abea3f16", "/lib64/libc.so.6", 0, "native"),)).build(0.0)
    (group,) = fold_stacks([left, right])
    assert group.stack == ("0xADDR (libc.so.6)",)


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        ("_exception_logger.<locals>.wrapper", "wrapper"),
        ("a.<locals>.b.<locals>.<lambda>", "<lambda>"),
        ("<lambda_3>", "<lambda>"),
        ("forward <eval_with_key>.12", "forward <eval_with_key>"),
        ("__compiled_fn_7", "__compiled_fn_N"),
        ("pthread_cond_wait@@GLIBC_2.3.2", "pthread_cond_wait"),
        ("poll_schedule_timeout.constprop.0", "poll_schedule_timeout"),
        ("core::fmt::write::h0123456789abcdef", "core::fmt::write"),
        ("graph_1", "graph_1"),
        ("", ""),
    ],
)
def test_what_differs_between_processes_is_not_in_a_shown_name(function: str, shown: str) -> None:
    assert shown_function(function) == shown


def test_the_bare_name_keeps_the_scope_of_c_plus_plus() -> None:
    assert bare_function("Loader.fetch") == "fetch"
    assert bare_function("c10d::Work::wait") == "c10d::Work::wait"
    assert bare_function("f(std::duration<1.5>)") == "f(std::duration<1.5>)"


@pytest.mark.parametrize(
    ("file", "portable"),
    [
        ("/opt/v/lib/python3.11/site-packages/torch/serialization.py", "torch/serialization.py"),
        ("/usr/lib/python3/dist-packages/yaml/reader.py", "yaml/reader.py"),
        ("/usr/local/lib/python3.13t/threading.py", "threading.py"),
        ("/tmp/torchinductor_me/ab/cabcdefghijklmnopqrstuvwx.py", "torchinductor/HASH.py"),
        ("/w/libgomp-a34b3233.so.1", "/w/libgomp.so.1"),
        ("/workspace/train.py", "/workspace/train.py"),
        ("<frozen runpy>", "<frozen runpy>"),
    ],
)
def test_installation_prefixes_are_not_part_of_a_file(file: str, portable: str) -> None:
    assert portable_file(file) == portable


def test_a_frame_without_line_or_file_is_shown_without() -> None:
    assert show_frame(Frame("f", "", 0)) == "f"
    assert show_frame(native("poll", "libc.so.6")) == "poll (libc.so.6)"


def test_the_tree_names_who_has_a_frame_and_who_lacks_it() -> None:
    tree = prefix_tree(fold_stacks(ranks()))
    assert (tree.ranks, tree.missing) == ("0-3", "")
    (module,) = tree.children
    assert (module.frame, module.ranks, module.missing) == ("<module> (train.py:90)", "0-3", "")
    step, load = module.children
    assert (step.frame, step.ranks, step.missing) == ("train_step (train.py:11)", "0-1,3", "2")
    assert (load.frame, load.ranks, load.missing) == ("load_batch (train.py:8)", "2", "0-1,3")


def test_a_tree_a_thousand_frames_deep_is_built() -> None:
    deep = replace(a_rank(0), frames=tuple(user("recurse", line) for line in range(3000))).build(0.0)
    node, depth = prefix_tree(fold_stacks([deep])), 0
    while node.children:
        (node,), depth = node.children, depth + 1
    assert depth == 3000
