"""How much a job has logged: whatever happens to the files, a total never falls and counts nothing twice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.jobs import until

from rankscope.agent.beside.log_files import LogFiles
from rankscope.agent.beside.log_growth import NO_RANK, LogFile, LogGrowth, rank_in_path


def file(path: str = "train.log", *, inode: int = 1, size: int = 0, modified: int = 0) -> LogFile:
    return LogFile(path, device=1, inode=inode, size_bytes=size, modified_ns=modified)


def total_after(*looks: Iterable[LogFile]) -> int:
    growth = LogGrowth()
    for files in looks:
        growth.update(files)
    return sum(growth.bytes_by_rank.values())


def test_what_was_there_at_the_first_look_is_no_growth() -> None:
    assert total_after([file(size=1000)]) == 0


def test_what_is_appended_counts() -> None:
    assert total_after([file(size=1000)], [file(size=1010)], [file(size=1015)]) == 15


def test_a_file_that_appears_later_counts_whole() -> None:
    assert total_after([], [file(size=7)]) == 7


def test_a_log_that_is_renamed_and_begun_anew_counts_its_new_lines_only() -> None:
    before = [file(size=1000)]
    after = [file("train.log.1", inode=1, size=1003), file("train.log", inode=2, size=20)]
    assert total_after(before, after) == 23


def test_a_log_that_is_copied_and_cut_to_nothing_has_not_grown() -> None:
    assert total_after([file(size=1000)], [file(size=0, modified=9)]) == 0


def test_a_log_that_was_cut_and_written_to_since_counts_what_it_holds() -> None:
    assert total_after([file(size=1000)], [file(size=5)], [file(size=9)]) == 9


def test_a_file_overwritten_in_place_is_a_sign_of_life() -> None:
    assert total_after([file(size=10, modified=1)], [file(size=10, modified=2)]) == 1


def test_a_file_that_goes_away_takes_nothing_with_it() -> None:
    assert total_after([file(size=1)], [file(size=5)], [], [file(inode=2, size=3)]) == 7


def test_an_old_log_that_is_compressed_is_no_output() -> None:
    assert total_after([], [file("train.log.1.gz", size=400), file("train.log.2.zst", inode=2, size=9)]) == 0


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("logs/rank3.log", 3),
        ("logs/worker_12/out", 12),
        ("/tmp/torchelastic_x/run_y/attempt_0/2/stdout.log", 2),
        ("train.log", NO_RANK),
        ("logs/node7.txt", NO_RANK),
    ],
)
def test_the_rank_is_read_from_the_name(path: str, rank: int) -> None:
    assert rank_in_path(path) == rank


def test_growth_is_kept_by_rank() -> None:
    growth = LogGrowth()
    growth.update([])
    growth.update(
        [file("rank0.log", size=3), file("rank1.log", inode=2, size=4), file("x.log", inode=3, size=5)]
    )
    assert growth.bytes_by_rank == {0: 3, 1: 4, NO_RANK: 5}


def test_files_are_found_by_pattern_also_those_that_come_later(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("old")
    logs = LogFiles([str(tmp_path / "**" / "*.log")])
    logs.start()
    try:
        until(lambda: logs.files == 1, "the file that is there")
        below = tmp_path / "later"
        below.mkdir()
        (below / "rank1.log").write_text("four")
        until(lambda: logs.bytes_by_rank == {1: 4}, "the file that came later")
        with (tmp_path / "rank0.log").open("a") as out:
            out.write("new")
        until(lambda: logs.bytes_by_rank == {0: 3, 1: 4}, "what was appended")
    finally:
        logs.stop()


def test_without_a_pattern_nothing_is_looked_at() -> None:
    logs = LogFiles([])
    logs.start()
    logs.stop()
    assert (logs.files, logs.bytes_by_rank) == (0, {})
