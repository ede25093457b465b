"""The probe's thread has one owner, and leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.probe_factory import wait_until

from rankscope.watchdog.page import PageReader, SlotWriter, create_page
from rankscope.watchdog.probe.beat import Beat


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[SlotWriter, PageReader]]:
    path = tmp_path / "progress.page"
    create_page(path, 1)
    writer, reader = SlotWriter(path, 0), PageReader(path)
    yield writer, reader
    writer.close()
    reader.close()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rankscope-probe")]


def test_it_beats_until_it_is_stopped(page: tuple[SlotWriter, PageReader]) -> None:
    writer, reader = page
    beat = Beat(writer, period=0.01)
    beat.start()
    try:
        wait_until(lambda: reader.read(0).beat_ns > 0, "the first beat")
        first = reader.read(0).beat_ns
        wait_until(lambda: reader.read(0).beat_ns > first, "the next beat")
        assert threads() == ["rankscope-probe"]
    finally:
        beat.stop()
    assert threads() == []
    beat.stop()


def test_stopping_does_not_wait_for_the_next_beat(page: tuple[SlotWriter, PageReader]) -> None:
    writer, reader = page
    beat = Beat(writer, period=3600)
    beat.start()
    wait_until(lambda: reader.read(0).beat_ns > 0, "the first beat")
    beat.stop()
    assert threads() == []


def test_a_page_that_was_closed_does_not_end_the_thread_with_noise(tmp_path: Path) -> None:
    create_page(tmp_path / "page", 1)
    writer = SlotWriter(tmp_path / "page", 0)
    writer.close()
    beat = Beat(writer, period=0.001)
    beat.start()
    threading.Event().wait(0.02)
    assert threads() == ["rankscope-probe"]
    beat.stop()
    assert threads() == []
