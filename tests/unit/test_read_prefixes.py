"""What stands before lines: whose line it is, and the line without it."""

from __future__ import annotations

import pytest

from rankscope.diag.read.lines import clean, shift
from rankscope.diag.read.prefixes import Prefixes, unwrap_json


@pytest.mark.parametrize(
    ("text", "channel", "rank", "pid", "body"),
    [
        ("[rank2]: text", "[rank2]:", 2, 0, " text"),
        ("[rank2]:[E1 10:00:00 a.cpp:1] [Rank 2] x", "[rank2]:", 2, 0, "[E1 10:00:00 a.cpp:1] [Rank 2] x"),
        ("[default3]:    f (a.py:1)", "[default3]:", None, 0, "    f (a.py:1)"),
        ("[default3]:[rank11]: text", "[default3]: [rank11]:", 11, 0, " text"),
        ("(RayWorker pid=12, ip=10.0.0.1) text", "(RayWorker pid=12, ip=10.0.0.1)", None, 12, " text"),
        ("(train_fn pid=12) text", "(train_fn pid=12)", None, 12, " text"),
        ("(VllmWorker rank=1 pid=12) text", "(VllmWorker rank=1 pid=12)", None, 12, " text"),
        ("(W pid=12) text [repeated 3x across cluster]", "(W pid=12)", None, 12, " text"),
        ("sglang-1  | text", "sglang-1  |", None, 0, " text"),
        ("[pod/train-0/main] text", "[pod/train-0/main]", None, 0, " text"),
        ("12: text", "12:", None, 0, " text"),
        ("  3: text", "3:", None, 0, " text"),
        ("[1,3]<stderr>:text", "[1,3]<stderr>:", None, 0, "text"),
        ("2026-09-28T10:00:00.1Z stdout F text", "stdout", None, 0, "text"),
        ("2026-09-28 10:00:00,123 - text", "", None, 0, "text"),
        ("[2026-09-28 10:00:00] text", "", None, 0, "text"),
        ("10:00:00.123 text", "", None, 0, "text"),
        ("Sep 28 10:00:00 node-1 app[12]: text", "node-1 app[12]:", None, 12, " text"),
        ("2026-11-29T10:11:12.12+0000 n0 python3[4000]: text", "n0 python3[4000]:", None, 4000, " text"),
        ("    at indentation (a.py:3)", "", None, 0, "    at indentation (a.py:3)"),
        ("   0: Failed to suspend process", "", None, 0, "   0: Failed to suspend process"),
        ("RuntimeError: no", "", None, 0, "RuntimeError: no"),
        ("Process 12: python", "", None, 0, "Process 12: python"),
        ("#0  poll ()", "", None, 0, "#0  poll ()"),
        ("", "", None, 0, ""),
    ],
)  # fmt: skip
def test_known_prefixes_are_taken_off(text: str, channel: str, rank: int | None, pid: int, body: str) -> None:
    found = Prefixes().split(text)
    assert (found.origin.channel, found.origin.rank, found.origin.pid, found.body) == (
        channel,
        rank,
        pid,
        body,
    )


def test_the_date_before_a_line_is_kept() -> None:
    assert Prefixes().split("[default1]:2026-09-28 10:00:00,123 text").stamp == "2026-09-28 10:00:00,123"


@pytest.mark.parametrize(
    ("before", "rank"),
    [
        ("worker-7: ", None),
        ("<rank 5> ", 5),
        ("node1 rank=5 > ", 5),
        ("[Rank 5] ", 5),
        ("local_rank=5 ", None),
        ("[local rank 5] ", None),
        ("tp_rank 5: ", None),
        ("node_rank=1 rank=5: ", 5),
        ("rank5.host-3 ", 5),
    ],
)
def test_an_unknown_prefix_is_learned_and_its_rank_taken_where_it_surely_is_one(
    before: str, rank: int | None
) -> None:
    prefixes = Prefixes()
    assert prefixes.learn(f"{before}Thread 1 (idle)", len(before))
    found = prefixes.split(f"{before}    f (a.py:1)")
    assert (found.origin.channel, found.origin.rank) == (before.strip(), rank)
    assert found.body.endswith("    f (a.py:1)")
    assert prefixes.split("other-9: text").origin.channel == ""


def test_dates_in_a_learned_prefix_may_differ() -> None:
    prefixes = Prefixes()
    before = "INFO 09-28 10:00:01 worker.py:88] "
    prefixes.learn(f"{before}Thread 1 (idle)", len(before))
    assert prefixes.split("INFO 09-28 10:00:59 worker.py:88] x").body.strip() == "x"
    assert prefixes.split("INFO 09-28 10:00:59 worker.py:89] x").origin.channel == ""


def test_a_text_too_long_for_a_prefix_is_none() -> None:
    assert not Prefixes().learn("x" * 500 + "Thread 1 (idle)", 500)


@pytest.mark.parametrize(
    ("text", "inner", "channel", "rank"),
    [
        ('{"log":"a\\n","stream":"stderr","time":"2026-01-01"}', "a\n", "stderr", None),
        ('{"level":"info","rank":4,"message":"a\\nb"}', "a\nb", "json rank=4", 4),
        ('{"rank":"4","msg":"a"}', "a", "json rank=4", 4),
        ('{"rank":[4],"pod":{"a":1},"msg":"a"}', "a", "json", None),
        ('{"rank":-1,"msg":"a"}', "a", "json", None),
        (
            '{"log":"a","stream":"stderr","kubernetes":{"pod_name":"w-0","container_name":"c","labels":{}}}',
            "a",
            "stderr pod=w-0 container=c",
            None,
        ),
        ('{"labels":{"pod":"w-0"},"host":"n1","message":"a"}', "a", "json host=n1 pod=w-0", None),
    ],
)
def test_wrapped_lines_are_unwrapped(text: str, inner: str, channel: str, rank: int | None) -> None:
    found = unwrap_json(text)
    assert found is not None
    assert (found[0], found[1].origin.channel, found[1].origin.rank) == (inner, channel, rank)


@pytest.mark.parametrize(
    "text", ['{"loss": 2.5}', "{'log': 1}", '{"log": 3}', '{"log": "a"', "[1]", "{" * 5000 + "}"]
)
def test_other_objects_are_not_wrapped_lines(text: str) -> None:
    assert unwrap_json(text) is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m text\r\n", "red text"),
        (b"\x1b]0;title\x07text", "text"),
        (b" 10%|#  |\r 20%|## |\rtext\n", "text"),
        (b"\xff\xfetext", "��text"),
        (b"a\tb", "a\tb"),
    ],
)
def test_a_line_is_cleaned(raw: bytes, text: str) -> None:
    assert clean(raw) == text


def test_a_margin_is_taken_off_as_far_as_it_is_there() -> None:
    assert [shift(text, 2) for text in ("    a", " a", "a", "\t b", "")] == ["  a", "a", "a", "b", ""]
