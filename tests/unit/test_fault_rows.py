"""The rows of the fault matrix and their programs: what is drawn, what is expected, what is copied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from tests.faults import copies
from tests.faults.copies import HERE, marked_lines, with_names, write_copy
from tests.faults.draw import WORDS, Draw, draw
from tests.faults.found import NO_INCIDENT, Found, differences, expectation, limit_of
from tests.faults.matrix import ROWS
from tests.faults.rows import (
    ANYWHERE,
    LATEST,
    LITTLE_TOLD,
    SUITES,
    Answer,
    Expectation,
    Mode,
    Passing,
    Row,
    Silent,
    culprit,
    program,
)
from tests.faults.trial import trials_of

from rankscope.agent.demo.faults import FAULTS

PROGRAMS: Final = sorted((Path(copies.__file__).parent / "programs").glob("*.py"))
SEEDS: Final = range(40)
HANG: Final = Answer("RankNonCommHang", "1", "lock", "write", "4", "heron.py:7|9")


A_ROW: Final = Row(
    "some", "diagnosis", "what", culprit("RankNonCommHang", "lock"), program("startup_hang.py")
)


def test_every_suite_has_rows_and_every_row_a_name_of_its_own() -> None:
    assert {row.suite for row in ROWS} == set(SUITES)
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_only_what_is_too_long_for_a_test_has_a_flag() -> None:
    flags = {flag.partition("=")[0] for row in ROWS for flag in row.flags}
    assert flags <= {"--job-exit-hang-interval", "--straggler-interval"}


def test_every_fault_of_the_demonstration_has_a_row() -> None:
    assert {row.name for row in ROWS} >= FAULTS.keys()


def test_the_programs_know_nothing_of_the_product_and_use_no_drawn_name() -> None:
    assert PROGRAMS
    for path in PROGRAMS:
        text = path.read_text()
        assert "RANKSCOPE" not in text, path.name
        assert "import rankscope" not in text, path.name
        assert "from rankscope" not in text, path.name
        assert with_names(text, dict.fromkeys(WORDS, "")) == text, path.name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_can_be_drawn_copied_and_judged(row: Row, tmp_path: Path) -> None:
    for seed in (1, 2):
        for trial in trials_of(row, seed):
            folder = tmp_path / trial.name
            folder.mkdir()
            assert row.command(folder, trial.draw)
            copy = folder / trial.draw.file
            if copy.exists():
                compile(copy.read_text(), copy.name, "exec")
            expectation(row, trial.draw, trial.mode, folder)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_draw_keeps_to_the_row_and_comes_again_with_its_seed(row: Row) -> None:
    for seed in SEEDS:
        for zero in (False, True):
            drawn = draw(row, seed, zero=zero)
            assert drawn == draw(row, seed, zero=zero)
            assert row.least_ranks <= drawn.ranks <= row.most_ranks
            assert (drawn.rank == 0) is zero
            assert drawn.rank < drawn.ranks
            assert drawn.names.keys() == set(row.renames)
            assert len({*drawn.names.values(), drawn.file.removesuffix(".py")}) == 1 + len(row.renames)


def test_seeds_and_rows_draw_differently_over_the_whole_range() -> None:
    row = replace(A_ROW, renames=("write", "read"))
    drawn = [draw(row, seed, zero=False) for seed in SEEDS]
    assert {one.ranks for one in drawn} == set(range(3, 9))
    assert {one.rank for one in drawn} == set(range(1, 8))
    assert len({tuple(one.names.items()) for one in drawn}) > len(SEEDS) // 2
    assert drawn != [draw(replace(row, name="other"), seed, zero=False) for seed in SEEDS]


def test_a_row_is_tried_in_both_modes_on_another_rank_and_on_rank_0_with_the_same_draw() -> None:
    tried = trials_of(A_ROW, 5)
    assert [(one.mode, one.draw.rank == 0) for one in tried] == [
        ("run", False),
        ("run", True),
        ("beside", False),
        ("beside", True),
    ]
    assert tried[0].draw == tried[2].draw
    assert len({one.name for one in tried}) == 4
    assert [one.draw.rank for one in trials_of(A_ROW, 5, mode="beside", zero=True)] == [0]
    assert len(trials_of(replace(A_ROW, zero=False, modes=("run",)), 5)) == 1


def test_whole_identifiers_are_renamed_in_code_strings_and_comments() -> None:
    text = 'def save(a):  # save\n    return f"{save_all} {save(a)}", options.save, unsave, "--save"\n'
    assert with_names(text, {"save": "heron"}) == (
        'def heron(a):  # heron\n    return f"{save_all} {heron(a)}", options.heron, unsave, "--heron"\n'
    )


def test_two_names_can_change_places() -> None:
    assert with_names("a b ab", {"a": "b", "b": "a"}) == "b a ab"


@pytest.mark.parametrize(
    ("names", "why"),
    [({"load": "heron"}, "nothing is called load"), ({"save": "read"}, "something is called read")],
)
def test_a_name_that_is_not_there_or_already_there_is_refused(
    names: dict[str, str], why: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text("save(); read()\n")
    with pytest.raises(ValueError, match=why):
        write_copy(tmp_path / "program.py", tmp_path / "copy.py", names)
    assert not (tmp_path / "copy.py").exists()


def test_markers_name_their_lines() -> None:
    text = "a  # stuck here\nb  # stuck here: one\nc\n  d  # stuck here: one, two  \ne # not stuck there\n"
    assert marked_lines(text) == {HERE: (1,), "one": (2, 4), "two": (4,)}


@pytest.mark.parametrize(("mode", "rule"), [("run", "4"), ("beside", "8")])
def test_an_expectation_has_the_drawn_names_the_lines_and_the_rule_of_its_mode(
    mode: Mode, rule: str, tmp_path: Path
) -> None:
    (tmp_path / "heron.py").write_text("def fern(): ...  # stuck here: fern\n")
    row = replace(A_ROW, expected=culprit("RankNonCommHang", "lock", "save", rule="4|8", line="save"))
    drawn = Draw(1, 2, 4, 30, "heron.py", {"save": "fern"})
    expected = expectation(row, drawn, mode, tmp_path)
    assert expected == Answer("RankNonCommHang", "2", "lock", "fern", rule, "heron.py:1")


def test_a_marker_that_is_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "heron.py").write_text("pass  # stuck here: reading\n")
    row = replace(A_ROW, expected=Answer("RankNonCommHang", line="writing"))
    with pytest.raises(ValueError, match="no line is marked 'writing' there, only reading"):
        expectation(row, Draw(1, 2, 4, 30, "heron.py"), "run", tmp_path)


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (Answer("RankNonCommHang", "1", "lock", "write", "4", "heron.py:7"), ()),
        (Answer("RankNonCommHang", "1", "lock", "Metrics.write", "4", "heron.py:9"), ()),
        (Answer("RankNonCommHang", "1", "lock", "rewrite", "4", "heron.py:7"), ("function",)),
        (Answer("RankNonCommHang", "1", "lock", "write", "4", "heron.py:79"), ("line",)),
        (Answer("RankNonCommHang", "1", "lock", "write", "4", "raven.py:7"), ("line",)),
        (Answer("RankNonCommHang", "1", "data_loading", "write", "8", "heron.py:7"), ("kind", "rule")),
        (Answer("RankCommHang", "0-1", "lock", "write", "4", "heron.py:7"), ("class", "culprits")),
        (NO_INCIDENT, ("class", "kind", "culprits", "function", "line", "rule")),
    ],
)
def test_what_is_wrong_is_named_field_by_field(found: Answer, wrong: tuple[str, ...]) -> None:
    assert differences(HANG, Found(found)) == wrong


def test_what_an_expectation_leaves_open_may_be_anything() -> None:
    expected = Answer("Exited", "0", "dead", ANYWHERE)
    assert differences(expected, Found(Answer("Exited", "0", "dead", "-", "1", "-"))) == ()
    assert differences(expected, Found(Answer("Exited", "0", "dead", "main", "1", "heron.py:7"))) == ()


def test_a_verdict_that_comes_too_late_is_wrong() -> None:
    found = Found(Answer("Exited", "0", "dead"), seconds=41.0)
    expected = Answer("Exited", "0", "dead", ANYWHERE)
    assert differences(expected, found, within=40.0) == ("seconds",)
    assert differences(expected, found, within=41.0) == ()


@pytest.mark.parametrize(
    ("expected", "seconds"),
    [
        (HANG, LATEST),
        (Answer("RankNonCommHang", "-", "checkpoint", "write", "10"), LITTLE_TOLD),
        (Answer("RankNonCommSlow", "-", "storage", "write", "S3"), LATEST),
        (Silent(), LATEST),
    ],
)
def test_a_hang_in_which_nobody_is_awaited_has_more_time(expected: Expectation, seconds: float) -> None:
    assert limit_of(A_ROW, expected) == seconds
    assert limit_of(replace(A_ROW, within=20.0), expected) == 20.0


def test_every_row_of_a_common_cause_has_the_longer_time_and_none_sets_it_for_itself() -> None:
    answers = {row: row.expected for row in ROWS if isinstance(row.expected, Answer)}
    alike = {row.name for row, expected in answers.items() if limit_of(row, expected) == LITTLE_TOLD}
    assert {"same_place", "checkpoint_all", "stale_build_lock_all"} <= alike
    assert all(row.within is None for row in answers)


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (Found(NO_INCIDENT, exit_code=0), ()),
        (Found(NO_INCIDENT, exit_code=0, actions=("notify",)), ()),
        (Found(NO_INCIDENT, exit_code=1), ("exit code",)),
        (Found(NO_INCIDENT), ("exit code",)),
        (Found(NO_INCIDENT, exit_code=0, actions=("log", "restart")), ("action",)),
        (Found(Answer("Healthy", "-", "none"), exit_code=0), ("class", "kind")),
    ],
)
def test_a_healthy_job_ends_well_without_an_incident(found: Found, wrong: tuple[str, ...]) -> None:
    assert differences(Silent(), found) == wrong


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (Found(NO_INCIDENT, exit_code=0), ()),
        (Found(Answer("Unknown", "1"), exit_code=0, severities=("info",)), ()),
        (Found(Answer("RankNonCommHang", "1"), exit_code=0, severities=("info", "warning")), ("severity",)),
        (Found(Answer("Unknown", "1"), exit_code=0, severities=("info",), open_incidents=1), ("recovered",)),
        (Found(Answer("Unknown", "1"), exit_code=75, actions=("fail",)), ("exit code", "action")),
    ],
)
def test_who_is_alone_but_alive_may_be_mentioned_and_is_left_alone(
    found: Found, wrong: tuple[str, ...]
) -> None:
    assert differences(Passing("info"), found) == wrong
