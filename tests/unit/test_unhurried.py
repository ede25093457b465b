"""The garbage collector is on again after much was read, whatever came of it, and what others froze stays."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from rankscope.diag.unhurried import without_collector


def test_it_is_off_meanwhile_and_on_again_after_an_error() -> None:
    seen: list[bool] = []

    def fail() -> None:
        with without_collector():
            seen.append(gc.isenabled())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [*seen, gc.isenabled()] == [False, True]


def test_it_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with without_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_others_have_frozen_stays_so_and_is_counted_once() -> None:
    counted = """
import gc
from rankscope.diag import unhurried
gc.freeze()
before, counts = gc.get_freeze_count(), []
count, gc.get_freeze_count = gc.get_freeze_count, lambda: counts.append(1) or before
for _ in range(3):
    with unhurried.without_collector():
        pass
print(count() >= before - 50, len(counts), gc.isenabled())
"""
    done = subprocess.run([sys.executable, "-c", counted], capture_output=True, text=True, check=True)
    assert done.stdout == "True 1 True\n"
