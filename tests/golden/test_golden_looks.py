"""Real dumps of jobs that do not hang, of several looks, and of one tool's weak sides (tests/data/looks)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.diag.classify import diagnose, load_catalogue
from rankscope.diag.dumps import read_dumps
from rankscope.diag.model import Diagnosis

LOOKS = Path(__file__).parents[1] / "data" / "looks"
TOOLS = ("fh", "pyspy", "pystacknat")


def found_in(*paths: str) -> Diagnosis:
    """The answer to dumps whose sources are not on this host."""
    job = read_dumps([LOOKS / path for path in paths])
    return diagnose(
        job.pair,
        catalogue=load_catalogue(),
        source_line=lambda _file, _line: None,
        time="2026-11-29T12:00:00Z",
        samples=job.samples,
    )


def test_looks_of_three_tools_at_a_job_that_moves_are_no_hang() -> None:
    found = found_in(*(f"moving/{tool}" for tool in TOOLS))
    assert (found.verdict, found.culprits) in {("Unknown", ()), ("Healthy", ())}


@pytest.mark.parametrize("tool", TOOLS)
def test_one_look_at_a_job_that_moves_is_never_sure(tool: str) -> None:
    assert found_in(f"moving/{tool}").confidence == "low"


def test_a_hang_that_was_printed_again_and_again_is_one_whatever_came_before() -> None:
    found = found_in("repeat.log")
    assert (found.verdict, found.culprits) == ("RankNonCommHang", (2,))


def test_one_look_at_ranks_that_all_wait_for_input_is_no_hang() -> None:
    assert found_in("idleinput").verdict == "Unknown"


def test_a_helper_thread_whose_source_is_elsewhere_is_not_the_culprit_s_line() -> None:
    found = found_in("subgroup")
    assert found.culprits == (3,)
    assert found.location is not None
    assert found.location.function == "fetch"


def test_gdb_alone_names_the_c_library_s_call_by_what_it_does() -> None:
    found = found_in("gdb")
    assert (found.culprits, found.kind) == ((1,), "storage")
    assert "sysdeps" not in found.summary
