"""Renaming in the programs of the fault matrix: whole identifiers, nothing else, and it can be undone."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.faults.copies import marked_lines, with_names
from tests.faults.draw import WORDS

OLD = ("save", "load", "read_all", "Writer")
BETWEEN = ("saved", "un_load", "x.save(", ") ", "\n", '"--load"', " # stuck here: one", "_", "7")
SCRAPS = st.sampled_from(OLD + BETWEEN)
TEXTS = st.lists(SCRAPS, max_size=30).map("".join)


@st.composite
def names(draw: st.DrawFn) -> dict[str, str]:
    old = draw(st.lists(st.sampled_from(OLD), unique=True))
    new = draw(st.lists(st.sampled_from(WORDS), min_size=len(old), max_size=len(old), unique=True))
    return dict(zip(old, new, strict=True))


@given(TEXTS, names())
def test_identifiers_are_replaced_one_by_one(text: str, names: dict[str, str]) -> None:
    before = re.findall(r"\w+", text)
    assert re.findall(r"\w+", with_names(text, names)) == [names.get(word, word) for word in before]
    assert re.split(r"\w+", with_names(text, names)) == re.split(r"\w+", text)


@given(TEXTS, names())
def test_renaming_back_gives_the_text_again(text: str, names: dict[str, str]) -> None:
    back = {new: old for old, new in names.items()}
    assert with_names(with_names(text, names), back) == text


@given(TEXTS, names())
def test_marked_lines_stay_where_they_are(text: str, names: dict[str, str]) -> None:
    assert sorted(marked_lines(with_names(text, names)).values()) == sorted(marked_lines(text).values())
