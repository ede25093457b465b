"""What a worker wrote into its slot, as the model has it: ages instead of times, None for never."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from rankscope.diag.discover import progress_from_slot
from rankscope.diag.model import Progress
from rankscope.watchdog.page import PageReader, SlotView, SlotWriter, create_page


def view_after(path: Path, *calls: tuple[str, tuple[object, ...]]) -> SlotView:
    create_page(path, 1)
    writer = SlotWriter(path, 0)
    for name, arguments in calls:
        getattr(writer, name)(*arguments)
    writer.close()
    with contextlib.closing(PageReader(path)) as reader:
        return reader.read(0)


def test_a_slot_that_says_nothing_is_a_progress_without_anything(tmp_path: Path) -> None:
    assert progress_from_slot(view_after(tmp_path / "page"), now_ns=5) == Progress()


def test_batches_step_stage_and_the_end_of_the_script_are_taken_over(tmp_path: Path) -> None:
    view = view_after(
        tmp_path / "page",
        ("user_step", (0, 1)),
        ("beat", (1_000_000_000, 12)),
        ("returned", (2_000_000_000,)),
        ("intervals", (None, 30.0, "evaluation")),
    )
    assert progress_from_slot(view, now_ns=4_500_000_000) == Progress(
        seconds_since_beat=3.5,
        batches=12,
        user_step=0,
        stage="evaluation",
        seconds_since_return=2.5,
    )


@pytest.mark.parametrize("number", [-1, 0, 10**12])
def test_any_number_that_the_script_gave_is_a_step(tmp_path: Path, number: int) -> None:
    view = view_after(tmp_path / "page", ("user_step", (number, 1)))
    assert progress_from_slot(view, now_ns=1).user_step == number
