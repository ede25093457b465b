"""One error has one identity, two errors have two: a table of real errors, and what a second run changes."""

from __future__ import annotations

import itertools

import pytest
from tests.failures_factory import KnownError, known_errors

from rankscope.agent.failures.identity import LONGEST, error_identity

ERRORS = known_errors()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.what)
def test_an_error_of_another_run_is_the_same(error: KnownError) -> None:
    assert len({error_identity(text) for text in error.same}) == 1


def test_two_errors_are_two() -> None:
    identities = {error.what: error_identity(error.same[0]) for error in ERRORS}
    same = [
        (one, other)
        for (one, first), (other, second) in itertools.combinations(identities.items(), 2)
        if first == second
    ]
    assert same == []


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.what)
def test_an_identity_is_its_own(error: KnownError) -> None:
    identity = error_identity(error.same[0])
    assert error_identity(identity) == identity


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("failed on rank 3", "failed on rank 12"),
        ("failed on ranks [1, 2, 7]", "failed on ranks [0]"),
        ("missing ranks: {5}", "missing ranks: {1, 2}"),
        ("on cuda:3", "on cuda:0"),
        ("process 4711 died (pid 4711)", "process 12 died (pid 12)"),
        ("in Thread-12 (run)", "in Thread-3 (run)"),
        ("SpawnPoolWorker-3:17 lost", "SpawnPoolWorker-11:2 lost"),
        ("<Foo object at 0x7f2c1c0b5d50>", "<Foo object at 0x55aa>"),
        ("id 550e8400-e29b-41d4-a716-446655440000", "id 123e4567-e89b-12d3-a456-426614174000"),
        ("connect to 10.0.0.1:29500 failed", "connect to 192.168.7.9:1234 failed"),
        ("connect to [fe80::1%eth0]:29500 failed", "connect to [2001:db8::7]:1 failed"),
        ("connect to worker-3.job.svc:29500 failed", "connect to worker-11.job.svc:4000 failed"),
        ("connect to localhost:29500 failed", "connect to localhost:60123 failed"),
        ("no /tmp/tmpab12cd34/x.bin", "no /tmp/pytest-of-u/pytest-3/x.bin"),
        ("socket /tmp/torchelastic_3_2db5y0/none_hzy06/sock", "socket /tmp/torchelastic_x_1/none_aaaa/sock"),
        ("at 2026-11-30T08:01:02.123Z", "at 2026-12-01 23:59:59,999"),
        ("on Mon Nov 30 08:50:35 UTC 2026", "on Tue Dec  1 00:00:00 UTC 2026"),
        ("after 600029 milliseconds", "after 12 milliseconds"),
        ("took 3.2 s, limit 0:30:00", "took 17 s, limit 1:00:00"),
        ("free 12.31 MiB of 79.15 GiB", "free 1 MiB of 80.00 GiB"),
        ("nan at iteration 1200", "nan at iteration 7"),
        ("at global_step=1200", "at global_step=99"),
        ("epoch 3 batch 17: bad", "epoch 0 batch 1: bad"),
        ("loss 3.14159 is too high", "loss 2.71828 is too high"),
        ("commit 3f9c12ab7 is dirty", "commit 00aa12ab7 is dirty"),
        ("[E1130 08:01:48.191000 1705 torch/x.py:874] it broke", "[E1201 23:00:00.000001 9 y.py:1] it broke"),
        ("\x1b[1;31mit broke\x1b[0m", "it broke"),
        ("  4%|4  | 1/23 [00:07<02:39,  7.23s/it]it broke", "it broke"),
        ("Epoch 0: 99%|###| 22k/23k [1:00:07<00:01, 12.1it/s, loss=3.1] it broke", "it broke"),
        ("123it [00:07, 7.23it/s]it broke", "it broke"),
    ],
)  # fmt: skip
def test_what_a_run_changes_does_not_count(one: str, other: str) -> None:
    assert error_identity(one) == error_identity(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[Errno 28] no", "[Errno 5] no"),
        ("expected 3 channels, got 4", "expected 3 channels, got 1"),
        ("shapes (8x512 and 768x3072)", "shapes (8x512 and 1024x3072)"),
        ("KeyError: 'a'", "KeyError: 'b'"),
        ("KeyError: 3", "KeyError: 4"),
        ("/data/part-00012.parquet", "/data/part-00013.parquet"),
        ("/tmp/a/state.pt", "/tmp/a/config.json"),
        ("layer.3.weight is missing", "layer.4.weight is missing"),
        ("NCCL version 2.18.6", "NCCL version 2.19.3"),
        ("in train.py:8", "in train.py:12"),
        ("with error 12, vendor err 129", "with error 5, vendor err 249"),
        ("world_size=2", "world_size=4"),
        ("ValueError: x", "TypeError: x"),
    ],
)
def test_what_tells_errors_apart_counts(one: str, other: str) -> None:
    assert error_identity(one) != error_identity(other)


def test_an_error_without_a_text_is_told_by_its_place() -> None:
    here, there = (error_identity("AssertionError", place=place) for place in ("f (a.py)", "g (b.py)"))
    assert here != there
    assert error_identity("AssertionError: no", place="f (a.py)") == "AssertionError: no"


def test_only_the_first_line_that_says_something_counts() -> None:
    assert error_identity("\n  \nRuntimeError: a\nb 17\n") == "RuntimeError: a"


def test_an_identity_is_short() -> None:
    assert len(error_identity("word " * 100_000)) <= LONGEST


@pytest.mark.parametrize("text", ["", "\n\n", "\x1b[0m", "\x00", "\ud800", "100%|"])
def test_a_text_that_says_nothing_is_an_identity_too(text: str) -> None:
    assert isinstance(error_identity(text), str)
