"""Whatever a worker says, the page gives back what fits, and never raises."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.watchdog import page
from rankscope.watchdog.page import MAX_GROUPS, GroupSeq, PageReader, SlotWriter, create_page

I64 = st.integers(-(2**63), 2**63 - 1)
U64 = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
SECONDS = st.one_of(st.none(), st.just(-1.0), st.floats(0, 1e9))
GROUPS = st.lists(st.builds(GroupSeq, NAMES, I64, I64, I64, U64), max_size=MAX_GROUPS + 3)


@settings(max_examples=60)
@given(
    user=st.integers(), beat=U64, batches=U64, own=SECONDS, stage_limit=SECONDS, stage=NAMES, groups=GROUPS
)
def test_all_that_fits_comes_back(  # noqa: PLR0917 - hypothesis gives them by name
    user: int,
    beat: int,
    batches: int,
    own: float | None,
    stage_limit: float | None,
    stage: str,
    groups: list[GroupSeq],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page"
        create_page(path, 1)
        writer, reader = SlotWriter(path, 0), PageReader(path)
        writer.user_step(user, 1)
        writer.beat(beat, batches)
        writer.intervals(own, stage_limit, stage)
        writer.groups(tuple(groups))
        view = reader.read(0)
        writer.close()
        reader.close()
    assert view.user_step == max(-(2**63), min(user, 2**63 - 1))
    assert (view.beat_ns, view.batches) == (beat, batches)
    assert (view.interval, view.stage_limit, view.stage) == (own, stage_limit, stage)
    assert view.groups == tuple(groups[:MAX_GROUPS])


@settings(max_examples=200)
@given(
    pieces=st.lists(
        st.tuples(
            st.sampled_from([0, 64, 96, 128, 192, 320, 384, 504, 512, 520, 3088, 3200, 3712]),
            st.one_of(
                st.binary(max_size=130),
                st.text("0123456789²٣\n", max_size=30).map(lambda text: text.encode()),
            ),
        )
    )
)
def test_any_bytes_in_a_slot_are_read_without_an_error(pieces: list[tuple[int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page"
        create_page(path, 1)
        with path.open("r+b") as file:
            for offset, piece in pieces:
                file.seek(page.HEADER_SIZE + offset)
                file.write(piece)
        reader = PageReader(path)
        assert len(reader.read(0).groups) <= MAX_GROUPS
        reader.close()
