"""The diagnosis as text and as JSON."""

from __future__ import annotations

import io
import json

import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.classify_factory import ARank, a_job, a_rank, judge, judge_still, native, user

from rankscope.diag.model import Diagnosis, Evidence, Frame, Location
from rankscope.diag.report import render_json, render_text
from rankscope.diag.report.html import page_data
from rankscope.diag.report.text import inert


def hang() -> Diagnosis:
    ranks = [a_rank(rank).waiting_in() for rank in (0, 1, 3)]
    stuck = a_rank(2).stuck_in(user("load_batch", 8))
    return judge_still(*ranks, stuck, world_size=5, lines={8: "time.sleep(1e6)"})


def shown(diagnosis: Diagnosis, *, full: bool = False, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=colour, no_color=not colour)
    render_text(diagnosis, console=console, full=full)
    return out.getvalue()


def test_the_text_says_verdict_culprit_waits_stacks_and_what_was_not_seen() -> None:
    text = shown(hang())
    lines = text.splitlines()
    assert lines[0] == "run-7: RankNonCommHang, data_loading, confidence medium, severity warning"
    assert "rank 2: /workspace/train.py:8 in load_batch" in text
    assert "time.sleep(1e6)" in text
    assert "0-1,3 wait for rank 2 in all_reduce" in text
    assert "count 3  threads 0:4728 1:4729 3:4731" in text
    assert "rank 4: no snapshot of this rank" in text
    assert lines.index("  count 1  threads 2:4730") < lines.index("  count 3  threads 0:4728 1:4729 3:4731")


def test_every_line_fits_eighty_columns() -> None:
    long = user("f" * 300, 8, "/very/" * 40 + "long.py")
    wide = user("計算" * 60, 9)
    found = judge_still(a_rank(0).waiting_in(), a_rank(1).stuck_in(long, wide), lines={8: "x" * 500})
    for full in (False, True):
        lines = shown(found, full=full).splitlines()
        assert all(cell_len(line) <= 80 for line in lines)
        assert all(line == line.rstrip() for line in lines)


def test_a_long_symbol_takes_two_lines_and_all_of_them_in_full_and_in_json() -> None:
    symbol = f"c10::impl::call_functor<{'std::vector<at::Tensor>, ' * 60}int>::call"
    found = judge_still(a_rank(0).waiting_in(), a_rank(1).stuck_in(native(symbol), user("load_batch", 8)))
    assert "c10::impl::call_functor<...>::call (libtorch_cpu.so)" in shown(found)
    assert shown(found, full=True).count("std::vector<at::Tensor>") > 50
    assert symbol in render_json(found).decode()
    page = page_data(found, made="2026-11-29T16:40:00Z")
    assert "c10::impl::call_functor<...>::call (libtorch_cpu.so)" in page.frames


def test_a_pipe_gets_no_escape_sequences_and_a_terminal_does() -> None:
    assert "\x1b" not in shown(hang())
    assert "\x1b[" in shown(hang(), colour=True)


@pytest.mark.parametrize(
    "hostile",
    [
        "[red]boo[/red]",
        "[/]",
        "\x1b[2J",
        "\x1b]0;title\x07",
        "a\nrun-7: Healthy",
        ":bomb:",
        "\u202eevil",
        "\r",
    ],
)
@pytest.mark.parametrize("colour", [False, True])
def test_names_from_the_job_are_shown_inert(hostile: str, colour: bool) -> None:
    stuck = a_rank(1).stuck_in(Frame(hostile, f"/w/{hostile}.py", 3, short_file=f"{hostile}.py"))
    found = judge_still(a_rank(0).waiting_in(), stuck, lines={3: hostile})
    text = shown(found, full=True, colour=colour)
    assert inert(hostile) in text.replace("\n", "").replace("      ", "") or inert(hostile) in text
    for control in ("\x1b[2J", "\x1b]", "\x07", "\u202e", "\r"):
        assert control not in text
    assert not any(line.startswith("run-7: Healthy") for line in text.splitlines())


