"""The progress page: what is written is what is read, and half a record is never taken for a whole one."""

from __future__ import annotations

import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rankscope.watchdog import page
from rankscope.watchdog.page import (
    MAX_GROUPS,
    GroupSeq,
    PageError,
    PageReader,
    SlotView,
    SlotWriter,
    create_page,
    page_size_bytes,
)


class Node:
    """Both ends of a page with two slots; the second slot is the one that is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        create_page(path, 2)
        self.writer = SlotWriter(path, 1)
        self.reader = PageReader(path)

    def view(self) -> SlotView:
        return self.reader.read(1)

    def overwrite(self, offset: int, form: str, *values: object) -> None:
        """What a writer that was stopped in the middle has left at ``offset`` of the slot."""
        with self.path.open("r+b") as file:
            file.seek(page.HEADER_SIZE + page.SLOT_SIZE + offset)
            file.write(struct.pack(form, *values))

    def close(self) -> None:
        self.writer.close()
        self.reader.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "progress.page")
    yield made
    made.close()


def test_a_new_slot_says_nothing(node: Node) -> None:
    assert node.view() == SlotView(-1, 0, 0, 0, 0, 0, 0, "", None, ())
    view = node.view()
    assert (view.user_step_ns, view.returned_ns, view.interval, view.stage_limit, view.stage) == (
        0,
        0,
        None,
        None,
        "",
    )


def test_what_is_written_is_read_and_the_neighbour_stays_empty(node: Node) -> None:
    group = GroupSeq("0", 4, 7, 6, 2**64 - 1)
    node.writer.claim(rank=5, pid=77, start_ticks=2**63)
    node.writer.step(3, 30)
    node.writer.user_step(-4, 40)
    node.writer.beat(50, 9)
    node.writer.returned(60)
    node.writer.intervals(-1.0, 600.0, "évaluation")
    node.writer.groups((group,))
    node.writer.raised("ValueError: x", 70, ("train", "/job/train.py", 8))
    assert node.view() == SlotView(
        rank=5,
        pid=77,
        start_ticks=2**63,
        step=3,
        step_ns=30,
        beat_ns=50,
        raised_ns=70,
        raised_text="ValueError: x",
        raised_at=("train", "/job/train.py", 8),
        groups=(group,),
        user_step=-4,
        user_step_ns=40,
        batches=9,
        returned_ns=60,
        interval=-1.0,
        stage_limit=600.0,
        stage="évaluation",
    )
    assert node.reader.read(0) == SlotView(-1, 0, 0, 0, 0, 0, 0, "", None, ())


def test_a_claim_and_a_clearing_wipe_what_was_there(node: Node) -> None:
    wipes: list[Callable[[], None]] = [
        lambda: node.writer.claim(rank=1, pid=2, start_ticks=3),
        lambda: node.reader.clear(1),
    ]
    for wipe in wipes:
        node.writer.step(3, 30)
        node.writer.beat(1, 1)
        node.writer.returned(1)
        node.writer.intervals(1.0, 1.0, "stage")
        node.writer.raised("x", 1, ("f", "file", 1))
        wipe()
        blank = SlotView(-1, 0, 0, 0, 0, 0, 0, "", None, ())
        assert node.view()._replace(rank=-1, pid=0, start_ticks=0) == blank


def test_the_hold_and_the_answer_reach_the_worker(node: Node) -> None:
    assert not node.writer.hold_wanted()
    node.reader.want_hold(True)
    assert node.writer.hold_wanted()
    assert not node.writer.answered()
    node.reader.answer(1, 5)
    assert node.writer.answered()
    node.reader.want_hold(False)
    assert not node.writer.hold_wanted()


@pytest.mark.parametrize(("number", "stored"), [(2**80, 2**63 - 1), (-(2**80), -(2**63)), (0, 0)])
def test_a_step_number_of_the_user_never_raises(node: Node, number: int, stored: int) -> None:
    node.writer.user_step(number, 1)
    assert node.view().user_step == stored


def test_what_is_too_long_is_cut_and_what_is_too_much_is_left_out(node: Node) -> None:
    node.writer.intervals(None, None, "ä" * 100)
    node.writer.raised("x" * 1000, 1, ("f", "/" + "x" * 1000, 1))
    node.writer.groups(tuple(GroupSeq("n" * 60, 1, number, 0) for number in range(40)))
    view = node.view()
    assert view.stage == "ä" * 48
    assert (len(view.raised_text), view.raised_at) == (504, None)
    assert [group.enqueued for group in view.groups] == list(range(MAX_GROUPS))
    assert view.groups[0].name == "n" * 48


HALF: dict[str, tuple[Callable[[Node], None], Callable[[SlotView], tuple[object, object]]]] = {
    "step": (lambda node: node.overwrite(64, "<QQ", 8, 800), lambda view: (view.step, view.step_ns)),
    "user step": (
        lambda node: node.overwrite(96, "<qQ", 8, 800),
        lambda view: (view.user_step, view.user_step_ns),
    ),
    "beat": (lambda node: node.overwrite(128, "<QQ", 8, 800), lambda view: (view.beat_ns, view.batches)),
}


@pytest.mark.parametrize("what", HALF)
def test_a_reader_that_meets_half_a_record_looks_again(
    node: Node, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer stands between its first number and the copy of it, and goes on while the reader looks."""
    half, shown = HALF[what]
    node.writer.step(7, 700)
    node.writer.user_step(7, 700)
    node.writer.beat(7, 700)
    half(node)
    looks = 0
    name = {"step": "_STEP", "user step": "_USER_STEP", "beat": "_BEAT"}[what]
    form: struct.Struct = getattr(page, name)

    class Watched:
        size = form.size

        def unpack(self, raw: bytes) -> tuple[int, ...]:
            nonlocal looks
            looks += 1
            if looks == 5:
                # Ends what was half, as the writer would, without the form that is watched.
                node.overwrite({"step": 80, "user step": 112, "beat": 144}[what], "<Q", 8)
            return form.unpack(raw)

    monkeypatch.setattr(page, name, Watched())
    assert shown(node.view()) == (8, 800)
    assert looks == 7  # five of half a record, then two that are the same and whole