def test_long_lists_are_cut_unless_all_is_asked_for() -> None:
    ranks = [a_rank(rank).waiting_in(line=100 + rank) for rank in range(40)]
    stuck = a_rank(40).stuck_in(*(user("recurse", line) for line in range(200, 240)))
    found = judge_still(*ranks, stuck)
    assert "more stacks (--full)" in shown(found)
    assert "more frames (--full)" in shown(found)
    full = shown(found, full=True)
    assert "(--full)" not in full
    assert full.count("count 1 ") == 41


def test_other_threads_are_counted_and_shown_only_in_full() -> None:
    from rankscope.diag.model import ThreadStack

    feeder = ThreadStack(90, "QueueFeederThread", (user("_feed", 3),))
    waiting: ARank = a_rank(0).waiting_in().but(others=(feeder,))
    found = judge_still(waiting, a_rank(1).stuck_in(user("load", 8)))
    assert "1 other thread not shown (--full)" in shown(found)
    assert "_feed (train.py:3)" in shown(found, full=True)


def test_a_healthy_job_is_one_short_text() -> None:
    found = judge(
        a_job(a_rank(0).waiting_in().but(step=1)), a_job(a_rank(0).waiting_in().but(step=2), seconds=4.0)
    )
    assert shown(found).splitlines()[0] == "run-7: Healthy, confidence high"


def test_the_json_has_the_promised_fields_in_a_stable_order() -> None:
    document = json.loads(render_json(hang()))
    assert list(document)[:6] == ["schema", "job", "time", "world_size", "observed", "verdict"]
    assert list(document)[6:11] == ["kind", "severity", "confidence", "culprits", "nodes"]
    assert document["schema"] == 1
    assert document["ranks"][2]["class"] == "RankNonCommHang"
    assert set(document["location"]) == {"rank", "function", "file", "line", "source"}
    assert document["stacks"][1]["threads"] == ["0:4728", "1:4729", "3:4731"]
    assert document["unobserved"] == [{"rank": 4, "reason": "no snapshot of this rank"}]
    assert render_json(hang()) == render_json(hang())


def test_a_finding_without_a_place_or_nodes_is_rendered() -> None:
    bare = Diagnosis(
        "", "t", 2, "", "Unknown", "none", "info", "low", (), (), "nothing known", None, "none",
        evidence=(Evidence("x", "y", 1),),
    )  # fmt: skip
    assert shown(bare).startswith("Unknown, confidence low, severity info\nnothing known\n")


def test_a_location_without_a_line_or_source_is_rendered() -> None:
    from msgspec.structs import replace

    assert "/lib/x.so in poll" in shown(replace(hang(), location=Location("poll", "/lib/x.so", 0)))


@pytest.mark.parametrize("odd", ["0-99999999", "hello,,3-", "3-1", "0,0", "9" * 5000, "\x1b[2J", "1_0", "-1"])
def test_ranks_that_are_none_are_shown_as_they_are(odd: str) -> None:
    from msgspec.structs import replace

    found = hang()
    damaged = replace(found, stacks=(replace(found.stacks[0], ranks=odd), *found.stacks[1:]))
    for full in (False, True):
        text = shown(damaged, full=full)
        assert inert(odd)[:60] in text.replace("\n  ", "")
        assert "count 3  threads 0:4728 1:4729 3:4731" in text


def test_the_users_line_is_shown_below_many_frames_of_c() -> None:
    deep = [native(f"gloo::wait_{number}") for number in range(12)]
    python = [user(f"step_{number}", number + 1) for number in range(6)]
    found = judge_still(a_rank(0).waiting_in(), a_rank(1).stuck_in(*deep, *python))
    text = shown(found)
    assert "gloo::wait_0 (libtorch_cpu.so)" in text
    assert "gloo::wait_11" not in text
    assert all(f"step_{number} (train.py:{number + 1})" in text for number in range(6))
    assert "... 7 more frames (--full)" in text
    assert "gloo::wait_11 (libtorch_cpu.so)" in shown(found, full=True)


def test_of_a_recursion_both_ends_are_shown() -> None:
    called = [user(f"again_{number}", number + 1) for number in range(100)]
    text = shown(judge_still(a_rank(0).waiting_in(), a_rank(1).stuck_in(*called)))
    assert "again_0 (train.py:1)" in text
    assert "again_50 (" not in text
    assert "again_99 (train.py:100)" in text


def test_the_culprits_process_and_host_are_named() -> None:
    assert "  on host-a, process 4730" in shown(hang()).splitlines()