@pytest.mark.parametrize("what", HALF)
def test_a_writer_that_died_in_the_middle_keeps_no_reader(node: Node, what: str) -> None:
    half, shown = HALF[what]
    half(node)
    assert shown(node.view()) == (8, 800)


def test_groups_of_a_writer_that_lost_the_gil_in_the_middle_are_shown_as_they_were(node: Node) -> None:
    first = (GroupSeq("0", 4, 7, 6, 1),)
    node.writer.groups(first)
    node.overwrite(512, "<Q", 3)  # the odd version, and never a step further
    assert node.view().groups == first
    node.writer.intervals(5.0, None, "eval")
    node.overwrite(384, "<Q", 3)
    assert (node.view().interval, node.view().stage) == (5.0, "eval")


def test_a_reader_keeps_the_groups_it_knew_while_the_writer_stands_in_the_middle(node: Node) -> None:
    first = (GroupSeq("0", 4, 7, 6, 1), GroupSeq("1", 2, 3, 3, 1))
    node.writer.groups(first)
    assert node.view().groups == first
    node.overwrite(512, "<QQ48sqqqQ", 3, 2, b"new", 4, 8, 8, 1)
    assert node.view().groups == first
    node.writer.groups(first[:1])
    assert node.view().groups == first[:1]
    node.reader.clear(1)
    assert node.view().groups == ()


def test_a_first_record_that_was_never_finished_says_nothing(node: Node) -> None:
    node.overwrite(512, "<Q", 1)
    node.overwrite(384, "<Q", 1)
    view = node.view()
    assert (view.groups, view.interval, view.stage_limit, view.stage) == ((), None, None, "")


def test_an_exception_that_has_a_time_has_its_text(node: Node) -> None:
    """The time is written last: a reader that sees it finds what it belongs to."""
    node.writer.raised("ValueError: first", 1, ("f", "file", 1))
    node.overwrite(3200, "<Q", 0)
    assert node.view().raised_text == "ValueError: first"


WRITE_AS_FAST_AS_IT_CAN = """
    import sys
    from rankscope.watchdog.page import GroupSeq, SlotWriter
    writer = SlotWriter(sys.argv[1], 1)
    print("writing", flush=True)
    sets = [tuple(GroupSeq(f"{n}:{number}", n, n, n, n) for number in range(32)) for n in range(1, 9)]
    for n in range(1, 20_000_000):
        writer.step(n, n * 3)
        writer.user_step(n, n * 7)
        writer.beat(n * 5, n)
        if n % 20 == 0:
            writer.groups(sets[n // 20 % len(sets)])
            writer.intervals(float(n), n * 2.0, str(n))
"""


def test_no_reader_ever_sees_two_records_mixed_or_none_at_all(node: Node) -> None:
    """A second process writes as fast as it can; each of 20,000 looks must find records that are whole."""
    node.writer.step(1, 3)
    node.writer.user_step(1, 7)
    node.writer.beat(5, 1)
    node.writer.intervals(1.0, 2.0, "1")
    node.writer.groups((GroupSeq("1:0", 1, 1, 1, 1),))
    command = [sys.executable, "-c", textwrap.dedent(WRITE_AS_FAST_AS_IT_CAN), str(node.path)]
    steps: set[int] = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            last = 0
            for _ in range(20_000):
                view = node.view()
                assert view.step_ns == view.step * 3
                assert view.user_step_ns == view.user_step * 7
                assert view.beat_ns == view.batches * 5
                assert view.step >= last
                assert view.interval is not None
                assert (view.stage_limit, view.stage) == (view.interval * 2, str(int(view.interval)))
                assert len({(one.size, one.enqueued, one.members_hash) for one in view.groups}) == 1
                assert len(view.groups) in {1, MAX_GROUPS}
                last = view.step
                steps.add(last)
        finally:
            writer.kill()
    assert len(steps) > 100, "the reader looked while the writer wrote"


@pytest.mark.parametrize(
    "content",
    [b"", b"RSPG", b"x" * 5000, struct.pack("<4sIII", b"RSPG", 1, 1, 4096).ljust(5000, b"\0")],
    ids=["empty", "short", "alien", "version 1"],
)
def test_a_file_that_is_no_page_of_this_version_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "page"
    path.write_bytes(content)
    with pytest.raises(PageError):
        PageReader(path)
    with pytest.raises(PageError):
        SlotWriter(path, 0)


def test_a_page_that_promises_more_slots_than_it_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page"
    create_page(path, 4)
    assert path.stat().st_size == page_size_bytes(4)
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("r+b") as file:
        file.truncate(page_size_bytes(3))
    with pytest.raises(PageError):
        PageReader(path)


def test_a_slot_that_the_page_does_not_have_is_an_index_error(node: Node) -> None:
    with pytest.raises(IndexError):
        SlotWriter(node.path, 2)
    with pytest.raises(IndexError):
        node.reader.read(2)
    with pytest.raises(IndexError):
        node.reader.read(-1)


def test_a_page_made_again_replaces_the_old_one_at_once(node: Node) -> None:
    """Readers that have the old one mapped keep it."""
    node.writer.step(3, 9)
    create_page(node.path, 3)
    assert node.view().step == 3
    again = PageReader(node.path)
    assert again.slots == 3
    again.close()
    assert [file.name for file in node.path.parent.iterdir()] == ["progress.page"]
